package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func TestAcquireWaitsForItsDeadlineOnly(t *testing.T) {
	db := mem(t)
	lease := acquire(t, db, id(1))
	if db.Holder(id(1)) != ledger.HolderAlive || db.Holder(id(2)) != ledger.HolderGone {
		t.Error("holder")
	}
	var e *tga.Error
	if _, err := db.Acquire(context.Background(), id(1)); !errors.As(err, &e) || e.Code != tga.StateLockAcquireFailed || e.TraceID != id(1) {
		t.Errorf("without a deadline: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := db.Acquire(ctx, id(1)); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("at the deadline: %v", err)
	}
	append_(t, db, lease, spec{trace: id(1)}.make(t).begin()) // the holder's lease is as it was

	// A waiter gets the lease when it is released, with a higher epoch.
	long, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got := make(chan chain.Lease)
	go func() {
		next, err := db.Acquire(long, id(1))
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	db.Release(chain.Lease{TraceID: id(1), Epoch: lease.Epoch - 1}) // not current: nothing happens
	db.Release(lease)
	next := <-got
	if next.Epoch <= lease.Epoch {
		t.Errorf("epoch %#x after %#x", next.Epoch, lease.Epoch)
	}
	db.Release(lease) // no longer current: nothing happens
	if db.Holder(id(1)) != ledger.HolderAlive {
		t.Error("an old lease's release ended the new one")
	}
	_, err := db.Append(context.Background(), lease, spec{trace: id(1)}.make(t).end())
	wantCode(t, err, tga.StateConcurrentExecution)
	append_(t, db, next, spec{trace: id(1)}.make(t).end())
	db.Release(next)
	if n := db.Locked(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// TestOvertakeOfWhatIsLentWaitsForTheRest: with lentOnly Overtake waits for a lease that was acquired.
// Without a deadline it is refused at once; with a deadline it gets the lease when it is released.
func TestOvertakeOfWhatIsLentWaitsForTheRest(t *testing.T) {
	db := mem(t)
	lease := acquire(t, db, id(1))
	wantCode(t, returns(t, "an overtake without a deadline", func() error {
		_, err := db.Overtake(context.Background(), id(1), true)
		return err
	}), tga.StateLockAcquireFailed)
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := db.Overtake(short, id(1), true)
	wantCode(t, err, tga.StateLockAcquireFailed)
	if !db.Current(lease) {
		t.Fatal("a lease that was not lent is overtaken")
	}
	long, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got := make(chan chain.Lease)
	go func() {
		next, err := db.Overtake(long, id(1), true)
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	time.Sleep(5 * time.Millisecond) // most of the time it waits by then
	select {
	case next := <-got:
		t.Fatalf("%+v is granted beside %+v", next, lease)
	default:
	}
	db.Release(lease)
	if next := <-got; next.Epoch <= lease.Epoch || !db.Current(next) {
		t.Errorf("%+v after %+v", next, lease)
	}
}

func TestEpochsRiseOverRestarts(t *testing.T) {
	fs := vfs.NewMem()
	var last chain.Lease
	for range 3 {
		db, err := engine.Open("store", options(fs))
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, db, id(1))
		if lease.Epoch <= last.Epoch || lease.Epoch.Incarnation() != last.Epoch.Incarnation()+1 {
			t.Errorf("epoch %#x after %#x", lease.Epoch, last.Epoch)
		}
		if last.Epoch != 0 {
			_, err := db.Append(context.Background(), last, spec{trace: id(1)}.make(t).begin())
			wantCode(t, err, tga.StateConcurrentExecution)
		}
		last = lease
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Many goroutines acquire one trace: each gets it, and each holds it alone.
func TestOneHolderAtATime(t *testing.T) {
	db := mem(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	inside := 0
	for range 32 {
		wg.Go(func() {
			for range 20 {
				lease, err := db.Acquire(ctx, id(1))
				if err != nil {
					t.Error(err)
					return
				}
				inside++ // the race detector looks at this
				if inside != 1 {
					t.Errorf("%d holders", inside)
				}
				inside--
				db.Release(lease)
			}
		})
	}
	wg.Wait()
}

// Await returns when the reservation it waits for is settled and when its holder is
// gone, whichever moment that is at.
func TestAwaitMissesNoWakeUp(t *testing.T) {
	db := mem(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range uint64(100) {
		s := spec{trace: id(i + 1)}
		m := s.make(t)
		lease := acquire(t, db, s.trace)
		append_(t, db, lease, m.begin())
		seen, err := db.Record(ctx, s.ledgerKey())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := db.Await(ctx, s.ledgerKey(), *seen); err != nil {
					t.Error(err)
				}
			})
		}
		if i%2 == 0 {
			append_(t, db, lease, m.end())
			wg.Wait()
			db.Release(lease)
		} else {
			db.Release(lease)
			wg.Wait()
		}
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	db := mem(t)
	s := spec{trace: id(1)}
	lease := acquire(t, db, s.trace)
	append_(t, db, lease, s.make(t).begin())
	seen, err := db.Record(context.Background(), s.ledgerKey())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := db.Await(ctx, s.ledgerKey(), *seen); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("await: %v", err)
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	db, err := engine.Open("store", options(vfs.NewMem()))
	if err != nil {
		t.Fatal(err)
	}
	s := spec{trace: id(1)}
	lease := acquire(t, db, s.trace)
	append_(t, db, lease, s.make(t).begin())
	seen, err := db.Record(context.Background(), s.ledgerKey())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	results := make(chan error, 3)
	following := make(chan struct{})
	go func() { _, err := db.Acquire(ctx, s.trace); results <- err }()
	go func() { results <- db.Await(ctx, s.ledgerKey(), *seen) }()
	go func() {
		for _, err := range db.Follow(ctx, 0) {
			if err != nil {
				results <- err
				return
			}
			close(following)
		}
	}()
	<-following
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		wantCode(t, <-results, tga.StoreUnavailable)
	}
	for name, f := range map[string]func() error{
		"append":  func() error { _, err := db.Append(ctx, lease, s.make(t).end()); return err },
		"load":    func() error { _, err := db.Load(ctx, s.trace); return err },
		"acquire": func() error { _, err := db.Acquire(ctx, id(7)); return err },
		"check":   func() error { _, err := db.Check(ctx); return err },
		"record":  func() error { _, err := db.Record(ctx, s.ledgerKey()); return err },
	} {
		if err := f(); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("%s of a closed store: %v", name, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}
