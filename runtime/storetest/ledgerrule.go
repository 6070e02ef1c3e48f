package storetest

import (
	"errors"
	"sync"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var ledgerClaims = []claim{
	{"CallReservesItsKeyAsItsAttemptSays", func(w *world) {
		for attempt, want := range map[string]ledger.Attempts{
			"":                  {Count: 1},
			tga.AttemptFused:    {Count: 1},
			tga.AttemptApart:    {},
			tga.AttemptExternal: {Count: 1, External: true},
		} {
			b := New(w)
			key := w.know(b)
			w.append(b, b.Approved())
			if r := w.record(key); r != nil {
				w.Errorf("record before the call: %+v", r)
			}
			done := w.append(b, Batch(b.MintCall(attempt)))
			r := w.record(key)
			if r == nil {
				w.Fatalf("%q: no record", attempt)
			}
			a := r.Attempts
			if r.Status != ledger.Reserved || r.TraceID != b.TraceID || r.ToolCallID != b.Call.ID || r.Seq != 3 ||
				r.RequestDigest != w.s.RequestDigest(b.Proposal) || a.Count != want.Count || a.External != want.External {
				w.Errorf("%q: record %+v", attempt, r)
			}
			if want.Count == 1 && (a.Epoch != uint64(w.lease(b).Epoch) || a.First > done.Entries[0].TS || a.First == 0) {
				w.Errorf("%q: attempts %+v", attempt, a)
			}
		}
	}},
	{"EffectSettlesItsRecord", func(w *world) {
		for status, class := range map[string]ledger.Class{
			tga.StatusSuccess: ledger.ClassCommitted, tga.StatusFailure: ledger.ClassPermanent,
			tga.StatusError: ledger.ClassPermanent, tga.StatusDenied: ledger.ClassPermanent,
		} {
			b := w.begun("")
			done := w.append(b, b.End(status))
			r := w.record(w.know(b))
			if r.Status != ledger.Settled || r.Class != class || r.EffectSeq != 4 || r.EffectDigest != b.Effect.Digest || r.InDoubt() || !done.Head.State.Terminal() {
				w.Errorf("%s: record %+v", status, r)
			}
		}
		b := w.begun("")
		w.refused("class that contradicts the status", tga.ValidationError, w.lease(b), chain.Batch{Artifacts: []chain.NewArtifact{b.settling(tga.StatusSuccess, "retryable_failure")}})
		w.refused("served effect of a call that is sent", tga.StateInvalidTransition, w.lease(b),
			chain.Batch{Artifacts: []chain.NewArtifact{b.MintEffect(tga.StatusSuccess, "", nil, tga.Meta{tga.MetaReplayedFrom: b.TraceID.String()})}})
	}},
	{"OneKeyIsReservedOnce", func(w *world) {
		for _, c := range []struct {
			name   string
			record func() *Builder
			same   tga.Code // another trace asks for the same request
		}{
			{"reserved", func() *Builder { return w.begun("") }, tga.IdempotencyKeyInFlight},
			{"reserved without an attempt", func() *Builder { return w.begun(tga.AttemptApart) }, tga.IdempotencyKeyInFlight},
			{"reserved by a remote executor", func() *Builder { return w.begun(tga.AttemptExternal) }, tga.IdempotencyKeyInFlight},
			{"settled", func() *Builder { return w.ended(tga.StatusSuccess, "") }, tga.IdempotencyKeyInFlight},
			{"settled as failure", func() *Builder { return w.ended(tga.StatusFailure, "permanent_failure") }, tga.IdempotencyKeyInFlight},
			{"settled as retryable", func() *Builder { return w.ended(tga.StatusFailure, "retryable_failure") }, tga.IdempotencyKeyInFlight},
			{"abandoned", func() *Builder {
				b := w.begun("")
				w.append(b, chain.Batch{Artifacts: []chain.NewArtifact{b.MintEffect(tga.StatusError, string(tga.EffectInDoubt), nil, nil)}})
				return b
			}, tga.EffectInDoubt},
		} {
			first := c.record()
			for attempt := range map[string]bool{"": true, tga.AttemptApart: true, tga.AttemptExternal: true} {
				again, other := first.Again(), first.Again()
				other.Proposal.Args = []byte(`{"amount":6}`)
				w.refused(c.name+", same request", c.same, w.lease(again), again.Begin(attempt))
				w.refused(c.name+", other request", tga.IdempotencyKeyConflict, w.lease(other), other.Begin(attempt))
			}
		}
	}},
	{"RefusalNamesTheTraceThatHasTheKey", func(w *world) {
		first := w.begun("")
		again := first.Again()
		_, err := w.s.Append(bg, w.lease(again), again.Begin(""))
		var e *tga.Error
		if !errors.As(err, &e) || e.Code != tga.IdempotencyKeyInFlight || e.TraceID != first.TraceID {
			w.Errorf("got %v, want trace %v", err, first.TraceID)
		}
	}},
	{"KeysDifferInEachPart", func(w *world) {
		first := w.begun("")
		for _, change := range []func(b *Builder){
			func(b *Builder) { b.Namespace = "tenant" },
			func(b *Builder) { b.Proposal.ToolServer = "other" },
			func(b *Builder) { b.Proposal.ToolName = "other" },
			func(b *Builder) { b.Key += "." },
		} {
			b := first.Again()
			change(b)
			w.append(b, b.Begin(""))
		}
		named := first.Again()
		named.Namespace = tga.DefaultNamespace
		w.refused("default namespace by its name", tga.IdempotencyKeyInFlight, w.lease(named), named.Begin(""))
	}},
	{"OnlyAnExplicitNewAttemptReservesAgain", func(w *world) {
		first := w.ended(tga.StatusFailure, "retryable_failure")
		stranger := first.Again()
		stranger.RetryOf = NewID()
		w.refused("new attempt after another trace", tga.IdempotencyKeyInFlight, w.lease(stranger), stranger.Begin(""))
		other := first.Again()
		other.RetryOf, other.Proposal.Args = first.TraceID, []byte(`{"amount":6}`)
		w.refused("new attempt with another request", tga.IdempotencyKeyConflict, w.lease(other), other.Begin(""))
		again := first.Again()
		again.RetryOf = first.TraceID
		w.append(again, again.Begin(""))
		r := w.record(w.know(again))
		if r.Status != ledger.Reserved || r.TraceID != again.TraceID || r.Attempts.Count != 1 || r.Class != ledger.ClassNone || r.EffectSeq != 0 {
			w.Errorf("record %+v", r)
		}
		twice := first.Again()
		twice.RetryOf = first.TraceID
		w.refused("a second new attempt after the same trace", tga.IdempotencyKeyInFlight, w.lease(twice), twice.Begin(""))

		for _, class := range []string{"permanent_failure", "compensatable_failure", "compensated"} {
			final := w.ended(tga.StatusFailure, class)
			b := final.Again()
			b.RetryOf = final.TraceID
			w.refused("new attempt after "+class, tga.IdempotencyKeyInFlight, w.lease(b), b.Begin(""))
		}
	}},
	{"ANotSentKeyIsReservedAgainByWhoNamesIt", func(w *world) {
		end := func(b *Builder, attempt string) chain.Batch {
			return chain.Batch{Artifacts: []chain.NewArtifact{b.MintEffect(tga.StatusError, string(tga.ToolError), nil, tga.Meta{
				tga.MetaOutcomeClass: "not_sent", tga.MetaAttempt: tga.Number(attempt),
			})}}
		}
		doubtful := w.begun("")
		w.append(doubtful, chain.Batch{Notes: []chain.NewNote{note(tga.NoteAttempt, ledger.Mark{Attempt: 2, Epoch: uint64(w.lease(doubtful).Epoch)}.Body())}})
		w.refused("not_sent while attempt 1 may have been sent", tga.StateInvalidTransition, w.lease(doubtful), end(doubtful, "2"))

		first := w.begun("")
		w.append(first, end(first, "1"))
		w.release(first)
		if r := w.record(w.know(first)); r.Status != ledger.Settled || r.Class != ledger.ClassNotSent || r.Attempts.Unsent != 1 {
			w.Errorf("record %+v", r)
		}
		silent := first.Again()
		w.refused("a call that names nobody", tga.IdempotencyKeyInFlight, w.lease(silent), silent.Begin(""))
		asked := first.Again()
		asked.RetryOf = first.TraceID
		w.refused("a call of which only the request names it", tga.IdempotencyKeyInFlight, w.lease(asked), asked.Begin(""))
		stranger := first.Again()
		stranger.TakesOver = NewID()
		w.refused("a call that names another trace", tga.IdempotencyKeyInFlight, w.lease(stranger), stranger.Begin(""))
		other := first.Again()
		other.TakesOver, other.Proposal.Args = first.TraceID, []byte(`{"amount":6}`)
		w.refused("a call with another request", tga.IdempotencyKeyConflict, w.lease(other), other.Begin(""))
		again := first.Again()
		again.TakesOver = first.TraceID
		w.append(again, again.Begin(""))
		if r := w.record(w.know(again)); r.Status != ledger.Reserved || r.TraceID != again.TraceID || r.Attempts.Count != 1 || r.Attempts.Unsent != 0 {
			w.Errorf("record %+v", r)
		}
		twice := first.Again()
		twice.TakesOver = first.TraceID
		w.refused("a second call that names it", tga.IdempotencyKeyInFlight, w.lease(twice), twice.Begin(""))

		final := w.ended(tga.StatusFailure, "retryable_failure")
		b := final.Again()
		b.TakesOver = final.TraceID
		w.refused("retryable_failure, named by the call alone", tga.IdempotencyKeyInFlight, w.lease(b), b.Begin(""))
	}},
	{"CallAndEffectOfASentCallAreTwoBatches", func(w *world) {
		for _, attempt := range []string{"", tga.AttemptApart, tga.AttemptExternal} {
			b := New(w)
			batch := b.Begin(attempt)
			batch.Artifacts = append(batch.Artifacts, b.End(tga.StatusSuccess).Artifacts...)
			w.refused("attempt "+attempt, tga.StateInvalidTransition, w.lease(b), batch)
		}
	}},
	{"ConcurrentReservationsHaveOneWinner", func(w *world) {
		w.race(64)
		// The interval between reading a record and the commit is short. Two appends that start
		// together hit it more often than many that queue.
		for range 300 {
			w.race(4)
		}
	}},
}

// race lets n traces append a call with the same key at once. A quarter of them has
// another request.
func (w *world) race(n int) {
	w.Helper()
	first := New(w)
	builders, leases, batches, errs := make([]*Builder, n), make([]chain.Lease, n), make([]chain.Batch, n), make([]error, n)
	for i := range n {
		b := first.Again()
		if i%4 == 3 {
			b.Proposal.Args = []byte(`{"amount":6}`)
		}
		builders[i], leases[i], batches[i] = b, w.lease(b), b.Begin("")
	}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			_, errs[i] = w.s.Append(bg, leases[i], batches[i])
		})
	}
	close(start)
	wg.Wait()

	var won *Builder
	for i, b := range builders {
		if errs[i] == nil && won != nil {
			w.Fatalf("traces %v and %v both reserved one key", won.TraceID, b.TraceID)
		}
		if errs[i] == nil {
			won = b
		}
	}
	if won == nil {
		w.Fatalf("nobody reserved the key: %v", errs[0])
	}
	for i, b := range builders {
		want, entries := tga.IdempotencyKeyInFlight, 0
		if string(b.Proposal.Args) != string(won.Proposal.Args) {
			want = tga.IdempotencyKeyConflict
		}
		if b == won {
			want, entries = "", 3
		}
		if got := tga.CodeOf(errs[i]); len(w.entries(b.TraceID)) != entries || got != want {
			w.Errorf("racer %d: %d entries, %v, want %q", i, len(w.entries(b.TraceID)), errs[i], want)
		}
		w.release(b)
	}
	if r := w.record(w.know(first)); r == nil || r.TraceID != won.TraceID {
		w.Errorf("record %+v, won by %v", r, won.TraceID)
	}
}

// servedClaims are about calls that are never sent (meta.attempt none).
var servedClaims = []claim{
	{"ServedCopyLeavesTheRecordAlone", func(w *world) {
		for status, wrong := range map[string]string{tga.StatusSuccess: tga.StatusFailure, tga.StatusFailure: tga.StatusSuccess} {
			first := w.ended(status, "")
			key := w.know(first)
			before := *w.record(key)
			b := first.Again()
			w.append(b, b.Approved())
			lease := w.lease(b)
			w.refused("from another trace", tga.StateInvalidTransition, lease, b.Serve(NewID(), status))
			w.refused("with another status", tga.StateInvalidTransition, lease, b.Serve(first.TraceID, wrong))
			done := w.append(b, b.Serve(first.TraceID, status))
			if want, _ := tga.Next(tga.Executing, tga.EffectType, status); done.Head.State != want || len(done.Entries) != 2 {
				w.Errorf("%s: %+v", status, done)
			}
			if after := *w.record(key); after != before {
				w.Errorf("%s: the record changed from %+v to %+v", status, before, after)
			}
		}
	}},
	{"OnlyASettledRecordIsServed", func(w *world) {
		open := w.begun("")
		b := open.Again()
		w.append(b, b.Approved())
		w.refused("reserved", tga.StateInvalidTransition, w.lease(b), b.Serve(open.TraceID, tga.StatusSuccess))
		unused := New(w)
		w.append(unused, unused.Approved())
		w.refused("unused key", tga.StateInvalidTransition, w.lease(unused), unused.Serve(open.TraceID, tga.StatusSuccess))
		first := w.ended(tga.StatusSuccess, "")
		other := first.Again()
		other.Proposal.Args = []byte(`{"amount":6}`)
		w.append(other, other.Approved())
		w.refused("other request", tga.StateInvalidTransition, w.lease(other), other.Serve(first.TraceID, tga.StatusSuccess))
	}},
	{"RefusalEndsATraceWithoutTouchingTheLedger", func(w *world) {
		for name, first := range map[string]*Builder{"unused key": New(w), "reserved key": w.begun(""), "settled key": w.ended(tga.StatusSuccess, "")} {
			key := w.know(first)
			before := w.record(key)
			b := first.Again()
			w.append(b, b.Approved())
			done := w.append(b, b.Refuse(tga.CircuitOpen))
			after := w.record(key)
			if done.Head.State != tga.Failed || (before == nil) != (after == nil) || before != nil && *before != *after {
				w.Errorf("%s: %+v, record %+v, then %+v", name, done, before, after)
			}
		}
	}},
	{"CallThatIsNeverSentNeedsItsEffect", func(w *world) {
		b := New(w)
		w.append(b, b.Approved())
		lease := w.lease(b)
		w.refused("alone", tga.StateInvalidTransition, lease, Batch(b.MintCall(tga.AttemptNone)))
		fused := New(w)
		w.refused("alone, at the end of a batch", tga.StateInvalidTransition, w.lease(fused), fused.Begin(tga.AttemptNone))
		for _, status := range []string{tga.StatusSuccess, tga.StatusFailure, tga.StatusDenied} {
			batch := Batch(b.MintCall(tga.AttemptNone))
			batch.Artifacts = append(batch.Artifacts, b.End(status).Artifacts...)
			w.refused("with an invented "+status, tga.StateInvalidTransition, lease, batch)
		}
		noted := b.Refuse(tga.CircuitOpen)
		noted.Notes = []chain.NewNote{{Kind: tga.NoteAttempt, Who: "test", Body: ledger.Mark{Attempt: 1, Epoch: uint64(lease.Epoch)}.Body()}}
		w.refused("with an attempt", tga.StateInvalidTransition, lease, noted)
		unknown := *b
		call := unknown.Mint(&tga.Artifact{Type: tga.CallType, Meta: tga.Meta{tga.MetaAttempt: "later"}, Call: b.Call.Call})
		w.refused("meta.attempt that is none of the four", tga.ValidationError, lease, Batch(call))
		w.append(b, b.Refuse(tga.CircuitOpen))
	}},
}
