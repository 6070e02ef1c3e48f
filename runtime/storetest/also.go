package storetest

import (
	"sync"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func (w *world) undone(by *Builder) chain.NewNote {
	body, err := ledger.Undone{EffectDigest: by.Effect.Digest, TraceID: by.TraceID}.Body()
	if err != nil {
		w.Fatal(err)
	}
	return note(tga.NoteCompensated, body)
}

func (w *world) confirmation(finding string) chain.NewNote {
	body, err := ledger.Confirmation{Checked: 1, EvidenceDigest: tga.Digest{7}, Finding: finding}.Body()
	if err != nil {
		w.Fatal(err)
	}
	return note(tga.NoteConfirmation, body)
}

// alsoClaims are about notes that change a settled record, and about batches of two
// traces.
var alsoClaims = []claim{
	{"ConfirmationMarksTheSettledRecord", func(w *world) {
		b := w.ended(tga.StatusSuccess, "")
		key := w.know(b)
		w.append(b, chain.Batch{Notes: []chain.NewNote{w.confirmation(ledger.Mismatched)}})
		if r := w.record(key); r.ConfirmedAt != 0 {
			w.Errorf("a mismatch confirms: %+v", r)
		}
		done := w.append(b, chain.Batch{Notes: []chain.NewNote{w.confirmation(ledger.Confirmed)}})
		if r := w.record(key); r.ConfirmedAt != done.Notes[0].TS || r.EvidenceDigest != (tga.Digest{7}) || r.Status != ledger.Settled {
			w.Errorf("record %+v", r)
		}
		w.recordsAreFolds()
		open := w.begun("")
		w.refused("a confirmation before the effect", tga.StateInvalidTransition, w.lease(open), chain.Batch{Notes: []chain.NewNote{w.confirmation(ledger.Confirmed)}})
		w.refused("an attempt after the effect", tga.StateInvalidTransition, w.lease(b), mark(w.lease(b), 2, tga.Digest{}))
	}},
	{"TwoTracesCommitTogetherOrNeither", func(w *world) {
		first, by := w.ended(tga.StatusSuccess, ""), w.begun("")
		batch := by.End(tga.StatusSuccess)
		batch.Also = &chain.Also{Lease: w.lease(first), Notes: []chain.NewNote{w.undone(by)}}
		bad := batch
		for _, c := range []struct {
			name string
			also chain.Also
			code tga.Code
		}{
			{"a lease that was never granted", chain.Also{Lease: chain.Lease{TraceID: first.TraceID, Epoch: 1}, Notes: batch.Also.Notes}, tga.StateConcurrentExecution},
			{"no notes", chain.Also{Lease: w.lease(first)}, tga.ValidationError},
			{"the same trace", chain.Also{Lease: w.lease(by), Notes: batch.Also.Notes}, tga.ValidationError},
			{"a body that is none", chain.Also{Lease: w.lease(first), Notes: []chain.NewNote{note(tga.NoteCompensated, []byte(`{}`))}}, tga.ValidationError},
			{"a second trace that has not ended", chain.Also{Lease: w.lease(w.begun("")), Notes: batch.Also.Notes}, tga.StateInvalidTransition},
			{"a second trace with nothing to undo", chain.Also{Lease: w.lease(w.ended(tga.StatusFailure, "")), Notes: batch.Also.Notes}, tga.StateInvalidTransition},
		} {
			bad.Also = &c.also
			w.refused(c.name, c.code, w.lease(by), bad)
		}
		done := w.append(by, batch)
		if done.Head.State != tga.Completed || done.Replayed {
			w.Errorf("got %+v", done)
		}
		if r := w.record(w.know(first)); r.Class != ledger.ClassCompensated || r.TraceID != first.TraceID {
			w.Errorf("the first's record %+v", r)
		}
		if r := w.record(w.know(by)); r.Status != ledger.Settled || r.Class != ledger.ClassCommitted {
			w.Errorf("the second's record %+v", r)
		}
		if n := w.notes(first.TraceID); len(n) != 1 || n[0].Kind != tga.NoteCompensated {
			w.Errorf("notes %+v", n)
		}
		if again := w.append(by, batch); !again.Replayed {
			w.Errorf("again: %+v", again)
		}
		if n := w.notes(first.TraceID); len(n) != 1 {
			w.Errorf("a replayed batch wrote %d notes", len(n)-1)
		}
		w.recordsAreFolds()
		w.reopen()
		if r := w.record(w.know(first)); r.Class != ledger.ClassCompensated {
			w.Errorf("after a restart: %+v", r)
		}
		w.recordsAreFolds()
	}},
	{"CrossedBatchesDoNotWaitForEachOther", func(w *world) {
		// Two batches have each other's trace as their second. A store that takes the locks in
		// the order of the batch would deadlock.
		const rounds = 200
		a, b := w.ended(tga.StatusSuccess, ""), w.ended(tga.StatusSuccess, "")
		var done sync.WaitGroup
		for i := range 8 {
			one, other := w.lease(a), w.lease(b)
			if i%2 == 1 {
				one, other = other, one
			}
			done.Go(func() {
				for range rounds {
					_, err := w.s.Append(bg, one, chain.Batch{
						Notes: []chain.NewNote{w.confirmation(ledger.Confirmed)},
						Also:  &chain.Also{Lease: other, Notes: []chain.NewNote{w.confirmation(ledger.Mismatched)}},
					})
					if err != nil {
						w.Errorf("append: %v", err)
						return
					}
				}
			})
		}
		done.Wait()
		if n, m := len(w.notes(a.TraceID)), len(w.notes(b.TraceID)); n != 8*rounds || m != 8*rounds {
			w.Errorf("%d and %d notes", n, m)
		}
	}},
}
