package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// stage adds a sealed artifact and its documents to what the loop has staged. It looks up the
// transition so that the loop can go on; the store checks the transition again on append.
func (l *loop) stage(a *tga.Artifact, documents ...chain.Document) {
	to, ok := tga.Next(l.state, a.Type, a.Verdict())
	if !ok {
		panic(fmt.Sprintf("runtime: staged a %s in state %s", a.Type, l.state))
	}
	l.staged = append(l.staged, chain.NewArtifact{Artifact: a, Documents: documents})
	l.state = to
	switch a.Type {
	case tga.RequestType:
		l.request = a
	case tga.DecisionType:
		l.decision = a
	case tga.CallType:
		l.call = a
	case tga.EffectType:
		l.effect = a
	}
}

// unstageCall removes the call that was staged last and was not appended, with
// the attachments that a dispatcher prepared for it.
func (l *loop) unstageCall() {
	l.staged = l.staged[:len(l.staged)-1]
	l.call, l.state, l.prepared, l.attempted = nil, tga.Authorized, nil, nil
}

// stageCall stages the call that is to be sent. Its EXECUTING entry is attempt 1. record
// is the ledger record of its key, nil if the key was never used. The meta of the call says from
// which trace it takes the key over, and how many calls had the key before.
func (rt *Runtime) stageCall(ctx context.Context, l *loop, record *ledger.Record) error {
	meta := tga.Meta{}
	if record != nil {
		before, err := rt.store.Load(ctx, record.TraceID)
		if err != nil {
			return err
		}
		meta[tga.MetaRetryOf] = record.TraceID.String()
		meta[tga.MetaRetryNumber] = attemptNumber(retryNumber(before.Call) + 1)
	}
	if l.remote != nil {
		meta[tga.MetaAttempt] = tga.AttemptExternal
		meta[tga.MetaBeginID] = l.remote.beginID
		meta[tga.MetaPermitDigest] = rt.executors.permit(l.lease.TraceID, 1, l.remote).digest().String()
	}
	rt.licences.keep(l, meta)
	call, err := rt.mint.call(l, meta)
	if err != nil {
		return err
	}
	l.stage(call)
	l.prepared = append(l.prepared, rt.executors.begins(l, 1)...)
	return nil
}

// ends stages the end of a call: an answer, "not sent", or a refusal.
type ends struct {
	store      Store
	mint       *minter
	answers    *answers
	executors  *executors
	departures *departures
	retries    *retries
	doubts     *doubts
	observe    observer
	counts     *counts
}

// stageNotSent stages the end of a call of which no attempt was sent. attempt is the last
// attempt that the log does not have as not sent yet, 0 if none was marked. wait is the Retry-After
// of the server. The tool's outcome rules are not applied, because nobody answered.
func (e *ends) stageNotSent(l *loop, attempt uint32, code tga.Code, reason string, wait time.Duration) error {
	if code == tga.EffectInDoubt {
		code = tga.ToolError // EFFECT_IN_DOUBT would mean an abandoned call
	}
	w := answer{
		status: tga.StatusError, class: ledger.ClassNotSent,
		errorCode: string(code), errorText: reason, retryable: true,
	}
	w.meta = tga.Meta{}
	if attempt != 0 {
		w.meta[tga.MetaAttempt] = attemptNumber(attempt)
	}
	askedIn(w.meta, wait)
	e.counts.notSent.Add(1)
	e.observe.tell(l, EventNotSent, code, attempt, reason)
	return e.stageAnswer(l, w, nil)
}

// stageEffect stages the effect of a tool server's reply, or takes back an attempt that the reply refuses.
func (e *ends) stageEffect(ctx context.Context, l *loop, attempt uint32, r Reply) error {
	w := e.answers.read(l, ByProcess, attempt, r)
	if w.refused != nil {
		return e.notSent(ctx, l, attempt, w.refused)
	}
	l.answer = w.whole
	return e.stageAnswer(l, w, w.storable(r.Attachments))
}

// stageAnswer stages the effect that ends a call which may have been sent, and what
// follows from its class.
func (e *ends) stageAnswer(l *loop, w answer, attachments []chain.Attachment) error {
	effect, err := e.mint.effect(l, l.call, w)
	if err != nil {
		return err
	}
	l.stage(effect, w.documents...)
	if l.doubtSince != 0 {
		e.observe.say(l, Event{Kind: EventSettled, Code: tga.Code(w.errorCode), After: time.Duration(max(effect.TS-l.doubtSince, 0)) * time.Millisecond})
	}
	e.departures.forget(l.lease.TraceID)
	l.attachments = append(l.attachments, attachments...)
	if err := e.executors.forget(l); err != nil {
		return err
	}
	l.stopTimer()
	return e.retries.schedule(l, w.class, retryAfterOf(effect))
}

// refuse ends a trace whose call is not sent. If nothing of the trace is durable, nothing
// is written, and the refusal is only the error.
func (e *ends) refuse(ctx context.Context, l *loop, code tga.Code, format string, args ...any) error {
	refusal := tga.Errorf(code, format, args...).In(l.lease.TraceID)
	e.counts.refused.Add(1)
	e.observe.tell(l, EventRefused, code, 0, refusal.Message)
	if l.head.Seq == 0 {
		return refusal
	}
	err := e.stageUnsent(l, answer{
		status: tga.StatusError, class: ledger.ClassPermanent,
		errorCode: string(code), errorText: refusal.Message,
	})
	if err != nil {
		return errors.Join(refusal, err)
	}
	if err := l.commit(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(refusal, err)
	}
	return refusal
}

// stageUnsent stages a call that is never sent, with its effect. The call's meta says that no
// attempt belongs to it, and the ledger record of the key stays as it is.
func (e *ends) stageUnsent(l *loop, w answer) error {
	call, err := e.mint.call(l, tga.Meta{tga.MetaAttempt: tga.AttemptNone})
	if err != nil {
		return err
	}
	effect, err := e.mint.effect(l, call, w)
	if err != nil {
		return err
	}
	l.stage(call)
	l.stage(effect)
	return nil
}

// dispatchCall returns the durable call as a dispatcher sees it. Between attempts only the
// attempt number differs.
func (l *loop) dispatchCall(attempt uint32) Call {
	c := l.call.Call
	return Call{
		TraceID: l.lease.TraceID, ToolCallID: l.call.ID, Attempt: attempt, Namespace: l.namespace,
		Server: c.Call.ToolServer, Tool: c.Call.ToolName, Args: c.Call.Args, Key: c.IdempotencyKey,
	}
}

// takeBack records that an attempt, which was marked and not taken back before, reached nobody.
// If no other attempt may have been sent, that ends the call; otherwise it is a note.
func (e *ends) takeBack(ctx context.Context, l *loop, attempt uint32, code tga.Code, reason string, wait time.Duration) (ended bool, err error) {
	record, err := e.store.Record(ctx, ledger.KeyOf(l.namespace, l.call))
	if err != nil {
		return false, err
	}
	if record.Attempts.Count-record.Attempts.Unsent == 1 {
		return true, e.stageNotSent(l, attempt, code, reason, wait)
	}
	return false, l.append(ctx, chain.Batch{Notes: []chain.NewNote{notSentNote(attempt, reason, wait)}})
}

// notSent records that an attempt certainly reached nobody, or was refused. If no other attempt could have
// reached the tool, the call is known not to have run, and ends. Otherwise the call stays in
// doubt because of the earlier attempts.
func (e *ends) notSent(ctx context.Context, l *loop, attempt uint32, cause error) error {
	ended, err := e.takeBack(ctx, l, attempt, codeOr(cause, tga.ToolError), cause.Error(), tga.RetryAfterOf(cause))
	if err != nil || ended {
		return err
	}
	l.doubt = cause
	return e.doubts.leave(ctx, l)
}
