package runtime

import (
	"context"
	"crypto/hmac"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Finished is what a remote executor learnt from the tool server.
type Finished struct {
	Reply
	Who string // peer, for the late-reply note; "" means "executor"
}

// finishes takes the reports of remote executors about their attempts.
type finishes struct {
	store     Store
	mint      *minter
	traces    *traces
	results   *results
	executors *executors
	answers   *answers
	ends      *ends
	doubts    *doubts
	redact    redactions
	calls     driver
}

// Finish records the effect of an attempt that a remote executor sent. It needs the
// permit of any attempt of the trace and is accepted once, also after a restart. If the
// trace is terminal already, the same outcome sets Result.Replayed; a different outcome is
// kept as a note and refused with STATE_INVALID_TRANSITION. PERMISSION_DENIED for a
// permit that the trace never issued. EFFECT_IN_DOUBT for an answer that says that this attempt did
// not run while another attempt may have: it is kept as a note, as by NotSent.
func (rt *Runtime) Finish(ctx context.Context, trace tga.ID, permit Permit, f Finished) (res Result, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.finish", trace, "", "")
	defer span.end(&res, &err)
	return rt.finishes.finish(ctx, trace, permit, f)
}

func (fs *finishes) finish(ctx context.Context, trace tga.ID, permit Permit, f Finished) (res Result, err error) {
	l, p, err := fs.withPermit(ctx, trace, permit)
	if err != nil {
		return Result{TraceID: trace}, err
	}
	defer fs.store.Release(l.lease)
	if f.Class == ledger.ClassNotSent {
		// It would use up the key for an answer that nobody gave.
		return l.partial(), tga.Errorf(tga.ValidationError, "class %v cannot be the class of an answer: if the attempt reached nobody, call NotSent", f.Class).At("/outcome_class").In(trace)
	}
	w := fs.answers.read(l, ByPermit, l.attempts(), f.Reply)
	if l.state.Terminal() {
		return fs.late(ctx, l, p, w, firstOf(f.Who, "executor"))
	}
	if w.refused != nil {
		return fs.refused(ctx, l, p, w.refused)
	}
	if err := MayAppend(Claim{Subject: AnEffect, Writer: ByPermit, Origin: l.sender}); err != nil {
		return l.partial(), err
	}
	w.meta = mergeMeta(w.meta, tga.Meta{MetaFinishedAttempt: attemptNumber(p.attempt), tga.MetaFinishedBy: firstOf(f.Who, "executor")})
	if err := fs.ends.stageAnswer(l, w, w.storable(f.Attachments)); err != nil {
		return l.partial(), err
	}
	res, err = fs.calls.finish(ctx, l)
	if err == nil {
		fs.redact.held.let(trace)
	}
	return res, err
}

// refused takes an attempt back that its answer refused, once. The call stays in doubt because of its other attempts,
// unless these were taken back too.
func (fs *finishes) refused(ctx context.Context, l *loop, p issued, why *tga.Error) (Result, error) {
	if !p.notSent {
		ended, err := fs.ends.takeBack(ctx, l, p.attempt, why.Code, why.Message, why.RetryAfter)
		if err != nil {
			return l.partial(), err
		}
		if ended {
			return fs.calls.finish(ctx, l)
		}
	}
	l.doubt = why
	return l.partial(), fs.doubts.of(l)
}

// NotSent takes a permit back. The executor asserts that its attempt reached nobody. Unless
// another attempt may have been sent, the trace ends FAILED with the class not_sent, and its key
// is free for another Begin, which makes a new trace. wait is the Retry-After of the tool
// server, 0 = none; the next attempt is not made before that time is over.
func (rt *Runtime) NotSent(ctx context.Context, trace tga.ID, permit Permit, reason string, wait time.Duration) (res Result, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.not_sent", trace, "", "")
	defer span.end(&res, &err)
	return rt.finishes.notSent(ctx, trace, permit, reason, wait)
}

func (fs *finishes) notSent(ctx context.Context, trace tga.ID, permit Permit, reason string, wait time.Duration) (res Result, err error) {
	l, p, err := fs.withPermit(ctx, trace, permit)
	if err != nil {
		return Result{TraceID: trace}, err
	}
	defer fs.store.Release(l.lease)
	if p.notSent {
		res, err := fs.results.of(ctx, trace)
		res.Replayed = true
		return res, err
	}
	if l.state.Terminal() {
		return l.partial(), tga.Errorf(tga.StateInvalidTransition, "the trace is %s", l.state).In(trace)
	}
	reason = fs.redact.words(l.sentCall(p.attempt), reason)
	ended, err := fs.ends.takeBack(ctx, l, p.attempt, tga.ToolError, firstOf(reason, "the executor says so"), tga.BoundRetryAfter(wait))
	if err != nil || !ended {
		return l.partial(), err
	}
	return fs.calls.finish(ctx, l)
}

// withPermit makes the loop of a trace for an executor that holds one of its permits.
func (fs *finishes) withPermit(ctx context.Context, trace tga.ID, permit Permit) (*loop, issued, error) {
	l, err := fs.traces.resume(ctx, trace)
	if err != nil {
		return nil, issued{}, err
	}
	t, err := l.known(ctx)
	if err == nil {
		if t.Call != nil {
			l.whole = fs.redact.held.of(trace)
			for _, p := range permitsOf(t) {
				want, got := p.digest, permit.digest()
				if hmac.Equal(want[:], got[:]) {
					return l, p, nil
				}
			}
		}
		err = tga.Errorf(tga.PermissionDenied, "the trace issued no such permit").In(trace)
	}
	fs.store.Release(l.lease)
	return nil, issued{}, err
}

// late compares an outcome that arrived after the end of the trace with the recorded outcome.
func (fs *finishes) late(ctx context.Context, l *loop, p issued, w answer, who string) (Result, error) {
	if w.refused != nil && ledger.ClassOf(l.effect) == ledger.ClassNotSent {
		return fs.calls.finish(ctx, l) // Replayed: the trace ended so because each attempt was refused or reached nobody
	}
	came := answered{w.status, w.class, w.cut.Hash}
	for _, d := range w.documents {
		if d.Pointer == tga.PointerResult && !d.Erased {
			came.result = tga.Sum(d.Data)
		}
	}
	if l.effect.Effect.Outcome.Status == came.status && resultOf(l.effect) == came.result {
		return fs.calls.finish(ctx, l) // Replayed
	}
	if err := l.noteLate(ctx, fs.mint, p.attempt, came, who); err != nil {
		return l.partial(), err
	}
	return l.partial(), tga.Errorf(tga.StateInvalidTransition, "the trace is %s with another outcome; the reply is kept as a note", l.state).In(l.lease.TraceID)
}
