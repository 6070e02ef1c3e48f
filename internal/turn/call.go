package turn

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// outcome is what became of one requested call.
type outcome struct {
	exec       ToolExecution
	plan       plan        // what to do about the failure, if it failed
	park       *parkedBody // the question to a person; nil = none
	delegation *DelegationTiming
	handoff    *message.Message
	stands     bool  // it failed, and something that it did stands or may stand: it is not made again
	err        error // an error of the turn, not of the call
}

// message returns the call's result as the model gets it.
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

// toolCall is one call that the model asked for, while EXEC makes it. It stages no record of the
// turn, because the calls of a group run at once.
type toolCall struct {
	r     *Runner
	t     *turn
	index int // among the calls of the answer
	asked message.ToolCall
	tool  *Tool            // nil if no tool has the name
	used  map[tga.Code]int // decisions of a person to try again that it has followed, by code
	outcome
}

// call makes one requested call, and repeats it when the table of strategies and the ledger
// permit that.
func (r *Runner) call(ctx context.Context, t *turn, index int) outcome {
	asked := t.inferred.Answer.Said.ToolCalls[index]
	c := &toolCall{r: r, t: t, index: index, asked: asked, tool: t.tool(asked), used: map[tga.Code]int{}, outcome: outcome{
		exec: ToolExecution{CallID: asked.ID, Name: asked.Name, Input: asked.Arguments, Started: r.wall()},
	}}
	r.tell(t, Execute, "tool", asked.Name+" "+asked.Arguments)
	c.make(ctx)
	if c.err == nil && c.exec.Failure != nil {
		c.after()
	}
	c.exec.Ended = r.wall()
	c.exec.DurationMS = c.exec.Ended.Sub(c.exec.Started).Milliseconds()
	if c.err == nil && c.park == nil {
		r.tell(t, Execute, "result", asked.Name+" "+string(c.exec.Status)+" "+clip.Bytes(c.exec.Output, 200))
	}
	return c.outcome
}

// make makes the call if it is permitted.
func (c *toolCall) make(ctx context.Context) {
	args, f := c.arguments()
	if c.tool != nil {
		c.exec.Server, c.exec.Remote, c.exec.Source, c.exec.Transport = c.tool.Server, c.tool.Remote, c.tool.Source.Type, c.tool.Transport
	}
	switch {
	case f != nil:
		c.fail(f)
		c.plan = c.planFor(f, 1)
	case c.tool.Delegation == nil:
		c.governed(ctx, args)
	case c.mayHandOver():
		c.delegate(ctx, args)
	}
}

func (o *outcome) fail(f *Failure) {
	o.exec.Status, o.exec.Failure = ToolFailed, f
	if f.Code == tga.ToolTimeout || f.Code == tga.EffectInDoubt {
		o.exec.Status = ToolTimedOut
	}
}

// succeed takes a tool's answer. An answer that is not JSON is taken as text. An answer that is
// not text either cannot be handed on (OSSA 0.2.9 §1 phase 5 rule 3).
func (o *outcome) succeed(value []byte) {
	o.exec.Status, o.exec.Failure = ToolSucceeded, nil
	if !utf8.Valid(value) {
		o.fail(&Failure{Code: tga.ToolError, Message: "the tool's answer is neither JSON nor text; its effect stands", Permanent: true})
		o.plan = plan{strategy: Skip}
		return
	}
	o.exec.Output = text(value)
}

// after applies the strategy for a call that failed for good.
func (c *toolCall) after() {
	f := c.exec.Failure
	switch c.plan.strategy {
	case Fallback:
		value := c.plan.fallback
		if value == nil && c.tool != nil {
			value = c.tool.Fallback
		}
		if value != nil {
			c.exec.Status, c.exec.Output, c.exec.Failure = ToolSucceeded, text(value), nil
		}
	case Escalate:
		if c.park == nil {
			c.park = &parkedBody{Failure: *f, Subject: c.exec.CallID}
			if c.stands {
				c.park.Failure.Details = map[string]any{effectStands: true}
			}
		}
	case Abort:
		c.err = f
	}
}

// effectStands marks a failure about which a person may decide anything but to try again.
const effectStands = "effect_stands"

// triesAgain says that the failed call is made again: the strategy says so, or a person has decided
// so. A turn that goes on after a crash makes its calls from the first attempt on and is served
// what is recorded, so it follows the same decisions at the same attempts.
func (c *toolCall) triesAgain() bool {
	if c.plan.strategy == Escalate && !c.stands && c.granted(c.exec.Failure.Code) {
		c.plan = plan{strategy: Retry}
	}
	return c.plan.strategy == Retry
}

// granted uses up one decision of a person to try the call again after a failure with this code,
// or to let it exceed a limit. It returns false if none is left.
func (c *toolCall) granted(code tga.Code) bool {
	if c.used[code] >= c.t.retries[subject(Execute, c.asked.ID, code)] {
		return false
	}
	c.used[code]++
	return true
}

// arguments checks the arguments that the model gave, and whether the call is permitted at all.
// It returns them in canonical form.
func (c *toolCall) arguments() ([]byte, *Failure) {
	if c.tool == nil {
		return nil, &Failure{Code: tga.ToolError, Message: "there is no tool " + c.asked.Name, Permanent: true}
	}
	if answer := c.t.inferred.Answer; answer.Finish == FinishLength && c.index == len(answer.Said.ToolCalls)-1 {
		// What there is of the arguments may be an object all the same: none is taken for an empty one.
		return nil, &Failure{Code: tga.SchemaViolation, Message: c.tool.Name + " is not called: the answer was cut off at its limit of tokens, and may have more arguments", Permanent: true}
	}
	if why := c.t.agent.Autonomy.refuses(c.tool); why != "" {
		return nil, &Failure{Code: tga.PolicyViolation, Message: c.tool.Name + " is not called: " + why, Permanent: true}
	}
	if most := c.t.agent.Constraints.MaxToolCalls; most > 0 && c.t.init.CallsBefore+c.index >= most && !c.granted(tga.QuotaExceeded) {
		return nil, &Failure{Code: tga.QuotaExceeded, Message: "the agent may make " + decimal(most) + " calls for one message", Permanent: true}
	}
	text := []byte(c.asked.Arguments)
	if len(text) == 0 {
		text = []byte("{}")
	}
	args, err := tga.Canonicalize(text, c.r.opts.Runtime.Limits)
	if err == nil && args[0] != '{' {
		err = tga.Errorf(tga.SchemaViolation, "arguments are an object")
	}
	if err == nil && c.r.opts.Resolver != nil {
		err = c.r.opts.Resolver.Validate(c.tool, args)
	}
	if err != nil {
		return nil, &Failure{Code: tga.SchemaViolation, Message: err.Error(), Err: err, Permanent: true}
	}
	return args, nil
}

// planFor returns the strategy for a tool's failure. If the model asked for something wrong or
// forbidden, it is told: it can ask for something else. Such a failure ends the turn only if one
// of the agent's own handlers says so.
func (c *toolCall) planFor(f *Failure, n int) plan {
	retry := c.t.agent.Retry
	if c.tool != nil {
		retry = c.tool.Retry
	}
	p := c.r.plan(c.t, f, n, retry)
	if p.strategy == Abort && !c.t.agent.handles(f.Code) {
		p.strategy = Skip
	}
	return p
}

// governed makes the governed call of a tool. It tries a failure again, as a new attempt, only if
// the ledger has a definite non-execution. It sends a call that may have run again, as the same
// call, only if its licence permits that: see [toolCall.again].
func (c *toolCall) governed(ctx context.Context, args []byte) {
	doubts := 0
	for n := 1; ; {
		c.exec.TraceID = derived(c.t.id(), "tool", c.index, n)
		c.exec.Retries = n - 1 + doubts
		w := &work{turn: c.t, tool: c.tool, index: c.index}
		res, err := c.attempt(ctx, w, args, n > 1)
		w.end()
		if err != nil {
			if !c.again(ctx, err, doubts+1) {
				return
			}
			doubts++
		} else {
			if res.State == tga.Completed {
				c.completed(ctx, res, w, n)
				return
			}
			c.failed(res, n)
			if !c.triesAgain() {
				return
			}
			n++
		}
		c.r.tell(c.t, Execute, "retry", c.tool.Name+": "+c.exec.Failure.Error())
		if err := c.r.sleep(ctx, c.plan.wait); err != nil {
			c.err = ended(ctx, tga.ToolTimeout, err)
			return
		}
	}
}

// attempt makes the governed call of a trace, or goes on with it, within the tool's time-out.
func (c *toolCall) attempt(ctx context.Context, w *work, args []byte, retry bool) (runtime.Result, error) {
	if c.tool.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.tool.Timeout)
		defer cancel()
	}
	ctx = c.r.place(ctx, c.t, Part{ToolCall: c.asked.ID})
	return c.r.rt.Call(context.WithValue(untimed{ctx}, workKey{}, w), runtime.Request{
		TraceID: c.exec.TraceID, Server: c.tool.Server, Tool: c.tool.Remote, Args: args, Key: toolKey(c.t.id(), w.index),
		PlanID: c.t.init.InvocationID, Risk: c.tool.Risk, Retry: retry, Submitter: c.t.init.AgentID,
		Intent: clip.Bytes("call "+c.tool.Name+" in turn "+c.t.id().String(), 1000),
	})
}

// completed handles the answer of a call.
func (c *toolCall) completed(ctx context.Context, res runtime.Result, w *work, n int) {
	if c.err = c.r.learn(ctx, c.t, w); c.err != nil {
		return
	}
	c.succeed(res.Value)
	if res.Value == nil && res.ResultBytes > 0 {
		c.fail(&Failure{Code: tga.LimitExceeded, Message: fmt.Sprintf("the tool's answer of %d bytes is too long to keep; its effect stands", res.ResultBytes), Permanent: true})
		c.plan = plan{strategy: Skip}
	}
	if keys := c.t.merges.refused(w.index); keys != nil && c.exec.Status == ToolSucceeded {
		c.fail(refusal(keys))
		c.plan = c.planFor(c.exec.Failure, n)
	}
}

// failed handles the failure of a call that has ended.
func (c *toolCall) failed(res runtime.Result, n int) {
	f := failureOf(res)
	f.RetryAfter = res.RetryAfter
	c.stands = res.State != tga.Denied && !res.Class.Releases()
	f.Permanent = f.Permanent || res.State == tga.Denied || c.stands
	c.fail(f)
	c.exec.Output = text(res.Value)
	c.plan = c.planFor(f, n)
	if f.Code == tga.EffectInDoubt && c.plan.strategy == Escalate {
		// A person has given the call up, so the person who would be asked has answered. Asking
		// again would wait for ever.
		c.plan = plan{strategy: Skip}
	}
}

// unended handles a governed call that did not end.
func (c *toolCall) unended(ctx context.Context, err error) {
	code := tga.CodeOf(err)
	trace := c.exec.TraceID
	switch code {
	case tga.EffectInDoubt, tga.EscalationRequired:
		if ctx.Err() != nil {
			// The turn's time is over, or its caller has left and the turn stays as it is. The
			// call is in doubt either way.
			c.err = ended(ctx, tga.ToolTimeout, ctx.Err())
			return
		}
		f := &Failure{Code: code, Message: err.Error(), Err: err}
		c.fail(f)
		// Unless a handler says otherwise, the turn waits. A model that is told "perhaps" asks
		// again, and that would be a second call.
		c.plan = c.t.agent.plan(f, 1, noRetries)
		if c.plan.strategy == Escalate {
			c.park = &parkedBody{Failure: *f, Subject: c.exec.CallID, TraceID: &trace}
		}
	case tga.StoreUnavailable, tga.StateLockAcquireFailed, tga.StateConcurrentExecution, tga.StateRecoveryFailed, tga.IdempotencyKeyInFlight, "":
		c.err = ended(ctx, tga.ToolTimeout, err)
	default:
		f := &Failure{Code: code, Message: err.Error(), Err: err, Permanent: true}
		c.fail(f)
		c.plan = c.planFor(f, 1)
	}
}
