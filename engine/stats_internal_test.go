package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestStatsAddUp: the disk that a store takes is that of the log and of the index together, what waits
// to be compressed is what the rewriter would find, and the counts are those of their parts. A store
// that is closed says no more of its files, and that it was not poisoned by the close.
func TestStatsAddUp(t *testing.T) {
	disk := &someFree{vfs.NewMem(), 1 << 40}
	db, err := Open("store", Options{FS: disk, FirstSegmentBytes: 4 << 20, SegmentBytes: 4 << 20, RewriteShare: -1, LowWaterBytes: 7})
	if err != nil {
		t.Fatal(err)
	}
	for i := range byte(40) {
		w := db.commits.newWriter()
		w.body([]byte{'x', i}, make([]byte, 256<<10))
		if err := db.commits.apply(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.health.awaited(db.index.p.Flush); err != nil {
		t.Fatal(err)
	}
	var s Stats
	for { // the next segment of the log is still being filled, and files of the index are still being removed
		log, index := uint64(db.wal.Size()), db.index.p.Metrics().DiskSpaceUsage()
		s = db.Stats()
		if log != uint64(db.wal.Size()) || index != db.index.p.Metrics().DiskSpaceUsage() {
			continue
		}
		if index == 0 || s.LogBytes != log || s.DiskBytes != log+index {
			t.Errorf("%d bytes of the log and %d of the index are said to be %d and %d", log, index, s.LogBytes, s.DiskBytes)
		}
		break
	}
	raw, bytes := db.rewriting.raw(minRewrite)
	if len(raw) < 2 || s.UncompressedSegments != len(raw) || s.UncompressedBytes != bytes {
		t.Errorf("%d segments of %d bytes wait, want %d of %d", s.UncompressedSegments, s.UncompressedBytes, len(raw), bytes)
	}
	var sum int64
	for _, seg := range raw {
		sum += seg.Records + seg.Idle
	}
	if bytes != sum {
		t.Errorf("what waits is said to have %d bytes, and has %d", bytes, sum)
	}
	if s.LogSyncs != uint64(db.wal.Syncs()) || s.Commits < 40 || s.FreeBytes != 1<<40 || !s.FreeKnown || s.LowWater != 7 || s.Poisoned != "" || s.Frozen != "" {
		t.Errorf("%+v", s)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if s := db.Stats(); s.Poisoned != "" || s.DiskBytes != 0 || s.LogBytes != 0 || s.UncompressedSegments != 0 {
		t.Errorf("closed: %+v", s)
	}
}
