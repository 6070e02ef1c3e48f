package turn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// delegate hands a requested call to another agent, the delegate (OSSA 0.2.9 §5). The delegate's
// turns have journals of their own. Their ids follow from this turn's id, so after a crash on
// either side they are found again and no part is done twice.
func (c *toolCall) delegate(ctx context.Context, args []byte) {
	d := c.tool.Delegation
	timing := DelegationTiming{Type: d.Type, Target: d.Target, Started: c.r.wall()}
	c.delegation = &timing
	agent := c.r.agents[d.Target]
	var savepoint string
	for n := 1; ; n++ {
		timing.InteractionID = derived(c.t.id(), "delegation", c.index, n)
		c.exec.Retries = n - 1
		if d.WithState && savepoint == "" {
			if savepoint, c.err = c.t.tx.Checkpoint(); c.err != nil {
				return
			}
		}
		res, err := c.other(ctx, agent, timing.InteractionID, args)
		timing.Ended = c.r.wall()
		var f *Failure
		switch {
		case errors.As(err, &f):
		case err != nil:
			c.err = ended(ctx, tga.DelegationFailed, err)
			return
		case res.Status == Waiting:
			child := res.InteractionID
			c.fail(&Failure{Code: tga.EscalationRequired, Message: "agent " + d.Target + " waits: " + res.Waiting.Reason})
			c.park = &parkedBody{Failure: *c.exec.Failure, Subject: c.exec.CallID, Child: &child, Target: res.Waiting.Target}
			c.plan = plan{strategy: Escalate}
			return
		case res.Status == Completed:
			c.exec.Status, c.exec.Failure, c.exec.Output, timing.Failure = ToolSucceeded, nil, res.Text, nil
			if d.Type == Handoff {
				c.handoff = res.Message
			}
			return
		default:
			f = &Failure{Code: tga.DelegationFailed, Message: "agent " + d.Target + ": " + res.Failure.Error(), Err: res.Failure, Permanent: res.Failure.Permanent}
		}
		timing.Failure = f
		c.fail(f)
		if savepoint != "" {
			// The delegate failed, so its changes of the lent state are taken back.
			if c.err = c.t.tx.Rollback(savepoint); c.err != nil {
				return
			}
		}
		if f.Code == tga.QuotaExceeded && !c.t.agent.handles(f.Code) {
			c.plan = plan{strategy: Skip} // the model is told: a person cannot raise this limit
			return
		}
		c.plan = c.t.agent.plan(f, n, c.tool.Retry)
		if !c.t.agent.handles(f.Code) {
			c.plan.strategy = cmp.Or(d.OnFailure, Escalate)
			if c.plan.strategy == Retry && (f.Permanent || n > max(c.tool.Retry.MaxRetries, 1)) {
				c.plan.strategy = Escalate
			}
		}
		if c.stands, c.err = c.standing(ctx, timing.InteractionID); c.err != nil {
			return
		}
		if c.stands && c.plan.strategy == Retry {
			// The delegate's calls have happened. Another try would make them again under other
			// keys.
			c.plan.strategy = Escalate
			f.Message += "; its effects stand, so it is not tried again"
		}
		if !c.triesAgain() {
			return
		}
		c.r.tell(c.t, Execute, "retry", c.tool.Name+": "+f.Error())
		if err := c.r.sleep(ctx, c.tool.Retry.wait(n)); err != nil {
			c.err = ended(ctx, tga.DelegationFailed, err)
			return
		}
	}
}

// other runs the delegate, or goes on with it. agent is nil if its manifest is not loaded: that fails
// a delegation that has not begun, and says nothing about one that has.
func (c *toolCall) other(ctx context.Context, agent *Agent, id tga.ID, args []byte) (Result, error) {
	lender := c.lender()
	var done []state.Op // operations of the delegate's turns that ended before a crash
	next := id
	for {
		child, err := c.r.fold(ctx, next)
		if errors.Is(err, tga.NotFound) && next == id {
			if agent == nil {
				return Result{}, &Failure{Code: tga.DelegationFailed, Message: "there is no agent " + c.tool.Delegation.Target, Permanent: true}
			}
			c.r.delegating.Lock()
			begun, err := c.handOver(ctx, agent, id, args)
			c.r.delegating.Unlock()
			if err != nil {
				return Result{}, err
			}
			return c.r.drive(ctx, begun)
		}
		if err != nil {
			return Result{}, err
		}
		if child.ended == nil {
			if child, err = c.r.open(ctx, next); err != nil {
				return Result{}, err
			}
			if child.ended != nil { // another goroutine or process has resumed it
				c.r.release(child)
				continue
			}
			if lender != nil {
				if err := c.repeat(ctx, child, done); err != nil {
					c.r.release(child)
					return Result{}, err
				}
			}
			child.caller = lender
			return c.r.drive(ctx, child)
		}
		if child.ended.Next == nil {
			if lender != nil && child.failed == nil && !c.t.returned[id] {
				// Somebody else has ended it after the lent state was put together.
				if err := c.repeat(ctx, child, done); err != nil {
					return Result{}, err
				}
			}
			return child.result(ctx, c.r)
		}
		if done, err = c.r.opsOf(ctx, child, done); err != nil {
			return Result{}, err
		}
		next = *child.ended.Next
	}
}

// repeat applies to the lent state what the delegate's earlier turns did, and this turn if it has
// executed. It is called once in a delegation.
func (c *toolCall) repeat(ctx context.Context, child *turn, done []state.Op) (err error) {
	if child.executed != nil {
		if done, err = c.r.opsOf(ctx, child, done); err != nil {
			return err
		}
	}
	return c.t.tx.Apply(done)
}

// lender returns the turn whose state the delegate works on, nil for none.
func (c *toolCall) lender() *turn {
	if !c.tool.Delegation.WithState {
		return nil
	}
	return c.t
}

// redo is for a turn that goes on after a crash. In the turn's transaction, it repeats the
// recorded changes of its tools and of the agents it lent its state to. A delegate that has not
// ended repeats its own changes when it goes on.
func (r *Runner) redo(ctx context.Context, t *turn) error {
	ops, err := r.opsOf(ctx, t, nil)
	if err != nil {
		return err
	}
	t.ops = nil
	if err := t.tx.Apply(ops); err != nil {
		return stateFailure(ctx, err)
	}
	return nil
}

// handed returns the arguments of a delegation as the delegate reads them: the message, and after
// it the other arguments, above all the context that the tool asks the model for.
func handed(args []byte) string {
	var in map[string]json.RawMessage
	var text string
	if json.Unmarshal(args, &in) != nil || json.Unmarshal(in["message"], &text) != nil || text == "" {
		return string(args)
	}
	delete(in, "message")
	if len(in) == 0 {
		return text
	}
	rest, err := json.Marshal(in)
	if err != nil {
		return string(args)
	}
	return text + "\n\n" + string(rest)
}

// handOver begins the delegate's first turn, with the context that the delegation gives it.
func (c *toolCall) handOver(ctx context.Context, agent *Agent, id tga.ID, args []byte) (*turn, error) {
	d := c.tool.Delegation
	counted, err := c.countDelegation(ctx, id)
	if err != nil {
		return nil, err
	}
	b := beginning{
		root: c.t.init.Root, depthLeft: c.t.init.DepthLeft - 1, counted: counted,
		agent: agent, id: id, span: c.t.init.SpanContext, source: message.FromDelegation, chain: 1,
		parent: &Parent{AgentID: c.t.init.AgentID, InteractionID: c.t.id()}, until: c.t.deadline(c.r.now()), lender: c.lender(), tidies: c.t.tidies,
	}
	if !d.NoSession {
		b.session = c.t.init.SessionID
	}
	if d.Timeout > 0 {
		b.until = earlier(b.until, tga.MillisOf(c.r.wall().Add(d.Timeout)))
	}
	if d.WithHistory {
		history, err := c.r.history(ctx, c.t)
		if err != nil {
			return nil, err
		}
		for _, m := range append(history, c.t.normalized.Messages...) {
			// Leave out calls and their results: the delegate has nothing to answer there.
			if (m.Role == message.User || m.Role == message.Assistant) && m.Plain() != "" {
				m.ToolCalls = nil
				b.given = append(b.given, m)
			}
		}
	}
	b.given = append(b.given, message.TextMessage(message.User, handed(args), message.FromDelegation, c.r.now()))
	if len(d.Context) > 0 {
		raw, err := json.Marshal(d.Context)
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "custom context of the delegation to %s: %w", d.Target, err)
		}
		b.context = raw
	}
	return c.r.begin(ctx, b)
}

// standing says that a call happened or may have happened that was made in the invocation which
// begins with a turn, by its agent or by those that it handed work to. It reads the calls
// themselves: the record of a turn does not have those of other agents.
func (c *toolCall) standing(ctx context.Context, id tga.ID) (bool, error) {
	for {
		t, err := c.r.fold(ctx, id)
		if errors.Is(err, tga.NotFound) {
			return false, nil // the delegation was refused before it began
		}
		if err != nil {
			return false, err
		}
		if yes, err := c.standingOf(ctx, t); yes || err != nil || t.ended == nil || t.ended.Next == nil {
			return yes, err
		}
		id = *t.ended.Next
	}
}

// standingOf says the same of the calls that one turn asked for.
func (c *toolCall) standingOf(ctx context.Context, t *turn) (bool, error) {
	if t.inferred == nil {
		return false, nil
	}
	for i := range t.inferred.Answer.Said.ToolCalls {
		for n := 1; ; n++ {
			res, err := c.r.rt.Result(ctx, derived(t.id(), "tool", i, n))
			if errors.Is(err, tga.NotFound) {
				break
			}
			if err != nil || mayHaveRun(res) {
				return true, err
			}
		}
		for n := 1; ; n++ {
			child := derived(t.id(), "delegation", i, n)
			first, err := c.r.store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(child, 1))
			if err != nil {
				return false, err
			}
			if first == nil {
				break
			}
			if yes, err := c.standing(ctx, child); yes || err != nil {
				return yes, err
			}
		}
	}
	return false, nil
}

// mayHaveRun says that a call happened, or nobody knows that it did not. A tool that said that it
// failed has done nothing, unless it is known to have done a part.
func mayHaveRun(res runtime.Result) bool {
	switch {
	case res.State != tga.Failed:
		return res.State == tga.Executing || res.State == tga.Completed
	case res.ErrorCode == tga.EffectInDoubt || res.ErrorCode == tga.ToolTimeout: // given up, or cut off
		return res.Sent > 0
	}
	return res.Class == ledger.ClassCompensatable
}

// countDelegation bounds how deep delegations nest, and how many one message leads to in all. The
// count is a stream of the invocation that the message began. The stream's next item is committed
// with the beginning of the turn that it counts. The caller holds r.delegating and the lease of a
// turn of the invocation. In a store that processes share, an invocation's agents that run in two
// processes at once may be given the same number, and then one delegation more than the limit.
func (c *toolCall) countDelegation(ctx context.Context, id tga.ID) ([]chain.Attachment, error) {
	if c.t.init.DepthLeft <= 0 {
		return nil, &Failure{Code: tga.QuotaExceeded, Message: "the maximum depth of delegations is reached", Permanent: true}
	}
	stream := keyspace.TurnStream("delegations", c.t.init.Root.String())
	last, err := newest(ctx, c.r.store, stream)
	if err != nil {
		return nil, err
	}
	if int(last) >= c.r.opts.MaxDelegations {
		return nil, &Failure{Code: tga.QuotaExceeded, Message: "the limit of " + decimal(c.r.opts.MaxDelegations) + " delegations per message is reached", Permanent: true}
	}
	return []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, uint64(last)+1), Value: id[:]}}, nil
}
