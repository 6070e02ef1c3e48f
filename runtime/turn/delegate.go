package turn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime/turn/message"
	"github.com/tgad/tgad/runtime/turn/state"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// delegate hands a requested call to another agent (OSSA 0.2.9 §5). The other's turns have
// journals of their own and ids that follow from this turn's, so a crash on either side
// finds them again and no part is done twice.
func (r *Runner) delegate(ctx context.Context, t *turn, tool *Tool, index int, args []byte, o *outcome) {
	d := tool.Delegation
	timing := DelegationTiming{Type: d.Type, Target: d.Target, Started: r.opts.Runtime.Clock()}
	o.delegation = &timing
	agent := r.agents[d.Target]
	var savepoint string
	for n := 1; ; n++ {
		timing.InteractionID = derived(t.id(), "delegation", index, n)
		o.exec.Retries = n - 1
		var res Result
		err := error(&Failure{Code: tga.DelegationFailed, Message: "there is no agent " + d.Target, Permanent: true})
		if agent != nil {
			if d.WithState && savepoint == "" {
				if savepoint, err = t.tx.Checkpoint(); err != nil {
					o.err = err
					return
				}
			}
			res, err = r.other(ctx, t, d, agent, timing.InteractionID, args)
		}
		timing.Ended = r.opts.Runtime.Clock()
		var f *Failure
		switch {
		case errors.As(err, &f):
		case err != nil:
			o.err = r.ended(ctx, tga.DelegationFailed, err)
			return
		case res.Status == Waiting:
			child := res.InteractionID
			o.fail(&Failure{Code: tga.EscalationRequired, Message: "agent " + d.Target + " waits: " + res.Waiting.Reason})
			o.park = &parkedBody{Failure: *o.exec.Failure, Subject: o.exec.CallID, Child: &child, Target: res.Waiting.Target}
			o.plan = plan{strategy: Escalate}
			return
		case res.Status == Completed:
			o.exec.Status, o.exec.Failure, o.exec.Output, timing.Failure = ToolSucceeded, nil, res.Text, nil
			if d.Type == Handoff {
				o.handoff = res.Message
			}
			return
		default:
			f = &Failure{Code: tga.DelegationFailed, Message: "agent " + d.Target + ": " + res.Failure.Error(), Err: res.Failure, Permanent: res.Failure.Permanent}
		}
		timing.Failure = f
		o.fail(f)
		if savepoint != "" {
			// What the other did to the state it was lent goes with its failure.
			if o.err = t.tx.Rollback(savepoint); o.err != nil {
				return
			}
		}
		if f.Code == tga.QuotaExceeded && !t.agent.handles(f.Code) {
			o.plan = plan{strategy: Skip} // the model is told: nobody can let it have more
			return
		}
		o.plan = t.agent.plan(f, n, tool.Retry)
		if !t.agent.handles(f.Code) {
			switch o.plan.strategy = cmp.Or(d.OnFailure, Escalate); {
			case d.OnFailure != Retry:
			case f.Permanent || n > max(tool.Retry.MaxRetries, 1):
				o.plan.strategy = Escalate
			case len(standing(res.Effects)) > 0:
				// Its calls have happened: another try would make them again under other keys.
				o.plan.strategy = Escalate
				f.Message += "; its effects stand, so it is not tried again"
			}
		}
		if o.plan.strategy != Retry {
			return
		}
		r.tell(t, Execute, "retry", tool.Name+": "+f.Error())
		if err := r.opts.Sleep(ctx, tool.Retry.wait(n)); err != nil {
			o.err = r.ended(ctx, tga.DelegationFailed, err)
			return
		}
	}
}

// other runs the other agent, or goes on with it.
func (r *Runner) other(ctx context.Context, t *turn, d *Delegation, agent *Agent, id tga.ID, args []byte) (Result, error) {
	lender := t
	if !d.WithState {
		lender = nil
	}
	var done []state.Op // of its turns that ended before a crash
	next := id
	for {
		child, err := r.fold(ctx, next)
		if errors.Is(err, tga.NotFound) && next == id {
			r.delegating.Lock()
			begun, err := r.handOver(ctx, t, d, agent, id, args, lender)
			r.delegating.Unlock()
			if err != nil {
				return Result{}, err
			}
			return r.drive(ctx, begun)
		}
		if err != nil {
			return Result{}, err
		}
		if child.ended == nil {
			if lender != nil {
				if child.executed != nil { // all but its EMIT is done
					if done, err = r.opsOf(ctx, child, done); err != nil {
						return Result{}, err
					}
				}
				if err := t.tx.Apply(done); err != nil {
					return Result{}, err
				}
			}
			if child, err = r.open(ctx, next); err != nil {
				return Result{}, err
			}
			if child.ended != nil { // somebody else has resumed it
				r.release(child)
				continue
			}
			child.caller = lender
			return r.drive(ctx, child)
		}
		if child.ended.Next == nil {
			return r.result(ctx, child)
		}
		if done, err = r.opsOf(ctx, child, done); err != nil {
			return Result{}, err
		}
		next = *child.ended.Next
	}
}

// redo repeats, in the transaction of a turn that goes on after a crash, what its tools and
// the agents it lent its state to are known to have done. An agent that has not ended
// repeats its own when its turn comes.
func (r *Runner) redo(ctx context.Context, t *turn) error {
	ops, err := r.opsOf(ctx, t, nil)
	if err != nil {
		return err
	}
	t.ops = nil
	if err := t.tx.Apply(ops); err != nil {
		return &Failure{Code: tga.GenericStateError, Message: err.Error(), Err: err}
	}
	return nil
}

// opsOf adds what was done to a turn's state by its tools, and by agents whose work for it
// came to a good end.
func (r *Runner) opsOf(ctx context.Context, t *turn, to []state.Op) ([]state.Op, error) {
	for _, o := range t.ops {
		to = append(to, o.Ops...)
	}
	if t.inferred == nil {
		return to, nil
	}
	for i, c := range t.inferred.Answer.Said.ToolCalls {
		tool := t.tool(c)
		if tool == nil || tool.Delegation == nil || !tool.Delegation.WithState {
			continue
		}
		var last []state.Op
		for n := 1; ; n++ {
			ops, good, err := r.opsOfChain(ctx, derived(t.id(), "delegation", i, n))
			if errors.Is(err, tga.NotFound) {
				break
			}
			if err != nil {
				return nil, err
			}
			if last = nil; good { // an earlier try failed, and was rolled back
				last = ops
			}
		}
		to = append(to, last...)
	}
	return to, nil
}

// opsOfChain collects from a chain of turns; good is false where it failed or goes on.
func (r *Runner) opsOfChain(ctx context.Context, id tga.ID) (ops []state.Op, good bool, err error) {
	for {
		t, err := r.fold(ctx, id)
		if err != nil {
			return nil, false, err
		}
		if t.ended == nil || t.failed != nil {
			return nil, false, nil
		}
		if ops, err = r.opsOf(ctx, t, ops); err != nil {
			return nil, false, err
		}
		if t.ended.Next == nil {
			return ops, true, nil
		}
		id = *t.ended.Next
	}
}

// handOver begins the other agent's first turn with what it is to know.
func (r *Runner) handOver(ctx context.Context, t *turn, d *Delegation, agent *Agent, id tga.ID, args []byte, lender *turn) (*turn, error) {
	var in struct {
		Message string `json:"message"`
	}
	text := string(args)
	if json.Unmarshal(args, &in) == nil && in.Message != "" {
		text = in.Message
	}
	counted, err := r.countDelegation(ctx, t, id)
	if err != nil {
		return nil, err
	}
	b := beginning{
		root: t.init.Root, depthLeft: t.init.DepthLeft - 1, counted: counted,
		agent: agent, id: id, span: t.init.SpanContext, source: message.FromDelegation, chain: 1,
		parent: &Parent{AgentID: t.init.AgentID, InteractionID: t.id()}, until: t.deadline(r.now()), lender: lender, tidies: t.tidies,
	}
	if !d.NoSession {
		b.session = t.init.SessionID
	}
	if d.Timeout > 0 {
		b.until = earlier(b.until, tga.MillisOf(r.opts.Runtime.Clock().Add(d.Timeout)))
	}
	if d.WithHistory {
		history, err := r.history(ctx, t)
		if err != nil {
			return nil, err
		}
		for _, m := range append(history, t.normalized.Messages...) {
			// Calls and their results are not the other's to answer.
			if (m.Role == message.User || m.Role == message.Assistant) && m.Plain() != "" {
				m.ToolCalls = nil
				b.given = append(b.given, m)
			}
		}
	}
	b.given = append(b.given, message.TextMessage(message.User, text, message.FromDelegation, r.now()))
	if len(d.Context) > 0 {
		raw, err := json.Marshal(d.Context)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "custom context of the delegation to %s: %w", d.Target, err)
		}
		b.context = raw
	}
	return r.begin(ctx, b)
}

// standing returns the calls that have happened or may have.
func standing(all []ToolExecution) []ToolExecution {
	var out []ToolExecution
	for _, e := range all {
		if e.Status != ToolFailed || e.Failure != nil && e.Failure.Code == tga.StateConflict {
			out = append(out, e)
		}
	}
	return out
}

// countDelegation bounds delegations: how deep they are, and how many one message leads to in
// all. The count is a stream of the invocation that the message began; its next item is
// committed with the beginning of the turn that it counts. The caller holds r.delegating, and
// no other process has the store, so no two delegations get one number.
func (r *Runner) countDelegation(ctx context.Context, t *turn, id tga.ID) ([]chain.Attachment, error) {
	if t.init.DepthLeft <= 0 {
		return nil, &Failure{Code: tga.QuotaExceeded, Message: "work may not be handed on any deeper", Permanent: true}
	}
	stream := keyspace.TurnStream("delegations", t.init.Root.String())
	last, err := newest(ctx, r.store, stream)
	if err != nil {
		return nil, err
	}
	if int(last) >= r.opts.MaxDelegations {
		return nil, &Failure{Code: tga.QuotaExceeded, Message: "one message may lead to " + decimal(r.opts.MaxDelegations) + " delegations, and has", Permanent: true}
	}
	return []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, uint64(last)+1), Value: id[:]}}, nil
}
