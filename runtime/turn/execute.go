package turn

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// execute is EXEC (OSSA 0.2.9 §1 phase 5): each call that the model asked for is checked
// against its tool's schema and made as one governed call, in the order of the request; a
// run of calls whose tools say so, at once. Its record goes out with PERSIST's: until
// then a crash makes every call again, and those that have an effect are served.
func (r *Runner) execute(ctx context.Context, t *turn) error {
	started := r.opts.Runtime.Clock()
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

// chainLimit bounds the turns in a row that ask for tools. A person may let one pass.
func (r *Runner) chainLimit(ctx context.Context, t *turn) error {
	most := t.agent.Chain.MaxToolTurns
	if most <= 0 {
		most = 10
	}
	if t.init.Chain <= most {
		return nil
	}
	f := Failure{Code: tga.MaxTurnsExceeded, Message: "the model has asked for tools " + decimal(t.init.Chain) + " turns in a row; it may " + decimal(most) + " times"}
	_, err := r.settle(ctx, t, Execute, t.agent.plan(&f, 1, noRetries), parkedBody{Failure: f})
	return err
}

// tool returns the resolved tool of a requested call, nil for one that is not there.
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
		// Where the other fails, all is taken back that was done since it began. And it makes
		// many calls on what it has read: to refuse all of them for a conflict at its end would
		// waste them, to let each in alone would lose updates unseen.
		return false
	}
	return tool.Parallel || tool.Delegation != nil && tool.Delegation.Type == Parallel
}

// outcome is what became of one requested call.
type outcome struct {
	exec       ToolExecution
	plan       plan        // where it failed
	park       *parkedBody // where a person is to be asked
	delegation *DelegationTiming
	handoff    *message.Message
	err        error // of the turn, not of the call
}

// message is the call's result as the model gets it.
func (o *outcome) message(at tga.Millis) message.Message {
	if o.exec.Status == ToolSucceeded {
		return message.ToolAnswer(o.exec.CallID, []byte(o.exec.Output), false, at)
	}
	m := message.TextMessage(message.Tool, o.exec.Output, message.FromTool, at)
	m.ToolCallID = o.exec.CallID
	if o.exec.Status != ToolSucceeded {
		m.ToolError = true
		text := o.exec.Failure.Error()
		if o.exec.Output != "" {
			text += "\n" + o.exec.Output
		}
		m.Content[0].Text = text
	}
	return m
}

// group makes the calls from..to, at once where they are more than one. What a person must
// decide is asked when all of them have come to rest.
func (r *Runner) group(ctx context.Context, t *turn, from, to int) ([]outcome, error) {
	out := make([]outcome, to-from)
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() { out[i] = r.call(ctx, t, from+i) })
	}
	wg.Wait()
	for i := range out {
		for {
			o := &out[i]
			if o.err != nil {
				return nil, o.err
			}
			if o.park == nil {
				break
			}
			d, err := r.settle(ctx, t, Execute, o.plan, *o.park)
			if err != nil {
				return nil, err
			}
			switch d.Action {
			case Fallback:
				o.exec.Status, o.exec.Output, o.exec.Failure, o.park = ToolSucceeded, text(d.Value), nil, nil
			case Retry:
				// A limit that a person let it pass, or a failure to try once more: the ledger
				// still decides whether anything is sent.
				delete(t.decision, subject(Execute, o.park.Subject, o.park.Failure.Code))
				*o = r.call(ctx, t, from+i)
			default:
				o.park = nil // the model is told
			}
		}
	}
	return out, nil
}

// call makes one requested call, and again where the table and the ledger say so. It
// touches no record of the turn: calls of a group run at once.
func (r *Runner) call(ctx context.Context, t *turn, index int) outcome {
	c := t.inferred.Answer.Said.ToolCalls[index]
	o := outcome{exec: ToolExecution{CallID: c.ID, Name: c.Name, Input: c.Arguments, Started: r.opts.Runtime.Clock()}}
	r.tell(t, Execute, "tool", c.Name+" "+c.Arguments)
	tool := t.tool(c)
	args, f := r.arguments(t, tool, c, index)
	if tool != nil {
		o.exec.Server, o.exec.Remote, o.exec.Source, o.exec.Transport = tool.Server, tool.Remote, tool.Source.Type, tool.Transport
	}
	switch {
	case f != nil:
		o.fail(f)
		o.plan = r.toolPlan(t, tool, f, 1)
	case tool.Delegation != nil && !r.mayHandOver(t, tool, c, &o):
	case tool.Delegation != nil:
		r.delegate(ctx, t, tool, index, args, &o)
	default:
		r.governed(ctx, t, tool, index, args, &o)
	}
	if o.err == nil && o.exec.Failure != nil {
		r.after(tool, &o)
	}
	o.exec.Ended = r.opts.Runtime.Clock()
	o.exec.DurationMS = o.exec.Ended.Sub(o.exec.Started).Milliseconds()
	if o.err == nil && o.park == nil {
		r.tell(t, Execute, "result", c.Name+" "+string(o.exec.Status)+" "+clip.Bytes(o.exec.Output, 200))
	}
	return o
}

func (o *outcome) fail(f *Failure) {
	o.exec.Status, o.exec.Failure = ToolFailed, f
	if f.Code == tga.ToolTimeout || f.Code == tga.EffectInDoubt {
		o.exec.Status = ToolTimedOut
	}
}

// after does what is left to do about a call that failed for good.
func (r *Runner) after(tool *Tool, o *outcome) {
	f := o.exec.Failure
	switch o.plan.strategy {
	case Fallback:
		value := o.plan.fallback
		if value == nil && tool != nil {
			value = tool.Fallback
		}
		if value != nil {
			o.exec.Status, o.exec.Output, o.exec.Failure = ToolSucceeded, text(value), nil
		}
	case Escalate:
		if o.park == nil {
			o.park = &parkedBody{Failure: *f, Subject: o.exec.CallID}
		}
	case Abort:
		o.err = f
	}
}

// arguments checks what the model gave for arguments.
func (r *Runner) arguments(t *turn, tool *Tool, c message.ToolCall, index int) ([]byte, *Failure) {
	if tool == nil {
		return nil, &Failure{Code: tga.ToolError, Message: "there is no tool " + c.Name, Permanent: true}
	}
	if why := t.agent.Autonomy.refuses(tool); why != "" {
		return nil, &Failure{Code: tga.PolicyViolation, Message: tool.Name + " is not called: " + why, Permanent: true}
	}
	if most := t.agent.Constraints.MaxToolCalls; most > 0 && t.init.CallsBefore+index >= most {
		return nil, &Failure{Code: tga.QuotaExceeded, Message: "the agent may make " + decimal(most) + " calls for one message", Permanent: true}
	}
	text := []byte(c.Arguments)
	if len(text) == 0 {
		text = []byte("{}")
	}
	args, err := tga.Canonicalize(text, r.opts.Runtime.Limits)
	if err == nil && args[0] != '{' {
		err = tga.Errorf(tga.SchemaViolation, "arguments are an object")
	}
	if err == nil && r.opts.Resolver != nil {
		err = r.opts.Resolver.Validate(tool, args)
	}
	if err != nil {
		return nil, &Failure{Code: tga.SchemaViolation, Message: err.Error(), Err: err, Permanent: true}
	}
	return args, nil
}

// toolPlan is the table's word on a tool's failure. What the model asked for wrongly, or
// may not have, the model is told: it can ask for something else. Only the agent's own
// handlers end a turn for it.
func (r *Runner) toolPlan(t *turn, tool *Tool, f *Failure, n int) plan {
	retry := t.agent.Retry
	if tool != nil {
		retry = tool.Retry
	}
	p := t.agent.plan(f, n, retry)
	if p.strategy == Abort && !t.agent.handles(f.Code) {
		p.strategy = Skip
	}
	return p
}

// handles says whether the agent has a handler of its own for a code.
func (a *Agent) handles(code tga.Code) bool {
	for _, h := range a.Handlers {
		if has(h.Codes, code) {
			return true
		}
	}
	return false
}

// governed makes the governed call of a tool. A failure is tried again, as a new attempt,
// only where the ledger has it as a definite non-execution. A call that may have run is sent
// again, as the same call, only where its licence says so: see [Runner.again].
func (r *Runner) governed(ctx context.Context, t *turn, tool *Tool, index int, args []byte, o *outcome) {
	doubts := 0
	for n := 1; ; {
		o.exec.TraceID = derived(t.id(), "tool", index, n)
		o.exec.Retries = n - 1 + doubts
		w := &work{turn: t, tool: tool, index: index}
		res, err := r.attempt(ctx, t, w, o.exec.TraceID, args, n > 1)
		w.end()
		if err != nil {
			if !r.again(ctx, t, tool, res, err, doubts+1, o) {
				return
			}
			doubts++
		} else {
			if res.State == tga.Completed {
				r.completed(ctx, t, w, res, n, o)
				return
			}
			r.failed(t, tool, res, n, o)
			if o.plan.strategy != Retry {
				return
			}
			n++
		}
		r.tell(t, Execute, "retry", tool.Name+": "+o.exec.Failure.Error())
		if err := r.opts.Sleep(ctx, o.plan.wait); err != nil {
			o.err = r.ended(ctx, tga.ToolTimeout, err)
			return
		}
	}
}

// attempt makes the governed call of a trace, or goes on with it, in the tool's own time.
func (r *Runner) attempt(ctx context.Context, t *turn, w *work, trace tga.ID, args []byte, retry bool) (runtime.Result, error) {
	tool := w.tool
	if tool.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tool.Timeout)
		defer cancel()
	}
	return r.rt.Call(context.WithValue(untimed{ctx}, workKey{}, w), runtime.Request{
		TraceID: trace, Server: tool.Server, Tool: tool.Remote, Args: args, Key: toolKey(t.id(), w.index),
		PlanID: t.init.InvocationID, Risk: tool.Risk, Retry: retry, Submitter: t.init.AgentID,
		Intent: clip.Bytes("call "+tool.Name+" in turn "+t.id().String(), 1000),
	})
}

// completed takes up the answer of a call.
func (r *Runner) completed(ctx context.Context, t *turn, w *work, res runtime.Result, n int, o *outcome) {
	if o.err = r.learn(ctx, t, w); o.err != nil {
		return
	}
	o.succeed(res.Value)
	if res.Value == nil && res.ResultBytes > 0 {
		o.fail(&Failure{Code: tga.LimitExceeded, Message: fmt.Sprintf("the tool's answer of %d bytes is too long to keep; its effect stands", res.ResultBytes), Permanent: true})
		o.plan = plan{strategy: Skip}
	}
	if keys := t.merges.refused(w.index); keys != nil && o.exec.Status == ToolSucceeded {
		o.fail(refusal(keys))
		o.plan = r.toolPlan(t, w.tool, o.exec.Failure, n)
	}
}

// failed takes up the failure of a call that has ended.
func (r *Runner) failed(t *turn, tool *Tool, res runtime.Result, n int, o *outcome) {
	f := failureOf(res)
	f.RetryAfter = res.RetryAfter
	f.Permanent = f.Permanent || res.State == tga.Denied || !res.Class.Releases()
	o.fail(f)
	o.exec.Output = text(res.Value)
	o.plan = r.toolPlan(t, tool, f, n)
	if f.Code == tga.EffectInDoubt && o.plan.strategy == Escalate {
		// Somebody has given the call up: whoever was asked has answered. To ask again
		// would be to wait for ever.
		o.plan = plan{strategy: Skip}
	}
}

// unended sorts out a governed call that did not come to its end.
func (r *Runner) unended(ctx context.Context, t *turn, tool *Tool, res runtime.Result, err error, o *outcome) {
	code := tga.CodeOf(err)
	trace := o.exec.TraceID
	switch code {
	case tga.EffectInDoubt, tga.EscalationRequired:
		if ctx.Err() != nil {
			// The turn's time is over, or nobody waits any more and it stays as it is. The
			// call is in doubt either way.
			o.err = r.ended(ctx, tga.ToolTimeout, ctx.Err())
			return
		}
		f := &Failure{Code: code, Message: err.Error(), Err: err}
		o.fail(f)
		// Without a handler that says otherwise it waits: a model that is told "perhaps"
		// asks again, and that would be a second call.
		o.plan = t.agent.plan(f, 1, noRetries)
		if o.plan.strategy == Escalate {
			o.park = &parkedBody{Failure: *f, Subject: o.exec.CallID, TraceID: &trace}
		}
	case tga.StoreUnavailable, tga.StateLockAcquireFailed, tga.StateConcurrentExecution, tga.StateRecoveryFailed, tga.IdempotencyKeyInFlight, "":
		o.err = r.ended(ctx, tga.ToolTimeout, err)
	default:
		f := &Failure{Code: code, Message: err.Error(), Err: err, Permanent: true}
		o.fail(f)
		o.plan = r.toolPlan(t, tool, f, 1)
	}
}

// succeed takes a tool's answer. What is no JSON is text, and what is no text can't be
// handed on (OSSA 0.2.9 §1 phase 5 rule 3).
func (o *outcome) succeed(value []byte) {
	o.exec.Status, o.exec.Failure = ToolSucceeded, nil
	if !utf8.Valid(value) {
		o.fail(&Failure{Code: tga.ToolError, Message: "the tool's answer is neither JSON nor text; its effect stands", Permanent: true})
		o.plan = plan{strategy: Skip}
		return
	}
	o.exec.Output = text(value)
}

// text is a tool's answer as a model reads it: JSON as it is, a JSON string as its text.
func text(value []byte) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}

// effects lists the calls of a turn that failed in the middle of them: their effects stand.
func (r *Runner) effects(ctx context.Context, t *turn) []ToolExecution {
	if t.inferred == nil {
		return nil
	}
	var out []ToolExecution
	for i, c := range t.inferred.Answer.Said.ToolCalls {
		for n := 1; ; n++ {
			id := derived(t.id(), "tool", i, n)
			res, err := r.rt.Result(ctx, id)
			if err != nil {
				break // no such attempt, or nothing that can be said of it
			}
			e := ToolExecution{CallID: c.ID, Name: c.Name, Input: c.Arguments, TraceID: id, Retries: n - 1, Output: text(res.Value)}
			if tool := t.tool(c); tool != nil {
				e.Server, e.Remote, e.Source, e.Transport = tool.Server, tool.Remote, tool.Source.Type, tool.Transport
			}
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
