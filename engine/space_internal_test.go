package engine

import (
	"bytes"
	"log/slog"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestBallastIsLaidAboveTheLowWaterMark: it takes nothing of the room that ending what is open needs.
// It is tried with as much room as it takes above the mark, and with one byte less.
func TestBallastIsLaidAboveTheLowWaterMark(t *testing.T) {
	const lowWater, bytes = 1000, 300
	for free, laid := range map[uint64]bool{lowWater + bytes: true, lowWater + bytes - 1: false, lowWater - bytes: false} {
		fs := vfs.NewMem()
		if err := fs.MkdirAll("store", 0o700); err != nil {
			t.Fatal(err)
		}
		s := &space{fs: &someFree{fs, free}, dir: "store", lowWater: lowWater}
		s.layBallast(slog.New(slog.DiscardHandler), bytes)
		_, err := fs.Stat("store/" + ballastName)
		if (err == nil) != laid || s.ballast.Load() != laid {
			t.Errorf("%d bytes are free: laid %v, said %v", free, err == nil, s.ballast.Load())
		}
	}
}

// TestBallastThatIsNotWholeIsRemoved: a disk that fills up while the ballast is laid.
func TestBallastThatIsNotWholeIsRemoved(t *testing.T) {
	disk := &allocating{someFree: &someFree{vfs.NewMem(), 1 << 40}, err: syscall.ENOSPC}
	if err := disk.MkdirAll("store", 0o700); err != nil {
		t.Fatal(err)
	}
	s := &space{fs: disk, dir: "store"}
	s.layBallast(slog.New(slog.DiscardHandler), 300)
	if _, err := disk.Stat("store/" + ballastName); err == nil || s.ballast.Load() {
		t.Errorf("it is there: %v, and known: %v", err == nil, s.ballast.Load())
	}
}

// TestBallastOfAnEarlierProcessIsRegained: it is given up when a flush needs its room, although there is no room to lay
// one now; and at the open, where the log could not begin a segment without it.
func TestBallastOfAnEarlierProcessIsRegained(t *testing.T) {
	disk := &someFree{vfs.NewMem(), 1 << 40}
	var said bytes.Buffer
	o := Options{FS: disk, MemTableBytes: 1 << 20, FirstSegmentBytes: 1 << 20, SegmentBytes: 1 << 20, RewriteShare: -1, Logger: slog.New(slog.NewTextHandler(&said, nil))}
	for _, c := range []struct {
		free        uint64
		kept, known bool
	}{{1 << 40, true, true}, {2 << 20, true, true}, {1<<20 - 1, false, false}, {1<<20 - 1, false, false}, {1 << 40, true, true}} {
		atomic.StoreUint64(&disk.free, c.free)
		db, err := Open("store", o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := disk.Stat("store/" + ballastName); (err == nil) != c.kept || db.space.ballast.Load() != c.known {
			t.Errorf("%d bytes are free: it is there %v, known %v", c.free, err == nil, db.space.ballast.Load())
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(said.String(), "reserved disk space was freed"); n != 1 {
		t.Errorf("it is given up %d times", n)
	}
}

// allocating notes how many bytes were set aside for the ballast.
type allocating struct {
	*someFree
	bytes int64
	err   error
}

func (a *allocating) Unwrap() vfs.FS { return a.someFree }

func (a *allocating) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := a.someFree.Create(name, c)
	if err == nil && path.Base(name) == ballastName {
		return &allocated{f, a}, nil
	}
	return f, err
}

type allocated struct {
	vfs.File
	of *allocating
}

func (a *allocated) Preallocate(_, n int64) error { a.of.bytes = n; return a.of.err }

// TestBallastIsFourMemtables, and no more than half of the log: a small store does not set aside more than it takes.
func TestBallastIsFourMemtables(t *testing.T) {
	serial.Test(t)
	for _, c := range []struct {
		memtable uint64
		want     func(log int64) int64
	}{
		{1 << 20, func(int64) int64 { return 4 << 20 }},
		{16 << 20, func(log int64) int64 { return log / 2 }},
	} {
		disk := &allocating{someFree: &someFree{vfs.NewMem(), 1 << 40}}
		db, err := Open("store", Options{FS: disk, MemTableBytes: c.memtable, FirstSegmentBytes: 12 << 20, SegmentBytes: 12 << 20, RewriteShare: -1})
		if err != nil {
			t.Fatal(err)
		}
		if log := db.wal.Size(); disk.bytes != c.want(log) || log/2 < 4<<20 || log/2 > 64<<20 {
			t.Errorf("memtables of %d bytes and a log of %d: %d bytes are set aside", c.memtable, log, disk.bytes)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFullDiskRefusesWhatBegins: a full disk refuses the first entry of a trace. Open traces may still end. A batch
// without an entry begins no trace, so the disk space does not refuse it.
func TestFullDiskRefusesWhatBegins(t *testing.T) {
	db := &DB{standing: new(standing)}
	db.space = space{fs: &someFree{vfs.NewMem(), 9}, lowWater: 10}
	begun := chain.NewTrace(numbered(1, 1))
	begun.Head.Seq = 1
	entry := chain.Batch{Artifacts: []chain.NewArtifact{{}}}
	for _, c := range []struct {
		trace *chain.Trace
		batch chain.Batch
		code  tga.Code
	}{
		{chain.NewTrace(numbered(1, 1)), entry, tga.StoreUnavailable},
		{chain.NewTrace(numbered(1, 1)), chain.Batch{Notes: []chain.NewNote{{}}}, ""},
		{begun, entry, ""},
	} {
		if err := db.expect(fold{Trace: c.trace}, c.batch); tga.CodeOf(err) != c.code {
			t.Errorf("%d entries behind seq %d: %v, want %q", len(c.batch.Artifacts), c.trace.Head.Seq, err, c.code)
		}
	}
}

// asked counts how often the file system was asked for its free space.
type asked struct {
	*someFree
	times int
}

func (a *asked) Unwrap() vfs.FS { return a.someFree }

func (a *asked) GetDiskUsage(dir string) (vfs.DiskUsage, error) {
	a.times++
	return a.someFree.GetDiskUsage(dir)
}

// TestFreeSpaceIsBelievedForAWhile: a measurement that is younger than spaceAge is used again, an
// older one is not.
func TestFreeSpaceIsBelievedForAWhile(t *testing.T) {
	for age, anew := range map[time.Duration]bool{-time.Hour: false, spaceAge: true, 2 * spaceAge: true} {
		fs := &asked{someFree: &someFree{vfs.NewMem(), 7}}
		s := &space{fs: fs, dir: "store"}
		for n, want := range []int{1, map[bool]int{false: 1, true: 2}[anew]} {
			free, known, err := s.measure()
			if free != 7 || !known || err != nil || fs.times != want {
				t.Errorf("question %d, the measurement is %v old: %d bytes, known %v, asked %d times, want %d, %v", n, age, free, known, fs.times, want, err)
			}
			s.checked = time.Now().Add(-age) // an age below 0 never ends while the test runs
		}
	}
}
