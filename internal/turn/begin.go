package turn

import (
	"bytes"
	"context"
	"errors"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// begin stages INIT and NORM of a turn and makes both durable (OSSA 0.2.9 §1 phases 1, 2).
func (r *Runner) begin(ctx context.Context, b beginning) (*turn, error) {
	t, s, err := r.prepare(ctx, b)
	if err != nil {
		return nil, err
	}
	defer r.store.Release(s.lease)
	if err := t.j.commit(ctx, append(b.counted, t.item(false), opened(t.id()))...); err != nil {
		r.store.Release(t.j.lease)
		return nil, err
	}
	return t, nil
}

// prepare stages INIT and NORM. The caller commits them under the session's lease, and then
// releases that lease.
func (r *Runner) prepare(ctx context.Context, b beginning) (*turn, *session, error) {
	init := b.record(&r.opts, r.pod, r.wall())
	if n := len(init.ScopeID); n > state.MaxKey {
		err := tga.Errorf(tga.LimitExceeded, "the names of agent and session have %d bytes together: the limit is %d", n-1, state.MaxKey-1).At("/session_id")
		return nil, nil, &Failure{Code: tga.LimitExceeded, Message: err.Message, Err: err, Permanent: true}
	}
	lease, err := r.store.Acquire(ctx, b.id)
	if err != nil {
		return nil, nil, err
	}
	// Look only once the lease is held. Otherwise two simultaneous requests for the same turn
	// would begin it twice, and the second would overwrite the journal of the first.
	if there, err := r.store.Attachment(ctx, chain.AttachStream, keyspace.StreamKey(b.id, 1)); err != nil || there != nil {
		r.store.Release(lease)
		return nil, nil, errors.Join(err, begun(there))
	}
	s, err := enter(ctx, r.store, b.agent, init.SessionID)
	if err != nil {
		r.store.Release(lease)
		return nil, nil, err
	}
	init.TurnNumber, init.TokensBefore = s.last+1, s.tokens
	if p := b.previous; p != nil && b.agent.Constraints.MaxTokens > 0 {
		init.TokensBefore += p.usage().Total // p ends in the same batch
	}
	t := &turn{agent: b.agent, j: &journal{store: r.store, lease: lease, id: b.id}, decision: map[string]decidedBody{}, retries: map[string]int{}, returned: map[tga.ID]bool{}, tidies: b.tidies, caller: b.lender}
	err = r.initAndNormalize(t, init)
	if err != nil {
		r.store.Release(s.lease)
		r.store.Release(lease)
		return nil, nil, err
	}
	return t, s, nil
}

// errBegun says that another request has already begun the turn.
var errBegun = errors.New("the turn has begun")

func begun(record []byte) error {
	if record == nil {
		return nil
	}
	return errBegun
}

// initAndNormalize stages INIT and NORM (OSSA 0.2.9 §1 phases 1, 2), which are committed
// together. It makes NORM first: content that a filter removes from the input must not be in
// INIT's record either. Input that is not a message is refused and nothing is written. Input that
// a filter blocks makes a turn that failed.
func (r *Runner) initAndNormalize(t *turn, init initBody) error {
	normalized, filtered, f := r.normalize(t.agent, &init)
	if f != nil && (f.Code == tga.ValidationError || f.Code == tga.LimitExceeded) {
		return f.Err
	}
	if filtered {
		if len(init.Input) > 0 {
			init.Received, init.ReceivedBytes = keyedDigest(r.store.Secret(), init.Input), len(init.Input)
		}
		init.Input, init.Given, init.Context = nil, nil, nil
	}
	if err := t.stage(r.now(), Init, Done, init); err != nil {
		return err
	}
	if f != nil {
		return t.stage(r.now(), Normalize, Failed, failedBody{Failure: *f})
	}
	return t.stage(r.now(), Normalize, Done, normalized)
}

// normalize makes messages of the input and filters them. filtered says that the filter removed
// or blocked something.
func (r *Runner) normalize(a *Agent, in *initBody) (body normalizeBody, filtered bool, f *Failure) {
	started := r.wall()
	messages := in.Given
	if len(in.Input) > 0 || len(in.Given) == 0 {
		came, err := message.Normalize(in.Input, in.Format, in.Source, in.StartedAt)
		if err != nil {
			return body, false, &Failure{Code: codeOr(err, tga.ValidationError), Message: err.Error(), Err: err}
		}
		messages = append(messages, came...)
	}
	if len(in.Context) > 0 && !bytes.Equal(in.Context, []byte("{}")) && in.Chain == 1 {
		messages = append(messages, message.TextMessage(message.System, "Context: "+string(in.Context), message.FromDelegation, in.StartedAt))
	}
	filter, err := a.Filter.Compile()
	if err != nil {
		return body, false, &Failure{Code: codeOr(err, tga.ValidationError), Message: err.Error(), Err: err}
	}
	messages, findings, err := filter.Apply(messages)
	if err != nil {
		return body, true, &Failure{Code: codeOr(err, tga.ContentFiltered), Message: err.Error(), Err: err}
	}
	return normalizeBody{Messages: messages, Findings: findings, Timing: r.timing(Normalize, started)}, len(findings) > 0, nil
}

// resolve runs RESOL (OSSA 0.2.9 §1 phase 3). Its record is committed with the first question to
// the model.
func (r *Runner) resolve(ctx context.Context, t *turn) error {
	if err := r.within(ctx, t); err != nil {
		return err
	}
	started := r.wall()
	body := resolveBody{Tools: []Tool{}}
	if r.opts.Resolver != nil {
		tools, warnings, err := r.opts.Resolver.Resolve(ctx, t.agent)
		if err != nil {
			return ended(ctx, tga.ToolTimeout, err)
		}
		tools, refused := t.agent.permitted(tools)
		body.Tools, body.Warnings = append(body.Tools, tools...), append(warnings, refused...)
	} else if len(t.agent.Tools) > 0 {
		body.Warnings = []Warning{{Code: tga.NotFound, Reason: "this runner resolves no tools"}}
	}
	for _, w := range body.Warnings {
		r.opts.Logger.WarnContext(ctx, "a tool is left out or has changed", "tool", w.Tool, "code", string(w.Code), "reason", w.Reason, "interaction_id", t.id().String())
	}
	body.Timing = r.timing(Resolve, started)
	return t.stage(r.now(), Resolve, Done, body)
}

// within checks the limit of turns in a session. A person may let a turn exceed it.
func (r *Runner) within(ctx context.Context, t *turn) error {
	most := t.agent.Constraints.MaxTurns
	if most <= 0 || int(t.init.TurnNumber) <= most {
		return nil
	}
	f := Failure{Code: tga.MaxTurnsExceeded, Message: "turn " + decimal(int(t.init.TurnNumber)) + " of a session that has at most " + decimal(most)}
	_, err := r.settle(ctx, t, Resolve, t.agent.plan(&f, 1, noRetries), parkedBody{Failure: f})
	return err
}

var noRetries = RetryPolicy{MaxRetries: -1}

// follow prepares the next turn of the chain, whose message is the results of the tools.
func (r *Runner) follow(ctx context.Context, t *turn) (*turn, *session, error) {
	return r.prepare(ctx, beginning{
		agent: t.agent, id: r.opts.Runtime.NewID(), session: t.init.SessionID, span: t.init.SpanContext,
		source: message.FromTool, given: t.executed.Messages, previous: t, chain: t.init.Chain + 1,
		lender: t.caller, until: t.until(r.now()), tidies: t.tidies,
	})
}

// emit runs EMIT (OSSA 0.2.9 §1 phase 7), which ends the turn. One batch commits its record, the
// turn's session item, the turn's removal from the index of open turns, and the beginning of the
// turn that follows.
func (r *Runner) emit(ctx context.Context, t *turn) error {
	started := r.wall()
	goesOn, err := r.goesOn(ctx, t)
	if err != nil {
		return err
	}
	if t.inferred == nil { // it failed, and another process may have asked its questions
		if err := r.recall(ctx, t, nil); err != nil {
			return err
		}
	}
	r.publish(ctx, t, goesOn)
	body := emitBody{Failed: t.failed != nil, Timing: r.timing(Emit, started)}
	var more []chain.Attachment
	var next *turn
	if goesOn {
		var s *session
		if next, s, err = r.follow(ctx, t); err != nil {
			return err
		}
		defer r.store.Release(s.lease)
		id := next.id()
		body.Next = &id
		more = append(more, next.item(false), opened(id))
		more = append(more, next.j.staged...)
	}
	if err = t.stage(r.now(), Emit, Done, body); err == nil {
		err = t.j.commit(ctx, append(more, t.item(true), closed(t.id()))...)
	}
	if err != nil {
		if next != nil {
			r.store.Release(next.j.lease)
		}
		return err
	}
	r.recent.put(t.id(), t.messages())
	if next != nil {
		next.j.staged = nil
		t.next = next
	}
	return nil
}

// goesOn says whether another turn follows: it does if the model asked for tools and has not yet
// seen their results (OSSA 0.2.9 §4).
func (r *Runner) goesOn(ctx context.Context, t *turn) (bool, error) {
	if t.failed != nil || t.orphan || len(t.executed.Messages) == 0 || t.executed.Handoff != nil || t.agent.Chain.Stop {
		return false, nil
	}
	if t.agent.Chain.Confirm {
		f := Failure{Code: tga.EscalationRequired, Message: "the next turn waits for a confirmation"}
		d, err := r.settle(ctx, t, Emit, plan{strategy: Escalate}, parkedBody{Failure: f, Subject: "next"})
		if _, refused := err.(*Failure); refused || d.Action == Skip {
			return false, nil // a person refused: the chain ends here
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// publish hands the emission to every emitter. It waits at most [Options.EmitTimeout], and no
// error of it fails a turn.
func (r *Runner) publish(ctx context.Context, t *turn, goesOn bool) {
	if len(r.opts.Emitters) == 0 {
		return
	}
	e := r.emission(t, goesOn)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.opts.EmitTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, to := range r.opts.Emitters {
			if err := emitTo(ctx, to, e); err != nil {
				r.opts.Logger.WarnContext(ctx, "telemetry of a turn is lost", "error", err, "interaction_id", t.id().String())
			}
		}
	}()
	select {
	case <-done:
	case <-ctx.Done():
		r.opts.Logger.WarnContext(ctx, "telemetry of a turn takes too long", "after", r.opts.EmitTimeout.String(), "interaction_id", t.id().String())
	}
}

func emitTo(ctx context.Context, to Emitter, e *Emission) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = tga.Errorf(tga.GenericStateError, "an emitter panicked: %v", p)
		}
	}()
	return to.Emit(ctx, e)
}

// place returns ctx with the span context for a question to a model or a call of a tool: that of
// the span which a [Placer] will make, or the caller's span context if no emitter makes spans.
func (r *Runner) place(ctx context.Context, t *turn, of Part) context.Context {
	sc := t.init.SpanContext
	for _, to := range r.opts.Emitters {
		if p, ok := to.(Placer); ok {
			if own := r.placeBy(ctx, p, t, of); own != (SpanContext{}) {
				sc = own
				break
			}
		}
	}
	if sc == (SpanContext{}) {
		return ctx
	}
	return runtime.WithSpanContext(ctx, sc)
}

func (r *Runner) placeBy(ctx context.Context, by Placer, t *turn, of Part) (sc SpanContext) {
	defer func() {
		if p := recover(); p != nil {
			r.opts.Logger.WarnContext(ctx, "an emitter panicked", "error", p, "interaction_id", t.id().String())
		}
	}()
	return by.Place(r.whose(t), of)
}

// whose returns an emission that only identifies the turn.
func (r *Runner) whose(t *turn) *Emission {
	return &Emission{
		Agent: t.agent, InvocationID: t.init.InvocationID, InteractionID: t.id(), SessionID: t.init.SessionID,
		InstanceID: t.init.InstanceID, Parent: t.init.Parent, TurnNumber: t.init.TurnNumber, SpanContext: t.init.SpanContext,
		InvocationStarted: t.init.InvocationStarted.Time(), Started: t.init.StartedAt.Time(), Ended: r.wall(),
	}
}

// emission collects all telemetry about a turn.
func (r *Runner) emission(t *turn, goesOn bool) *Emission {
	e := r.whose(t)
	e.Inferences, e.Usage = t.inferences(), t.usage()
	e.First, e.Last = t.init.Chain == 1, !goesOn
	e.State = StateTiming{
		Mode: t.init.Mode, Isolation: t.init.Isolation, TTL: t.agent.State.TTL,
		LoadStarted: t.loaded[0], LoadEnded: t.loaded[1], SaveStarted: t.saved[0], SaveEnded: t.saved[1],
	}
	add := func(p PhaseTiming) { e.Phases = append(e.Phases, p) }
	add(PhaseTiming{Init, e.Started, e.Started})
	if t.normalized != nil {
		add(t.normalized.Timing)
	}
	if t.resolved != nil {
		add(t.resolved.Timing)
	}
	if t.inferred != nil {
		add(t.inferred.Timing)
	}
	if t.executed != nil {
		e.Tools, e.Delegations = t.executed.Executions, t.executed.Delegations
		add(t.executed.Timing)
	}
	if t.persisted != nil {
		add(t.persisted.Timing)
		e.State.Transaction, e.State.Changes = t.persisted.Transaction.ID.String(), len(t.persisted.Transaction.Changes)
	}
	if t.failed != nil {
		e.Failure = &t.failed.Failure
		if e.Tools == nil {
			e.Tools = t.failed.Effects
		}
	}
	return e
}
