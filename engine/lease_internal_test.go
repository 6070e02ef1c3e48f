package engine

import (
	"context"
	"errors"
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
		is := db.traces.try(id)
		if is {
			db.traces.unlock(id)
		}
		return is
	}

	if err := db.lockTrace(ctx, id); err != nil || free() {
		t.Fatalf("nothing is under way: %v, free %v", err, free())
	}
	if err := db.lockTrace(ended, id); tga.CodeOf(err) != tga.StateLockAcquireFailed || free() {
		t.Errorf("somebody else has it: %v, free %v", err, free())
	}
	db.traces.unlock(id)

	g := &group{done: make(chan struct{})}
	s := &step{after: chain.NewTrace(id), commit: &commitment{group: g}}
	db.tails.put(s)
	defer db.tails.remove(s)
	if err := db.lockTrace(ended, id); tga.CodeOf(err) != tga.StateLockAcquireFailed || !free() {
		t.Errorf("an append is under way: %v, free %v", err, free())
	}
	close(g.done)
	if err := db.lockTrace(ctx, id); err != nil || free() {
		t.Errorf("it is durable: %v, free %v", err, free())
	}
	db.traces.unlock(id)
	g.err = unknown(errors.New("no space"))
	if err := db.lockTrace(ctx, id); !errors.Is(err, g.err) || !free() {
		t.Errorf("it failed: %v, free %v", err, free())
	}
}
