package turn

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// execute runs EXEC (OSSA 0.2.9 §1 phase 5). Each call that the model asked for is checked
// against its tool's schema and made as one governed call, in the order of the request.
// Consecutive calls whose tools permit it run at once. EXEC's record is committed with that of
// PERSIST. Until then a crash makes every call again, and the runtime serves the calls that have
// an effect.
func (r *Runner) execute(ctx context.Context, t *turn) error {
	started := r.wall()
	body := executeBody{Executions: []ToolExecution{}, Messages: []message.Message{}}
	calls := t.inferred.Answer.Said.ToolCalls
	if len(calls) > 0 {
		if err := r.load(ctx, t); err != nil {
			return err
		}
		if err := r.redo(ctx, t); err != nil {
			return err
		}
		if err := r.chainLimit(ctx, t); err != nil {
			return err
		}
	}
	for len(calls) > len(body.Executions) {
		from := len(body.Executions)
		to := from + 1
		if t.parallel(calls[from]) {
			for to < len(calls) && t.parallel(calls[to]) {
				to++
			}
		}
		done, err := r.group(ctx, t, from, to)
		if err != nil {
			return err
		}
		for _, d := range done {
			body.Executions = append(body.Executions, d.exec)
			if d.delegation != nil {
				body.Delegations = append(body.Delegations, *d.delegation)
			}
			if d.handoff != nil && body.Handoff == nil {
				body.Handoff = d.handoff
			}
			body.Messages = append(body.Messages, d.message(r.now()))
		}
	}
	body.Timing = r.timing(Execute, started)
	return t.stage(r.now(), Execute, Done, body)
}

// chainLimit bounds the turns in a row that ask for tools. A person may let a turn exceed the
// limit.
func (r *Runner) chainLimit(ctx context.Context, t *turn) error {
	most := t.agent.Chain.MaxToolTurns
	if most <= 0 {
		most = 10
	}
	if t.init.Chain <= most {
		return nil
	}
	f := Failure{Code: tga.MaxTurnsExceeded, Message: "the model asked for tools in " + decimal(t.init.Chain) + " consecutive turns; the limit is " + decimal(most)}
	_, err := r.settle(ctx, t, Execute, t.agent.plan(&f, 1, noRetries), parkedBody{Failure: f})
	return err
}

// tool returns the resolved tool of a requested call, nil if there is no such tool.
func (t *turn) tool(c message.ToolCall) *Tool {
	for i := range t.resolved.Tools {
		if t.resolved.Tools[i].Name == c.Name {
			return &t.resolved.Tools[i]
		}
	}
	return nil
}

func (t *turn) parallel(c message.ToolCall) bool {
	tool := t.tool(c)
	if tool == nil || tool.Delegation != nil && tool.Delegation.WithState {
		// If the delegate fails, its lender takes back every change since the delegation began,
		// and that would include the changes of calls beside it. Also, the delegate makes many
		// calls based on what it has read. To refuse all of them for a conflict at its end would
		// waste them. To merge each of them alone would lose updates unnoticed.
		return false
	}
	return tool.Parallel || tool.Delegation != nil && tool.Delegation.Type == Parallel
}

// group makes the calls from..to, at once if there is more than one. It asks a person about them
// only when all of them have come to rest.
func (r *Runner) group(ctx context.Context, t *turn, from, to int) ([]outcome, error) {
	out := make([]outcome, to-from)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() { out[i] = r.call(ctx, t, from+i) })
	}
	wg.Wait()
	for i := range out {
		o := &out[i]
		if o.err != nil {
			return nil, o.err
		}
		if o.park == nil {
			continue
		}
		of := subject(Execute, o.park.Subject, o.park.Failure.Code)
		if t.decision[of].Action == Retry {
			delete(t.decision, of) // the call has followed it, and failed again: see [toolCall.triesAgain]
		}
		d, err := r.settle(ctx, t, Execute, o.plan, *o.park)
		if err != nil {
			return nil, err
		}
		if d.Action == Fallback {
			o.exec.Status, o.exec.Output, o.exec.Failure = ToolSucceeded, text(d.Value), nil
		} // otherwise the model sees the failure
	}
	return out, nil
}

// handles says whether the agent has a handler of its own for a code.
func (a *Agent) handles(code tga.Code) bool {
	for _, h := range a.Handlers {
		if slices.Contains(h.Codes, code) {
			return true
		}
	}
	return false
}

// text returns a tool's answer as a model reads it: a JSON string as its text, other JSON as it
// is.
func text(value []byte) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

// effects lists the calls of a turn that failed before EXEC ended: their effects stand.
func (r *Runner) effects(ctx context.Context, t *turn) []ToolExecution {
	if t.inferred == nil {
		return nil
	}
	var out []ToolExecution
	for i := range t.inferred.Answer.Said.ToolCalls {
		out = append(out, t.delegations(ctx, r, i)...)
		for n := 1; ; n++ {
			id := derived(t.id(), "tool", i, n)
			call, err := r.store.Load(context.WithoutCancel(ctx), id)
			if err != nil || len(call.Entries) == 0 {
				break // no such attempt, or it cannot be read
			}
			res, err := r.rt.Result(ctx, id)
			if err != nil {
				break
			}
			e := t.execution(i, n, call.Entries[0].TS, call.Entries[len(call.Entries)-1].TS)
			e.TraceID, e.Output = id, text(res.Value)
			switch res.State {
			case tga.Completed:
				e.Status = ToolSucceeded
			case tga.Executing:
				e.Status, e.Failure = ToolTimedOut, &Failure{Code: tga.EffectInDoubt, Message: "the call may have run"}
			default:
				e.Status, e.Failure = ToolFailed, failureOf(res)
			}
			out = append(out, e)
		}
	}
	return out
}

// execution returns what the journal says of a try of a requested call.
func (t *turn) execution(index, try int, started, ended tga.Millis) ToolExecution {
	c := t.inferred.Answer.Said.ToolCalls[index]
	e := ToolExecution{
		CallID: c.ID, Name: c.Name, Input: c.Arguments, Retries: try - 1,
		Started: started.Time(), Ended: ended.Time(), DurationMS: int64(ended - started),
	}
	if tool := t.tool(c); tool != nil {
		e.Server, e.Remote, e.Source, e.Transport = tool.Server, tool.Remote, tool.Source.Type, tool.Transport
	}
	return e
}

// delegations lists the tries of a call that is a delegation, for the same turn: no other record
// leads from it to what the other agent did.
func (t *turn) delegations(ctx context.Context, r *Runner, index int) (out []ToolExecution) {
	ctx = context.WithoutCancel(ctx)
	for n := 1; ; n++ {
		child, err := r.fold(ctx, derived(t.id(), "delegation", index, n))
		if err != nil {
			return out // no such try, or it cannot be read
		}
		res, err := child.result(ctx, r)
		if err != nil {
			return out
		}
		last, err := r.fold(ctx, res.InteractionID)
		if err != nil {
			return out
		}
		e := t.execution(index, n, child.init.StartedAt, r.now())
		if last.ended != nil {
			e.Ended = last.ended.Timing.Ended
			e.DurationMS = e.Ended.Sub(e.Started).Milliseconds()
		}
		e.Status, e.Output = ToolSucceeded, res.Text
		if res.Status != Completed {
			e.Status, e.Failure = ToolFailed, &Failure{Code: tga.DelegationFailed, Message: "agent " + child.init.AgentName + " has not ended"}
			if res.Failure != nil {
				e.Failure.Message = "agent " + child.init.AgentName + ": " + res.Failure.Error()
			}
		}
		out = append(out, e)
	}
}
