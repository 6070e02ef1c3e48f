package engine

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// spaceAge is how long a measurement of free space is believed.
const spaceAge = time.Second

// space refuses to begin traces while the disk is nearly full. Pebble cannot refuse:
// out of space its flushes fail without end and its commits block, so the room for
// ending what is open has to be kept before it comes to that.
type space struct {
	fs       vfs.FS
	dir      string
	lowWater uint64
	segment  int64 // of the log, in bytes: no segment is longer

	mu      sync.Mutex
	checked time.Time
	free    uint64
	known   bool // false where the file system does not say
	err     error

	ballast atomic.Bool // there is one
}

func (s *space) init(o Options, dir string) {
	s.fs, s.dir, s.lowWater, s.segment = o.FS, dir, o.LowWaterBytes, cmp.Or(int64(o.SegmentBytes), 64<<20) // [wal.Options] has this default
}

// nextSegment is how much the next segment of a log takes at most, in bytes: twice as much as the newest one.
func (s *space) nextSegment(log *wal.Log) int64 { return min(s.segment, 2*log.Size()) }

// measure returns the free space in bytes, at most spaceAge old. The age is measured
// with the process's own clock: the store's may stand still.
func (s *space) measure() (free uint64, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.checked.IsZero() || now.Sub(s.checked) >= spaceAge {
		usage, err := s.fs.GetDiskUsage(s.dir)
		s.checked, s.free, s.known, s.err = now, usage.AvailBytes, err == nil, err
		if errors.Is(err, vfs.ErrUnsupported) {
			s.err = nil
		}
	}
	return s.free, s.known, s.err
}

// admit returns STORE_UNAVAILABLE where a new trace must not be begun.
func (s *space) admit(id tga.ID) error {
	free, known, err := s.measure()
	switch {
	case err != nil:
		return tga.Errorf(tga.StoreUnavailable, "begin trace %s: free space is not known: %w", id, err).In(id)
	case known && free < s.lowWater:
		return tga.Errorf(tga.StoreUnavailable, "begin trace %s: free space is %d bytes, the low-water mark %d", id, free, s.lowWater).In(id)
	}
	return nil
}

// ballastName is a file that holds disk space for nothing but to give it up.
const ballastName = "BALLAST"

// regain knows again the ballast that an earlier process laid. Where the disk may not hold the next segment of
// the log, with which an open goes on after a crash, it gives the ballast up for that: a store that does not open
// can end nothing.
func (s *space) regain(log *slog.Logger, segment int64) {
	if _, err := s.fs.Stat(s.fs.PathJoin(s.dir, ballastName)); err != nil {
		return
	}
	s.ballast.Store(true)
	if free, known, err := s.measure(); err == nil && known && free < uint64(segment) {
		s.dropBallast(log)
	}
}

// layBallast sets aside space for flushes of the index, where there is more than enough. A store must open on a full disk too, so a failure is logged only.
func (s *space) layBallast(log *slog.Logger, bytes int64) {
	free, known, err := s.measure()
	if err != nil || !known || free < s.lowWater+uint64(bytes) {
		log.Warn("no ballast is laid", "free", free, "error", err)
		return
	}
	f, err := s.fs.Create(s.fs.PathJoin(s.dir, ballastName), vfs.WriteCategoryUnspecified)
	if err == nil {
		err = errors.Join(f.Preallocate(0, bytes), f.Close())
	}
	if err != nil {
		log.Warn("no ballast is laid", "error", err)
	}
	s.ballast.Store(err == nil)
}

// dropBallast gives the space to the flushes that just failed, once: the memtables
// drain and the commits that wait for them return.
func (s *space) dropBallast(log *slog.Logger) {
	if !s.ballast.Swap(false) {
		return
	}
	err := s.fs.Remove(s.fs.PathJoin(s.dir, ballastName))
	log.Warn("the ballast is given up", "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Time{} // there is more room now
}
