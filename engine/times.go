package engine

import (
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// times are the store's clock and the newest times that it has. They only rise, so a call needs
// no lock to read them: what it reads is no later than what it would read next.
type times struct {
	clock    func() time.Time
	newest   atomic.Int64 // newest commit time
	newestTS atomic.Int64 // newest ts of an entry
}

// now returns the clock, but never a time before the newest commit time, which it
// raises. The ts of an entry that a caller made is no clock: one from the far future
// stays in its trace.
func (t *times) now() tga.Millis {
	return tga.Millis(raise(&t.newest, int64(tga.MillisOf(t.clock()))))
}

// last returns a time not before any commit time and any ts stored.
func (t *times) last() tga.Millis { return tga.Millis(max(t.newest.Load(), t.newestTS.Load())) }

// raise makes a at least v and returns the larger.
func raise(a *atomic.Int64, v int64) int64 {
	for {
		old := a.Load()
		if v <= old {
			return old
		}
		if a.CompareAndSwap(old, v) {
			return v
		}
	}
}
