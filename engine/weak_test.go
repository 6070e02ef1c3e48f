package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestWeakLeaseKeepsNobodyOut: a lease that was lent about another's trace is over as soon as
// anybody else takes the trace, by whatever way, and is no sign that somebody is at it.
func TestWeakLeaseKeepsNobodyOut(t *testing.T) {
	db := mem(t)
	own, foreign := func(*chain.Trace) bool { return true }, func(*chain.Trace) bool { return false }
	ctx := context.Background() // without a deadline: nobody waits
	n := uint64(0)
	for name, take := range map[string]func(tga.ID) (chain.Lease, error){
		"Acquire":               func(trace tga.ID) (chain.Lease, error) { return db.Acquire(ctx, trace) },
		"Overtake":              func(trace tga.ID) (chain.Lease, error) { return db.Overtake(ctx, trace, false) },
		"Overtake what is lent": func(trace tga.ID) (chain.Lease, error) { return db.Overtake(ctx, trace, true) },
		"Lend to its owner":     func(trace tga.ID) (chain.Lease, error) { return db.Lend(ctx, trace, own) },
	} {
		n++
		id := id(n)
		weak, err := db.Lend(ctx, id, foreign)
		if err != nil {
			t.Fatal(err)
		}
		if !db.Current(weak) || db.Holder(id) != ledger.HolderGone {
			t.Errorf("%s: the weak lease is current: %v, holder %v", name, db.Current(weak), db.Holder(id))
		}
		if _, err := db.Lend(ctx, id, foreign); tga.CodeOf(err) != tga.StateLockAcquireFailed {
			t.Errorf("%s: lent a second time: %v", name, err)
		}
		lease, err := take(id)
		if err != nil || db.Current(weak) || !db.Current(lease) || db.Holder(id) != ledger.HolderAlive {
			t.Errorf("%s: %v; weak %v, new %v", name, err, db.Current(weak), db.Current(lease))
		}
		db.Release(weak) // it is over: this ends nothing
		if !db.Current(lease) {
			t.Errorf("%s: the end of a weak lease ended another", name)
		}
		// While somebody is at it there is no weak lease either, and one that waits gets it.
		if _, err := db.Lend(ctx, id, foreign); tga.CodeOf(err) != tga.StateLockAcquireFailed {
			t.Errorf("%s: lent while it is held: %v", name, err)
		}
		waits, cancel := context.WithTimeout(ctx, time.Minute)
		got := make(chan error, 1)
		go func() {
			l, err := db.Lend(waits, id, foreign)
			db.Release(l)
			got <- err
		}()
		db.Release(lease)
		if err := <-got; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		// What a weak lease leaves is free.
		if lease, err = db.Acquire(ctx, id); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
		db.Release(lease)
	}
	if n := db.Stats().Leases; n != 0 {
		t.Errorf("%d leases are left", n)
	}
}
