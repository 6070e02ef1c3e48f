package wal

import (
	"sync"
	"testing"
	"testing/synctest"
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
