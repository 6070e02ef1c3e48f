package wal

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// wakes counts how often the one who waits goes on: [sync.Cond.Wait] takes the lock again then.
type wakes struct {
	*sync.Mutex
	n int
}

func (w *wakes) Lock() { w.Mutex.Lock(); w.n++ }

// TestAppendWakesTheFillerForAPieceOnly: an append is a thousandth of what is filled at a time.
func TestAppendWakesTheFillerForAPieceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpare(Identity{})
		w := &wakes{Mutex: &s.mu}
		s.changed.L = w
		filled := int64(0)
		go func() {
			for n := int64(aPiece); n <= 3*aPiece; n += aPiece {
				if s.pace(n) != nil {
					return
				}
				filled = n
			}
		}()
		for n := int64(1); n <= 3*aPiece; n++ {
			synctest.Wait()
			s.allow(n)
			synctest.Wait()
			if want := n / aPiece * aPiece; filled != want {
				t.Fatalf("%d may be filled and %d are, want %d", n, filled, want)
			}
		}
		if w.n != 3 {
			t.Errorf("woken %d times for 3 pieces", w.n)
		}
	})
}

const aPiece = 100

// TestSpareThatCannotBeMadeTakesNoSpace: what was written of the next segment when the disk was full is removed. The segment is
// made once there is room.
func TestSpareThatCannotBeMadeTakesNoSpace(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpRename} {
		synctest.Test(t, func(t *testing.T) {
			var full atomic.Bool
			b := newBench(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && op.Kind == kind && op.Path == "log/"+spareName {
					return errors.New("no space")
				}
				return nil
			})))
			full.Store(true)
			for b.last.End < firstSegment*7/8 {
				b.append(1, 300<<10)
			}
			synctest.Wait()
			if _, err := b.fs.Stat("log/" + spareName); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("operation %d failed, and what there is of the segment stays: %v", kind, err)
			}
			full.Store(false)
			for b.last.Segment < 2 {
				b.append(1, 300<<10)
			}
			if r, err := b.read(); err != nil || !b.same(r) {
				t.Errorf("operation %d: %v", kind, err)
			}
		})
	}
}
