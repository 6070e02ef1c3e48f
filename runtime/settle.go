package runtime

import (
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

// Resolution is what somebody knows of a call in doubt.
type Resolution struct {
	Reply
	Who      string // 1..255 characters
	Via      string // "", or [ViaModel]
	Evidence []byte // why it is known; kept with the effect, required
	// Attempts is how many attempts the call had when somebody looked at its world; 0 where nobody
	// says. That it did not run is not taken where there are more by now: whoever looked has not
	// seen what the newer one did.
	Attempts uint32
}

// ViaModel says that a model has decided, by a peer that lets it use its right to settle. The
// effect says so (meta.resolved_via). A model never licenses a send: it may say that a call ran,
// or give it up, and neither frees a key. That a call did not run, or failed so that it may be
// tried again, is not a model's to say. And to the rule for calls without a key ([call.Decide])
// what a model has settled stays a call that may have run, which only a person has run again:
// a model cannot say "ran" to get the same call out of the way of its next one.
const ViaModel = "model"

// mayVia refuses a way that there is not, and what a model may not say.
func mayVia(via string, licenses bool) error {
	switch {
	case via != "" && via != ViaModel:
		return tga.Errorf(tga.ValidationError, "via %.40q: want nothing or %q", via, ViaModel).At("/via")
	case via == ViaModel && licenses:
		return tga.Errorf(tga.PermissionDenied, "a model may say that a call ran, or give it up: anything else is a person's to say").At("/via")
	}
	return nil
}

// byModel reports whether a trace's effect is what a model has said.
func byModel(t *chain.Trace) bool {
	return t.Effect != nil && t.Effect.Meta.String(tga.MetaResolvedVia) == ViaModel
}

// settlements takes people's word for what became of a call in doubt.
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
// is stored with it. STATE_INVALID_TRANSITION where the trace is not EXECUTING.
//
// That it ran is taken at once, whoever holds the trace: see [Runtime.Abandon]. That it
// did not run frees the key, so it is refused with STATE_LOCK_ACQUIRE_FAILED while the
// attempt's sender is at work or its permit is fresh: nobody can call back bytes that are
// on the wire.
func (rt *Runtime) Resolve(ctx context.Context, trace tga.ID, r Resolution) (res Result, err error) {
	defer rt.goOn(&err)
	span := rt.spans.begin(&ctx, "tgad.resolve", trace, "", "")
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
		// A person's slip, who is here to mend it: it is not recorded as a tool's own word.
		return Result{TraceID: trace}, tga.Errorf(tga.ValidationError, "status %.40q: want SUCCESS, FAILURE, DENIED or ERROR", r.Status).At("/status").In(trace)
	}
	if r.Class != ledger.ClassNone && !mayClass(r.Class, r.Status) {
		return Result{TraceID: trace}, tga.Errorf(tga.ValidationError, "class %v for an answer with status %s", r.Class, r.Status).At("/outcome_class").In(trace)
	}
	if err := mayVia(r.Via, r.Status != tga.StatusSuccess || r.Class != ledger.ClassNone && r.Class != ledger.ClassSuccess); err != nil {
		return Result{TraceID: trace}, err
	}
	return st.settle(ctx, trace, r.Who, r.Via, r.Attempts, func(l *loop) answer {
		w := st.answers.read(l, 1, r.Reply)
		w.documents = append(w.documents, chain.Document{Pointer: tga.PointerEvidence, Data: r.Evidence})
		return w
	})
}

// Abandon gives a call in doubt up: it ends FAILED with the code EFFECT_IN_DOUBT, and
// whether it ran stays unknown. Its key is never sent again. Who is at the call is
// overtaken: it sends nothing more and appends nothing, and what the tool still answers is
// kept as a note.
func (rt *Runtime) Abandon(ctx context.Context, trace tga.ID, who, reason string) (Result, error) {
	return rt.AbandonVia(ctx, trace, who, "", reason)
}

// AbandonVia is Abandon by a way that the record names: "" or [ViaModel].
func (rt *Runtime) AbandonVia(ctx context.Context, trace tga.ID, who, via, reason string) (res Result, err error) {
	defer rt.goOn(&err)
	span := rt.spans.begin(&ctx, "tgad.abandon", trace, "", "")
	defer span.end(&res, &err)
	return rt.settlements.abandon(ctx, trace, who, via, reason)
}

func (st *settlements) abandon(ctx context.Context, trace tga.ID, who, via, reason string) (res Result, err error) {
	if err := mayVia(via, false); err != nil {
		return Result{TraceID: trace}, err
	}
	return st.settle(ctx, trace, who, via, 0, func(*loop) answer {
		return answer{
			status: tga.StatusError, class: ledger.ClassPermanent,
			errorCode: string(tga.EffectInDoubt), errorText: firstOf(reason, "abandoned; whether the call ran is unknown"),
		}
	})
}

// settle ends an EXECUTING trace with an effect that no tool server answered. seen is
// [Resolution.Attempts].
func (st *settlements) settle(ctx context.Context, trace tga.ID, who, via string, seen uint32, effectOf func(*loop) answer) (Result, error) {
	if n := len(who); n < 1 || n > 255 {
		return Result{TraceID: trace}, tga.Errorf(tga.ValidationError, "who has %d bytes, want 1..255", n).At("/who").In(trace)
	}
	l, err := st.overtake(ctx, trace, seen, effectOf)
	if err != nil {
		return Result{TraceID: trace}, err
	}
	defer st.store.Release(l.lease)
	if err := l.inDoubtNow(); err != nil {
		return l.partial(), err
	}
	// That who has the verb admin is its transport's to know: see [Resolution].
	if err := MayAppend(Claim{Subject: AnEffect, Writer: ByPerson, Origin: l.sender, Rights: RightAdmin}); err != nil {
		return l.partial(), err
	}
	l.inDoubtSince(l.call.TS)
	w := effectOf(l)
	w.meta = mergeMeta(w.meta, tga.Meta{tga.MetaResolvedBy: resolvedByPerson, tga.MetaResolver: who})
	if via != "" {
		w.meta[tga.MetaResolvedVia] = via
	}
	if err := st.ends.stageAnswer(l, w, nil); err != nil {
		return l.partial(), err
	}
	st.counts.byPerson.Add(1)
	return st.calls.finish(ctx, l)
}
