package engine

import (
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestDefaultsAreThoseOfTheDocumentation: each where nothing is said, and none in the place of what is.
func TestDefaultsAreThoseOfTheDocumentation(t *testing.T) {
	d := Options{}.withDefaults()
	if d.FS == nil || d.Clock == nil || d.Rand != rand.Reader || d.Logger == nil {
		t.Errorf("%+v", d)
	}
	type sizes struct {
		lowWater, memTable   uint64
		cache, filter, trace int64
		count, share         int
	}
	of := func(o Options) sizes {
		return sizes{o.LowWaterBytes, o.MemTableBytes, o.CacheBytes, o.KeyFilterBytes, o.TraceCacheBytes, o.TraceCacheCount, o.RewriteShare}
	}
	if got, want := of(d), (sizes{1 << 30, 16 << 20, 64 << 20, 64 << 20, 64 << 20, 8192, 15}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for memTable, want := range map[uint64]uint64{128 << 20: 1 << 30, 128<<20 + 1: 1<<30 + 8} {
		if got := (Options{MemTableBytes: memTable}).withDefaults().LowWaterBytes; got != want {
			t.Errorf("the low-water mark beside memtables of %d bytes is %d, want %d", memTable, got, want)
		}
	}
	log, clock := slog.New(slog.DiscardHandler), time.Unix(7, 0)
	o := Options{
		FS: vfs.NewMem(), Rand: zeros{}, Logger: log, Clock: func() time.Time { return clock },
		LowWaterBytes: 1, MemTableBytes: 2, CacheBytes: 3, KeyFilterBytes: 4, TraceCacheBytes: 5, TraceCacheCount: 6, RewriteShare: -7,
	}
	given := o.withDefaults()
	if got, want := of(given), (sizes{1, 2, 3, 4, 5, 6, -7}); got != want || given.FS != o.FS || given.Rand != o.Rand || given.Logger != log || !given.Clock().Equal(clock) {
		t.Errorf("what is said becomes %+v", given)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
