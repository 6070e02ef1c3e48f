package storetest

import (
	"errors"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var leaseClaims = []claim{
	{"StaleLeaseFenced", func(w *world) {
		b := New(w)
		old := w.lease(b)
		w.append(b, Batch(b.MintRequest()))
		if !w.s.Held(old) {
			w.Errorf("a lease that was granted is not held")
		}
		w.release(b)
		if w.s.Held(old) {
			w.Errorf("a lease that was released is held")
		}
		w.refused("released lease", tga.StateConcurrentExecution, old, Batch(b.MintDecision(tga.Approve)))
		fresh := w.lease(b)
		if fresh.Epoch <= old.Epoch || fresh.TraceID != b.TraceID {
			w.Errorf("lease %+v after %+v", fresh, old)
		}
		w.refused("overtaken lease", tga.StateConcurrentExecution, old, Batch(b.MintDecision(tga.Approve)))
		w.refused("note under an overtaken lease", tga.StateConcurrentExecution, old, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "test", Body: []byte(`{}`)}}})
		w.unchanged("checkpoint under an overtaken lease", tga.StateConcurrentExecution, func() error {
			_, err := w.s.WriteCheckpoint(bg, old)
			return err
		})
		w.s.Release(old) // has no effect
		if h := w.s.Holder(b.TraceID); h != ledger.HolderAlive {
			w.Errorf("the release of an overtaken lease ended the current one: %v", h)
		}
		w.append(b, Batch(b.MintDecision(tga.Approve)))
	}},
	{"OvertakenHolderAppendsNothing", func(w *world) {
		b := New(w)
		old := w.lease(b)
		w.append(b, Batch(b.MintRequest()))
		fresh, err := w.s.Overtake(bg, b.TraceID, false)
		if err != nil || fresh.Epoch <= old.Epoch {
			w.Fatalf("overtaken: %+v after %+v, %v", fresh, old, err)
		}
		if w.s.Current(old) || !w.s.Current(fresh) || w.s.Held(old) || !w.s.Held(fresh) {
			w.Errorf("current: old %v, new %v; held: old %v, new %v", w.s.Current(old), w.s.Current(fresh), w.s.Held(old), w.s.Held(fresh))
		}
		w.refused("overtaken lease", tga.StateConcurrentExecution, old, Batch(b.MintDecision(tga.Approve)))
		w.s.Release(old) // has no effect
		if h := w.s.Holder(b.TraceID); h != ledger.HolderAlive {
			w.Errorf("the release of an overtaken lease ended the current one: %v", h)
		}
		w.s.Release(fresh)
		if h := w.s.Holder(b.TraceID); h != ledger.HolderGone {
			w.Errorf("after the release: %v", h)
		}
		// A free lease is granted as usual.
		if fresh, err = w.s.Overtake(bg, b.TraceID, true); err != nil {
			w.Fatal(err)
		}
		// A holder inside this process is not overtaken for a vote.
		if _, err := w.s.Overtake(bg, b.TraceID, true); !errors.Is(err, tga.StateLockAcquireFailed) {
			w.Errorf("overtaken for a vote: %v", err)
		}
		w.s.Release(fresh)
	}},
	{"NoLeaseNoAppend", func(w *world) {
		b, other := New(w), New(w)
		w.know(b)
		batch := b.Begin("")
		lease := w.lease(other)
		lease.TraceID = b.TraceID
		for name, l := range map[string]chain.Lease{
			"none":                  {TraceID: b.TraceID},
			"that of another trace": lease,
			"one not granted yet":   {TraceID: b.TraceID, Epoch: lease.Epoch + 1000},
		} {
			before := w.dump()
			_, err := w.s.Append(bg, l, batch)
			if code := tga.CodeOf(err); code != tga.StateConcurrentExecution && code != tga.StateLockAcquireFailed {
				w.Errorf("%s: %v", name, err)
			}
			if w.dump() != before {
				w.Errorf("%s: the store has changed", name)
			}
		}
	}},
	{"AcquireNeverStealsALease", func(w *world) {
		b := New(w)
		w.lease(b)
		_, err := w.s.Acquire(bg, b.TraceID)
		if !errors.Is(err, tga.StateLockAcquireFailed) {
			w.Errorf("without a deadline: %v", err)
		}
		ctx, cancel := contextEnding(time.Millisecond)
		defer cancel()
		if _, err := w.s.Acquire(ctx, b.TraceID); !errors.Is(err, tga.StateLockAcquireFailed) {
			w.Errorf("until the context ended: %v", err)
		}
		w.append(b, b.Begin("")) // the holder still has the lease
	}},
	{"AcquireWaitsForRelease", func(w *world) {
		b := New(w)
		first := w.lease(b)
		got := make(chan chain.Lease)
		go func() {
			ctx, cancel := contextEnding(soon)
			defer cancel()
			l, err := w.s.Acquire(ctx, b.TraceID)
			if err != nil {
				w.Errorf("acquire: %v", err)
			}
			got <- l
		}()
		select {
		case l := <-got:
			w.Fatalf("granted %+v while %+v is held", l, first)
		case <-time.After(10 * time.Millisecond): // a wrong store may take the lease away only after a while
		}
		w.release(b)
		second := <-got
		if second.Epoch <= first.Epoch {
			w.Errorf("lease %+v after %+v", second, first)
		}
		if _, err := w.s.Append(bg, second, Batch(b.MintRequest())); err != nil {
			w.Error(err)
		}
		w.s.Release(second)
	}},
	{"HolderIsAliveOnlyWhileItHolds", func(w *world) {
		b := New(w)
		for range 2 {
			if h := w.s.Holder(b.TraceID); h == ledger.HolderAlive {
				w.Errorf("nobody holds the trace: %v", h)
			}
			w.lease(b)
			if h := w.s.Holder(b.TraceID); h != ledger.HolderAlive {
				w.Errorf("the trace is held: %v", h)
			}
			w.release(b)
		}
	}},
	{"TracesHaveLeasesOfTheirOwn", func(w *world) {
		a, b := New(w), New(w)
		la, lb := w.lease(a), w.lease(b)
		if la.Epoch == lb.Epoch {
			w.Errorf("two leases of one epoch: %+v, %+v", la, lb)
		}
		w.release(a)
		w.append(b, b.Begin(""))
	}},
}
