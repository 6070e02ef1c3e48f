package storetest

import (
	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// reopen opens the store again; it skips the claim if the harness cannot do that.
func (w *world) reopen() {
	w.Helper()
	if w.h.Reopen == nil {
		w.Skip("the harness does not reopen its store")
	}
	w.s = w.h.Reopen()
	w.leases = map[tga.ID]chain.Lease{}
}

var reopenClaims = []claim{
	{"ReopenKeepsEverything", func(w *world) {
		w.ended(tga.StatusSuccess, "")
		w.ended(tga.StatusFailure, "retryable_failure")
		b := w.begun(tga.AttemptApart)
		w.append(b, mark(w.lease(b), 1, tga.Digest{}))
		w.append(b, notSent(1))
		batch := mark(w.lease(b), 2, tga.Digest{})
		batch.Attachments = []chain.Attachment{{Kind: chain.AttachApproval, Key: b.TraceID[:], Value: []byte("pending")}}
		w.append(b, batch)
		if _, err := w.s.WriteCheckpoint(bg, w.lease(b)); err != nil {
			w.Fatal(err)
		}
		pending := New(w)
		pending.Deadline = pending.TS + 5
		w.append(pending, Batch(pending.MintRequest()))
		before, newest, secret := w.dump(), w.s.NewestTS(), w.s.Secret()
		for range 2 {
			w.reopen()
			if diff := cmp.Diff(before, w.dump()); diff != "" {
				w.Errorf("reopening changed the store:\n%s", diff)
			}
			if w.s.Secret() != secret || secret == [32]byte{} {
				w.Error("the secret is another")
			}
			if w.s.NewestTS() < newest {
				w.Errorf("newest time %v, before %v", w.s.NewestTS(), newest)
			}
		}
		t, err := w.s.Load(bg, b.TraceID)
		if err != nil || t.Head.State != tga.Executing || len(t.Notes) != 3 || t.Call == nil {
			w.Errorf("load: %+v, %v", t, err)
		}
	}},
	{"ReopenEndsEveryLease", func(w *world) {
		b := w.begun("")
		old := w.lease(b)
		w.reopen()
		if h := w.s.Holder(b.TraceID); h == ledger.HolderAlive {
			w.Errorf("holder is %v", h)
		}
		w.refused("lease from before", tga.StateConcurrentExecution, old, b.End(tga.StatusSuccess))
		fresh := w.lease(b)
		if fresh.Epoch <= old.Epoch || fresh.Epoch.Incarnation() <= old.Epoch.Incarnation() {
			w.Errorf("epoch %x after %x", fresh.Epoch, old.Epoch)
		}
		w.refused("lease from before, beside a current one", tga.StateConcurrentExecution, old, b.End(tga.StatusSuccess))
		w.append(b, b.End(tga.StatusSuccess))
	}},
	{"ReopenedTraceGoesOn", func(w *world) {
		b := New(w)
		for _, batch := range []chain.Batch{Batch(b.MintRequest()), Batch(b.MintDecision(tga.Approve)), Batch(b.MintCall(""))} {
			w.append(b, batch)
			w.reopen()
		}
		again := b.Again()
		w.refused("its key is still reserved", tga.IdempotencyKeyInFlight, w.lease(again), again.Begin(""))
		w.append(b, mark(w.lease(b), 2, tga.Digest{}))
		w.reopen()
		ended := b.End(tga.StatusSuccess)
		w.append(b, ended)
		w.reopen()
		if done := w.append(b, ended); !done.Replayed {
			w.Errorf("appended again: %+v", done)
		}
		w.append(again, again.Approved())
		w.append(again, again.Serve(b.TraceID, tga.StatusSuccess))
		if r := w.record(w.know(b)); r.Status != ledger.Settled || r.Attempts.Count != 2 || r.TraceID != b.TraceID {
			w.Errorf("record %+v", r)
		}
	}},
}
