package engine

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestTraceIsLockedOnceItsAppendsAreDurable: who has the lock reads the trace from the disk. Who does
// not get it, or not in time, holds nothing, and takes nothing from the one who holds it.
func TestTraceIsLockedOnceItsAppendsAreDurable(t *testing.T) {
	db, id := inMemory(t), numbered(1, 1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	free := func() bool {
		is := db.traces.locks.try(id)
		if is {
			db.traces.unlock(id)
		}
		return is
	}

	if err := db.traces.lock(ctx, id); err != nil || free() {
		t.Fatalf("nothing is under way: %v, free %v", err, free())
	}
	if err := db.traces.lock(ended, id); tga.CodeOf(err) != tga.StateLockAcquireFailed || free() {
		t.Errorf("somebody else has it: %v, free %v", err, free())
	}
	db.traces.unlock(id)

	g := &group{done: make(chan struct{})}
	s := &step{after: chain.NewTrace(id), commit: &commitment{group: g}}
	db.traces.tails.put(s)
	defer db.traces.tails.remove(s)
	if err := db.traces.lock(ended, id); tga.CodeOf(err) != tga.StateLockAcquireFailed || !free() {
		t.Errorf("an append is under way: %v, free %v", err, free())
	}
	close(g.done)
	if err := db.traces.lock(ctx, id); err != nil || free() {
		t.Errorf("it is durable: %v, free %v", err, free())
	}
	db.traces.unlock(id)
	g.err = unknown(errors.New("no space"))
	if err := db.traces.lock(ctx, id); !errors.Is(err, g.err) || !free() {
		t.Errorf("it failed: %v, free %v", err, free())
	}
}

// TestEpochsEnd: after the last one of an open none is granted, and what was granted stays.
func TestEpochsEnd(t *testing.T) {
	var l leases
	l.init()
	l.begin(7)
	l.counter = math.MaxUint32 - 1
	id, other := numbered(1, 1), numbered(1, 2)
	lease, err := l.grant(id)
	if err != nil || lease.Epoch != 7<<32|math.MaxUint32 {
		t.Fatalf("%#x, %v", lease.Epoch, err)
	}
	for range 2 {
		if got, err := l.grant(other); tga.CodeOf(err) != tga.StoreUnavailable || got != (chain.Lease{}) || l.holds(other) {
			t.Errorf("%#x, %v", got.Epoch, err)
		}
	}
	if _, ok, err := l.overtake(id, false); ok || err == nil {
		t.Errorf("overtaken: %v, %v", ok, err)
	}
	if err := l.check(lease); err != nil {
		t.Error(err)
	}
}

// TestLeaseThatIsOverIsToldFromOneNeverGranted: by its epoch, up to the newest of this open. Neither is released.
func TestLeaseThatIsOverIsToldFromOneNeverGranted(t *testing.T) {
	var l leases
	l.init()
	l.begin(3)
	id := numbered(1, 1)
	for range 2 {
		if _, err := l.grant(id); err != nil {
			t.Fatal(err)
		}
	}
	for _, held := range []bool{true, false} {
		for epoch, want := range map[chain.Epoch]tga.Code{
			3<<32 | 2: map[bool]tga.Code{true: "", false: tga.StateConcurrentExecution}[held],
			3<<32 | 1: tga.StateConcurrentExecution, 2<<32 | 9: tga.StateConcurrentExecution,
			3<<32 | 3: tga.StateLockAcquireFailed, 4<<32 | 1: tga.StateLockAcquireFailed,
			3 << 32: tga.StateLockAcquireFailed, 2 << 32: tga.StateLockAcquireFailed, 0: tga.StateLockAcquireFailed,
		} {
			lease := chain.Lease{TraceID: id, Epoch: epoch}
			if err := l.check(lease); tga.CodeOf(err) != want {
				t.Errorf("held %v, epoch %#x: %v", held, epoch, err)
			}
			if want != "" && l.release(lease) {
				t.Errorf("held %v, epoch %#x is released", held, epoch)
			}
		}
		if held && !l.release(chain.Lease{TraceID: id, Epoch: 3<<32 | 2}) {
			t.Error("the current lease is not released")
		}
	}
}
