package runtime

import (
	"bytes"
	"context"
	"maps"
	"strconv"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

const MetaFinishedAttempt = "attempt" // effect: number of the attempt whose answer it is

func attemptNumber(n uint32) tga.Number { return tga.Number(strconv.FormatUint(uint64(n), 10)) }

func mergeMeta(a, b tga.Meta) tga.Meta {
	m := maps.Clone(a)
	if m == nil {
		m = tga.Meta{}
	}
	maps.Copy(m, b)
	return m
}

// Resolution is what somebody knows about a call in doubt.
type Resolution struct {
	Reply
	Who      string // 1..255 characters
	Via      string // "", or [ViaModel]
	Evidence []byte // how it is known; kept with the effect, required
	// Attempts is how many attempts the call had when somebody checked whether it ran; 0 if it
	// is not given. If the call has more attempts by now, "it did not run" is refused: nobody
	// has checked what the newer attempt did.
	Attempts uint32
}

// ViaModel says that a model decided, through a peer that lets the model use the peer's right to
// settle. The effect records that (meta.resolved_via). A model never permits a send: it may say
// that a call ran, or give it up, and neither frees a key. It may not say that a call did not run,
// or failed so that it may be tried again. To the rule for calls without a key ([call.Decide]) a
// call that a model settled stays a call that may have run, and only a person can let it run
// again: otherwise a model could say "ran" so that its next identical call counts as a new one.
const ViaModel = "model"

// mayVia refuses an unknown via, and a statement that a model may not make.
func mayVia(via string, licenses bool) error {
	switch {
	case via != "" && via != ViaModel:
		return tga.Errorf(tga.ValidationError, "via %.40q: want nothing or %q", via, ViaModel).At("/via")
	case via == ViaModel && licenses:
		return tga.Errorf(tga.PermissionDenied, "a model may say that a call ran, or give it up: only a person may say anything else").At("/via")
	}
	return nil
}

// byModel reports whether a model settled the trace.
func byModel(t *chain.Trace) bool {
	return t.Effect != nil && t.Effect.Meta.String(tga.MetaResolvedVia) == ViaModel
}

// settlements records what people say happened to a call in doubt.
type settlements struct {
	store     Store
	traces    *traces
	executors *executors
	queries   *queries
	mint      *minter
	answers   *answers
	ends      *ends
	counts    *counts
	calls     driver
}

// Resolve ends a call in doubt with an effect that somebody vouches for. The evidence
// is stored with it. STATE_INVALID_TRANSITION if the trace is not EXECUTING.
//
// "It ran" is accepted at once, whoever holds the trace: see [Runtime.Abandon]. "It did not
// run" frees the key. So it is refused with STATE_LOCK_ACQUIRE_FAILED while the sender of the
// attempt is still active or its permit is fresh: nobody can call back bytes that are on the
// wire.
func (rt *Runtime) Resolve(ctx context.Context, trace tga.ID, r Resolution) (res Result, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.resolve", trace, "", "")
	defer span.end(&res, &err)
	return rt.settlements.resolve(ctx, trace, r)
}

func (st *settlements) resolve(ctx context.Context, trace tga.ID, r Resolution) (res Result, err error) {
	if len(r.Evidence) == 0 {
		return Result{TraceID: trace}, tga.Errorf(tga.ValidationError, "a resolution needs evidence").At("/evidence").In(trace)
	}
	switch r.Status {
	case tga.StatusSuccess, tga.StatusFailure, tga.StatusDenied, tga.StatusError:
	default:
		// A person made a mistake and can correct it now. An unknown status is recorded only
		// if it is a tool's own word.
		return Result{TraceID: trace}, tga.Errorf(tga.ValidationError, "status %.40q: want SUCCESS, FAILURE, DENIED or ERROR", r.Status).At("/status").In(trace)
	}
	if r.Class != ledger.ClassNone && !mayClass(r.Class, r.Status) {
		return Result{TraceID: trace}, tga.Errorf(tga.ValidationError, "class %v for an answer with status %s", r.Class, r.Status).At("/outcome_class").In(trace)
	}
	if err := mayVia(r.Via, r.Status != tga.StatusSuccess || r.Class != ledger.ClassNone && r.Class != ledger.ClassSuccess); err != nil {
		return Result{TraceID: trace}, err
	}
	t, err := st.look(ctx, trace, r.Who)
	if err != nil {
		return Result{TraceID: trace}, err
	}
	return st.settle(ctx, t, r.Who, r.Via, r.Attempts, func(l *loop) answer {
		attempts := l.attempts()
		if r.Via == ViaModel {
			attempts = 0
		}
		w := st.answers.read(l, ByPerson, attempts, r.Reply)
		w.documents = append(w.documents, chain.Document{Pointer: tga.PointerEvidence, Data: bytes.Clone(r.Evidence)})
		return w
	})
}

// Abandon gives a call in doubt up: it ends FAILED with the code EFFECT_IN_DOUBT, and
// whether it ran stays unknown. Its key is never sent again. The run that executes the call is
// overtaken: it sends nothing more and appends nothing. If the tool still answers, a note keeps
// the answer.
//
// A call that is AUTHORIZED was not sent, but may wait for ever: for its remote executor, or for a caller who
// brings its redacted arguments. Given up, it ends FAILED with POLICY_VIOLATION, as one that is never sent: its key is as before.
func (rt *Runtime) Abandon(ctx context.Context, trace tga.ID, who, reason string) (Result, error) {
	return rt.AbandonVia(ctx, trace, who, "", reason)
}

// AbandonVia is Abandon with a via that the effect records: "" or [ViaModel].
func (rt *Runtime) AbandonVia(ctx context.Context, trace tga.ID, who, via, reason string) (res Result, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.abandon", trace, "", "")
	defer span.end(&res, &err)
	return rt.settlements.abandon(ctx, trace, who, via, reason)
}

func (st *settlements) abandon(ctx context.Context, trace tga.ID, who, via, reason string) (res Result, err error) {
	if err := mayVia(via, false); err != nil {
		return Result{TraceID: trace}, err
	}
	t, err := st.look(ctx, trace, who)
	if err != nil {
		return Result{TraceID: trace}, err
	}
	if t.Head.State == tga.Authorized {
		return st.unsent(ctx, t, who, via, reason)
	}
	return st.settle(ctx, t, who, via, 0, func(*loop) answer {
		return answer{
			status: tga.StatusError, class: ledger.ClassPermanent,
			errorCode: string(tga.EffectInDoubt), errorText: firstOf(reason, "abandoned; whether the call ran is unknown"),
		}
	})
}

// unsent ends an AUTHORIZED trace as a call that is never sent. A run that was about to send it is overtaken.
func (st *settlements) unsent(ctx context.Context, t *chain.Trace, who, via, reason string) (Result, error) {
	l, err := st.traces.resumeBy(ctx, t.ID, func() (chain.Lease, error) { return st.store.Overtake(ctx, t.ID, false) })
	if err != nil {
		return Result{TraceID: t.ID}, err
	}
	defer st.store.Release(l.lease)
	if l.state != tga.Authorized {
		return l.partial(), tga.Errorf(tga.StateConcurrentExecution, "the trace has become %s: look at it again", l.state).In(t.ID)
	}
	// As in settle, the transport has checked the verb admin.
	if err := MayAppend(Claim{Subject: AnUnsentCall, Writer: ByPerson, Origin: RequestOrigin(t, ""), Rights: RightAdmin}); err != nil {
		return l.partial(), err
	}
	if err := st.ends.stageUnsent(l, answer{
		status: tga.StatusError, class: ledger.ClassPermanent, errorCode: string(tga.PolicyViolation),
		errorText: firstOf(reason, "given up before it was sent"), meta: settledBy(who, via),
	}); err != nil {
		return l.partial(), err
	}
	st.counts.byPerson.Add(1)
	return st.calls.finish(ctx, l)
}

// settledBy is the meta of an effect that a person vouches for.
func settledBy(who, via string) tga.Meta {
	meta := tga.Meta{tga.MetaResolvedBy: resolvedByPerson, tga.MetaResolver: who}
	if via != "" {
		meta[tga.MetaResolvedVia] = via
	}
	return meta
}

// look loads a trace that somebody wants to end, and refuses a settlement of nobody.
func (st *settlements) look(ctx context.Context, trace tga.ID, who string) (*chain.Trace, error) {
	if n := len(who); n < 1 || n > 255 {
		return nil, tga.Errorf(tga.ValidationError, "who has %d bytes, want 1..255", n).At("/who").In(trace)
	}
	return st.store.Load(ctx, trace)
}

// settle ends an EXECUTING trace with an effect that no tool server answered. t is the trace as it was before;
// seen is [Resolution.Attempts].
func (st *settlements) settle(ctx context.Context, t *chain.Trace, who, via string, seen uint32, effectOf func(*loop) answer) (Result, error) {
	l, err := st.overtake(ctx, t, seen, effectOf)
	if err != nil {
		return Result{TraceID: t.ID}, err
	}
	defer st.store.Release(l.lease)
	if err := l.inDoubtNow(); err != nil {
		return l.partial(), err
	}
	// The transport has checked that who has the verb admin: see [Resolution].
	if err := MayAppend(Claim{Subject: AnEffect, Writer: ByPerson, Origin: l.sender, Rights: RightAdmin}); err != nil {
		return l.partial(), err
	}
	l.inDoubtSince(l.call.TS)
	w := effectOf(l)
	w.meta = mergeMeta(w.meta, settledBy(who, via))
	if err := st.ends.stageAnswer(l, w, nil); err != nil {
		return l.partial(), err
	}
	st.counts.byPerson.Add(1)
	return st.calls.finish(ctx, l)
}
