package engine

import (
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// times has the store's clock and the newest times in the store. These only rise, so a call reads
// them without a lock: a value that it reads is never later than the next value that it reads.
type times struct {
	clock    func() time.Time
	newest   atomic.Int64 // newest commit time
	newestTS atomic.Int64 // newest ts of an entry
}

// now returns the time of the clock, but never a time before the newest commit time, and raises
// the newest commit time to it. The ts of an entry that a caller made does not raise it: a ts far
// in the future affects only its own trace.
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
