package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFlushIsMarkedBeforeItsLogIsReused looks, before every removal and every reuse of a
// log, at what a power cut would leave of the watermark at that moment.
func TestFlushIsMarkedBeforeItsLogIsReused(t *testing.T) {
	mem := crashmem.New()
	var removed, reused atomic.Int64
	fsys := hook(mem, func(op errorfs.Op) error {
		name := mem.PathBase(op.Path)
		if !isLog(name) {
			return nil
		}
		switch op.Kind {
		case errorfs.OpRemove:
			removed.Add(1)
		case errorfs.OpReuseForWrite:
			reused.Add(1)
		default:
			return nil
		}
		m, err := ReadWatermark(mem.CrashClone(vfs.CrashCloneCfg{}), dir)
		if err != nil || m.FlushedWAL <= logNumber(t, name) {
			t.Errorf("%v %s: the watermark says flushed below %d, %v", op.Kind, name, m.FlushedWAL, err)
		}
		return nil
	})
	acked := 0
	for range 3 {
		s := mustOpen(t, fsys, settings{memtable: 64 << 10})
		s.acked = acked
		for range 8 {
			s.add(10, 3000)
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		acked = s.acked
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	if removed.Load() == 0 || reused.Load() == 0 {
		t.Errorf("%d logs removed, %d reused", removed.Load(), reused.Load())
	}
}

// TestCountsAreWhatTheFileSystemSaw counts beside the file system, below it.
func TestCountsAreWhatTheFileSystemSaw(t *testing.T) {
	mem := crashmem.New()
	var mu sync.Mutex
	var want Counts
	s := mustOpen(t, hook(mem, func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		c := &want[classOf(mem.PathBase(op.Path))]
		switch op.Kind {
		case errorfs.OpFileWrite, errorfs.OpFileWriteAt:
			c.Writes++
		case errorfs.OpFileSync, errorfs.OpFileSyncData:
			c.Syncs++
		}
		return nil
	}), settings{memtable: 64 << 10})
	before := s.fs.Counts()
	s.add(1, 100)
	if d := s.fs.Counts()[ClassLog]; d.Syncs-before[ClassLog].Syncs != 1 || d.Writes-before[ClassLog].Writes != 1 {
		t.Errorf("one commit: %+v, before %+v", d, before[ClassLog])
	}
	s.add(100, 2000)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	for class, got := range s.fs.Counts() {
		w := want[class]
		if Class(class) == ClassOther {
			// A new MANIFEST's directory is synced below, uncounted, with its first sync.
			w.Syncs, got.Syncs = 0, 0
		}
		if got.Writes != w.Writes || got.Syncs != w.Syncs {
			t.Errorf("%s: counted %+v, seen %+v", Class(class), got, w)
		}
	}
	if c := s.fs.Counts(); c[ClassTable].Bytes == 0 || c[ClassManifest].Bytes == 0 || c[ClassLog].Bytes < 200_000 {
		t.Errorf("%+v", c)
	}
}

// TestSparesAreUsedAndNeverReadAsRecords fills the spares with the worst there could be:
// chunks of the very log that will be written there.
func TestSparesAreUsedAndNeverReadAsRecords(t *testing.T) {
	mem := crashmem.New()
	s := mustOpen(t, mem, settings{spares: 2})
	s.add(20, 200)
	img := crash(t, "", s, mem)
	log := img.files[newest(img.files, isLog)]
	if len(log) < 256<<10 {
		t.Errorf("%s has %d bytes: not from a spare", newest(img.files, isLog), len(log))
	}
	// Another run finds spares that hold records, are too short and too many.
	change := map[string][]byte{}
	const size = spareWrite + 100 // more than one write
	for i, b := range [][]byte{log, log[:100], make([]byte, size-1), make([]byte, size), make([]byte, size+1)} {
		change[fmt.Sprintf("%s%d", sparePrefix, i)] = b
	}
	again := memFS(t, img.files, change)
	fsys := FS(again, FSOptions{Dir: dir, Spares: 2, SpareBytes: size})
	if err := fsys.PrepareSpares(); err != nil {
		t.Fatal(err)
	}
	spares := 0
	for name, b := range files(t, again) {
		if strings.HasPrefix(name, sparePrefix) {
			spares++
			if !allZero(b) || len(b) != size {
				t.Errorf("%s: %d bytes, all zero: %v", name, len(b), allZero(b))
			}
		}
	}
	if spares != 2 {
		t.Errorf("%d spares, want 2", spares)
	}
	if got, err := judge(t, again, settings{spares: 2}, img.acked); got != harmless {
		t.Errorf("%s: %v", got, err)
	}
}

// TestPebbleLeavesForeignFilesAlone: the watermark and the spares outlive opens, and no
// backup takes them along.
func TestPebbleLeavesForeignFilesAlone(t *testing.T) {
	mem := crashmem.New()
	s := mustOpen(t, mem, settings{})
	s.add(5, 100)
	foreign := map[string][]byte{sparePrefix + "7": make([]byte, 100)}
	img := crash(t, "", s, mem)
	base := memFS(t, img.files, foreign)
	db, err := pebble.Open(dir, pebbleOptions(base, settings{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Flush(), db.Checkpoint("backup"), db.Close()); err != nil {
		t.Fatal(err)
	}
	after := files(t, base)
	for _, name := range []string{WatermarkName, sparePrefix + "7"} {
		if want := append(foreign[name], img.files[name]...); !bytes.Equal(after[name], want) {
			t.Errorf("%s changed", name)
		}
		if _, err := base.Stat(base.PathJoin("backup", name)); err == nil {
			t.Errorf("the backup holds %s", name)
		}
	}
}

// TestBackupIsNotTakenForTheStore: a backup writes a MANIFEST and a marker elsewhere.
func TestBackupIsNotTakenForTheStore(t *testing.T) {
	mem := crashmem.New()
	s := mustOpen(t, mem, settings{})
	s.add(5, 100)
	before := s.mark.Mark()
	if err := s.db.Checkpoint("backup"); err != nil {
		t.Fatal(err)
	}
	if after := s.mark.Mark(); after != before {
		t.Errorf("watermark before %+v, after %+v", before, after)
	}
	s.add(5, 100)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if after := s.mark.Mark(); after.FlushedWAL <= before.FlushedWAL {
		t.Errorf("a flush after the backup is not marked: %+v", after)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// TestFailedMarkFailsTheFlush: Pebble must not go on to reuse a log that the watermark
// does not know to be flushed.
func TestFailedMarkFailsTheFlush(t *testing.T) {
	mem := crashmem.New()
	fail := errors.New("no mark")
	fsys := FS(mem, FSOptions{Dir: dir, OnFlushed: func(uint64, uint64) error { return fail }})
	if err := mem.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Create(mem.PathJoin(dir, "MANIFEST-000001"), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("not yet current: %v", err)
	}
	m, err := fsys.Create(mem.PathJoin(dir, manifestMarker+"000001.MANIFEST-000001"), vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := syncDir(fsys, dir); !errors.Is(err, fail) {
		t.Errorf("sync of the marker: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, fail) {
		t.Errorf("sync of the current MANIFEST: %v", err)
	}
	if err := errors.Join(f.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

// TestOSFileSystem runs a store in a directory with health checks on, the watermark
// synced beside its writes.
func TestOSFileSystem(t *testing.T) {
	root := t.TempDir()
	var w *Watermark
	fsys := FS(vfs.Default, FSOptions{Dir: root, Spares: 2, SpareBytes: 300_000,
		OnFlushed: func(wal, seqnum uint64) error { return w.Flushed(wal, seqnum) }})
	if fsys.health == nil {
		t.Error("no health checks")
	}
	var err error
	if w, err = OpenWatermark(fsys, root, testStore, true); err != nil {
		t.Fatal(err)
	}
	if err := fsys.PrepareSpares(); err != nil {
		t.Fatal(err)
	}
	o := pebbleOptions(fsys, settings{memtable: 128 << 10})
	db, err := pebble.Open(root, o)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := w.SyncNow(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	var newest atomic.Uint64
	var writers sync.WaitGroup
	for g := range 4 {
		writers.Go(func() {
			for i := range 100 {
				b := db.NewBatch()
				if err := errors.Join(b.Set(key(1000*g+i), value(i, 1000), nil), db.Apply(b, pebble.Sync)); err != nil {
					t.Error(err)
					return
				}
				seqnum := uint64(b.SeqNum())
				if err := errors.Join(w.Advance(seqnum), b.Close()); err != nil {
					t.Error(err)
					return
				}
				for old := newest.Load(); old < seqnum && !newest.CompareAndSwap(old, seqnum); old = newest.Load() {
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	wg.Wait()
	if err := errors.Join(db.Close(), w.Close(), fsys.Close()); err != nil {
		t.Fatal(err)
	}
	r, m, err := Check(vfs.Default, root)
	if err != nil || m.Newest != newest.Load() || r.NewestSeqnum != m.Newest || m.FlushedWAL == 0 {
		t.Errorf("newest %d: %+v, mark %+v, %v", newest.Load(), r, m, err)
	}
}

var _ io.Writer = (*manifestReader)(nil)
