package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func confirmed(t *testing.T) []chain.NewNote {
	t.Helper()
	body, err := ledger.Confirmation{Checked: 1, EvidenceDigest: tga.Digest{7}, Finding: ledger.Confirmed}.Body()
	if err != nil {
		t.Fatal(err)
	}
	return []chain.NewNote{{Kind: tga.NoteConfirmation, Who: "tester", Body: body}}
}

// settled appends a whole call with a key.
func settled(t *testing.T, db interface {
	Append(context.Context, chain.Lease, chain.Batch) (chain.Appended, error)
}, lease chain.Lease, key string) {
	t.Helper()
	m := spec{trace: lease.TraceID, key: key}.make(t)
	for _, b := range []chain.Batch{m.begin(), m.end()} {
		if _, err := db.Append(context.Background(), lease, b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeysOfTwoTracesAreLockedInOneOrder: two appends have no trace in common, and name the same
// two keys in opposite order. If the keys were locked in the order in which they are named, the
// appends would deadlock. Each append is refused, because both keys are used; the test checks that
// it ends.
func TestKeysOfTwoTracesAreLockedInOneOrder(t *testing.T) {
	db := open(t, "store", options(vfs.NewMem()))
	leases := [5]chain.Lease{}
	for n := range uint64(4) {
		leases[n+1] = acquire(t, db, id(n+1))
	}
	settled(t, db, leases[1], "a")
	settled(t, db, leases[2], "b")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ended := make(chan error, 2)
	for _, x := range []struct {
		lease, second chain.Lease
		key           string
	}{{leases[3], leases[2], "a"}, {leases[4], leases[1], "b"}} {
		go func() {
			b := spec{trace: x.lease.TraceID, key: x.key}.make(t).begin()
			b.Also = &chain.Also{Lease: x.second, Notes: confirmed(t)}
			for range 2000 {
				if _, err := db.Append(ctx, x.lease, b); tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
					ended <- fmt.Errorf("append: %v", err)
					return
				}
			}
			ended <- nil
		}()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := db.Locked(); n != 0 {
		t.Errorf("%d names are still locked", n)
	}
}

// TestTwoTracesOfOneKeyAreRefused: an append to two traces with the same ledger key is refused.
func TestTwoTracesOfOneKeyAreRefused(t *testing.T) {
	db := open(t, "store", options(vfs.NewMem()))
	first, second := acquire(t, db, id(1)), acquire(t, db, id(2))
	settled(t, db, first, "a")
	b := spec{trace: id(2), key: "a"}.make(t).begin()
	b.Also = &chain.Also{Lease: first, Notes: confirmed(t)}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := db.Append(ctx, second, b)
	wantCode(t, err, tga.ValidationError)
	if n := db.Locked(); n != 0 {
		t.Errorf("%d names are still locked", n)
	}
}

// TestLocksOfTwoTracesAreTakenAllOrNone: an append that waits for one of its four locks
// until its context ends keeps none of the others.
func TestLocksOfTwoTracesAreTakenAllOrNone(t *testing.T) {
	db := open(t, "store", options(vfs.NewMem()))
	first, second := acquire(t, db, id(1)), acquire(t, db, id(2))
	settled(t, db, first, "a")
	settled(t, db, second, "b")
	b := chain.Batch{Notes: confirmed(t), Also: &chain.Also{Lease: second, Notes: confirmed(t)}}
	key := func(name string) engine.Lock { return db.LockKey(spec{trace: id(1), key: name}.ledgerKey().Hash()) }
	for name, lock := range map[string]func() engine.Lock{
		"the first trace":  func() engine.Lock { return db.LockTrace(id(1)) },
		"the second trace": func() engine.Lock { return db.LockTrace(id(2)) },
		"the first key":    func() engine.Lock { return key("a") },
		"the second key":   func() engine.Lock { return key("b") },
	} {
		held := lock()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		_, err := db.Append(ctx, first, b)
		cancel()
		wantCode(t, err, tga.StateLockAcquireFailed)
		if n := db.Locked(); n != 1 {
			t.Errorf("%s is held: %d names are locked", name, n)
		}
		held()
		if _, err := db.Append(context.Background(), first, b); err != nil {
			t.Errorf("%s was held: %v", name, err)
		}
	}
}
