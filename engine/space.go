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

// spaceAge is how long a measurement of free space is reused.
const spaceAge = time.Second

// space refuses to begin traces while the disk is nearly full. Pebble itself does not refuse
// writes: on a full disk its flushes fail again and again and its commits block. So enough
// space to end the open traces must be kept free.
type space struct {
	fs       vfs.FS
	dir      string
	lowWater uint64
	segment  int64 // bytes; the largest size of a segment of the log

	mu      sync.Mutex
	checked time.Time
	free    uint64
	known   bool // false if the file system does not tell
	err     error

	ballast atomic.Bool // there is a ballast file
}

func (s *space) init(o Options, dir string) {
	s.fs, s.dir, s.lowWater, s.segment = o.FS, dir, o.LowWaterBytes, cmp.Or(int64(o.SegmentBytes), 64<<20) // [wal.Options] has this default
}

// nextSegment returns the most bytes that the next segment of a log takes: twice the size of the newest one.
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

// admit returns STORE_UNAVAILABLE if a new trace must not begin.
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

// ballastName is a file that only reserves disk space, so that the store can free it on a full disk.
const ballastName = "BALLAST"

// regain finds the ballast of an earlier process. After a crash an open needs disk space for the next segment of
// the log. If there may be too little, regain removes the ballast: a store that cannot be opened cannot end its
// open traces.
func (s *space) regain(log *slog.Logger, segment int64) {
	if _, err := s.fs.Stat(s.fs.PathJoin(s.dir, ballastName)); err != nil {
		return
	}
	s.ballast.Store(true)
	if free, known, err := s.measure(); err == nil && known && free < uint64(segment) {
		s.dropBallast(log)
	}
}

// layBallast reserves space for flushes of the index, if there is more than enough. A failure is only logged, because
// a store must open on a full disk too.
func (s *space) layBallast(log *slog.Logger, bytes int64) {
	free, known, err := s.measure()
	if err != nil || !known || free < s.lowWater+uint64(bytes) {
		log.Warn("no disk space reserved", "free", free, "error", err)
		return
	}
	path := s.fs.PathJoin(s.dir, ballastName)
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		if err = errors.Join(f.Preallocate(0, bytes), f.Close()); err != nil {
			err = errors.Join(err, s.fs.Remove(path)) // a part of it would take space for nothing
		}
	}
	if err != nil {
		log.Warn("no disk space reserved", "error", err)
	}
	s.ballast.Store(err == nil)
}

// dropBallast frees the reserved space, once, for the flushes that just failed. Then the
// memtables drain, and the commits that wait for them return.
func (s *space) dropBallast(log *slog.Logger) {
	if !s.ballast.Swap(false) {
		return
	}
	err := s.fs.Remove(s.fs.PathJoin(s.dir, ballastName))
	log.Warn("reserved disk space was freed", "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Time{} // there is more room now
}
