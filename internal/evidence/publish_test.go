package evidence_test

import (
	"context"
	"io"
	"iter"
	"math"
	"sync/atomic"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// behind is a store whose order ends a while before its traces do.
type behind struct {
	*engine.DB
	end    atomic.Uint64 // of the order
	asked  chan struct{} // gets an element when somebody waits for more than that
	caught chan struct{} // closed when the order has all
}

func (b *behind) Cursor() uint64 { return min(b.DB.Cursor(), b.end.Load()) }

func (b *behind) Follow(ctx context.Context, after uint64) iter.Seq2[engine.Leaf, error] {
	return func(yield func(engine.Leaf, error) bool) {
		for l, err := range b.DB.Follow(ctx, after) {
			if err == nil && l.Index > b.end.Load() {
				select {
				case b.asked <- struct{}{}:
				default:
				}
				select {
				case <-b.caught:
				case <-ctx.Done():
					yield(engine.Leaf{}, ctx.Err())
					return
				}
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// TestAppendThatIsBeingPublished: a trace may have an append a moment before the order ends with it. Receipts and evidence
// files wait for that moment. An error would say that the store has lost the append, and a monitor would raise an alarm.
func TestAppendThatIsBeingPublished(t *testing.T) {
	s := newStand(t)
	s.open()
	whole := s.append(1)
	open := s.appendMade(chaintest.Options{Seed: 2}, 2)
	s.append(3)
	s.covered()
	s.end()
	<-s.ended
	if err := s.k.Close(); err != nil {
		t.Fatal(err)
	}
	b := &behind{DB: s.db, asked: make(chan struct{}, 1), caught: make(chan struct{})}
	b.end.Store(math.MaxUint64)
	k, err := evidence.Open(t.Context(), b, s.dir, s.options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
	}()
	b.end.Store(s.db.Cursor())
	lease, err := s.db.Acquire(t.Context(), open)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Append(t.Context(), lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "me", Body: []byte(`{"attempt":1}`)}}}); err != nil {
		t.Fatal(err)
	}
	s.db.Release(lease)
	done := make(chan error, 2)
	go func() {
		r, err := k.Receipt(t.Context(), open)
		if err == nil && (r.Pending() != 1 || len(r.Leaves) != 3) {
			t.Errorf("%d leaves, %d are pending", len(r.Leaves), r.Pending())
		}
		done <- err
	}()
	go func() {
		done <- k.Export(t.Context(), io.Discard, evidence.Wanted{Traces: []tga.ID{whole, open}}, func(io.Writer, []tga.ID) error { return nil })
	}()
	select {
	case <-b.asked:
	case err := <-done:
		t.Fatalf("nobody waited: %v", err)
	}
	b.end.Store(math.MaxUint64)
	close(b.caught)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
