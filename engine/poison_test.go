package engine

import (
	"errors"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// A fatal error of Pebble never returns to Pebble and never ends the process, and the store then
// returns STORE_UNAVAILABLE. In the caller's goroutine the fatal error becomes an error; a
// goroutine of Pebble's own ends.
func TestFatalNeverReturns(t *testing.T) {
	for name, call := range map[string]func(*DB, func()){
		"caller's goroutine": func(db *DB, f func()) {
			if err := db.health.guarded(func() error { f(); return nil }); tga.CodeOf(err) != tga.StoreUnavailable {
				t.Errorf("guarded call: %v", err)
			}
		},
		"deep in a caller's goroutine": func(db *DB, f func()) {
			err := db.health.guarded(func() error { return errors.Join(func() error { f(); return nil }()) })
			if tga.CodeOf(err) != tga.StoreUnavailable {
				t.Errorf("guarded call: %v", err)
			}
		},
		"pebble's goroutine": func(_ *DB, f func()) {
			done := make(chan struct{})
			go func() { defer close(done); f() }()
			<-done
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := Open("store", Options{FS: vfs.NewMem(), FirstSegmentBytes: 64 << 10, MemTableBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			call(db, func() {
				pebbleLog{&db.health}.Fatalf("no %s", "more")
				t.Error("Fatalf returned")
			})
			if _, err := db.Acquire(t.Context(), tga.ID{}); tga.CodeOf(err) != tga.StoreUnavailable {
				t.Errorf("acquire afterwards: %v", err)
			}
			if s := db.Stats(); s.Poisoned == "" {
				t.Error("not poisoned")
			}
			if err := db.Close(); name != "pebble's goroutine" && err != nil {
				t.Errorf("close: %v", err)
			} else if name == "pebble's goroutine" && tga.CodeOf(err) != tga.StoreUnavailable {
				t.Errorf("close with a goroutine of Pebble gone: %v", err)
			}
		})
	}
}

// A lock that is handed over while its waiter gives up is not lost.
func TestLockGivenUpIsPassedOn(t *testing.T) {
	var l locks[int]
	l.init()
	stop := make(chan struct{})
	for range 2000 {
		if !l.try(1) {
			t.Fatal("the lock is held by nobody")
		}
		ctx, cancel := contextWithCancel()
		done := make(chan error)
		go func() { done <- l.lock(ctx, stop, 1) }()
		go cancel()
		l.unlock(1)
		if err := <-done; err == nil {
			l.unlock(1)
		}
	}
	if len(l.held) != 0 {
		t.Errorf("%d names are held", len(l.held))
	}
}

// Folds are bounded by count and by bytes, the one used last stays.
func TestFoldCacheIsBounded(t *testing.T) {
	var c lru[tga.ID, fold]
	c.init(3, 10_000)
	f := func(n byte) (tga.ID, fold, int64) {
		t := newTestTrace(n)
		return tga.ID{n}, fold{Trace: t}, foldSize(t)
	}
	for n := range byte(4) {
		c.put(f(n))
		c.get(tga.ID{0})
	}
	if _, ok := c.get(tga.ID{0}); !ok {
		t.Error("the one used last is gone")
	}
	if _, ok := c.get(tga.ID{1}); ok {
		t.Error("the one not used is still there")
	}
	if n, _ := c.used(); n != 3 {
		t.Errorf("%d folds", n)
	}
	big := newTestTrace(9)
	big.Documents = append(big.Documents, bigDocument)
	c.put(tga.ID{9}, fold{Trace: big}, foldSize(big))
	if _, ok := c.get(tga.ID{9}); ok {
		t.Error("a fold larger than the bound is kept")
	}
	c.clear()
	if n, bytes := c.used(); n != 0 || bytes != 0 {
		t.Errorf("after clear: %d folds, %d bytes", n, bytes)
	}
}

// TestStoreThatIsCutOffMakesNoSegment: what makes the next segment of the log waits for its turn. It is told
// that there is none when the store is cut off from its disk, for then nobody closes the log.
func TestStoreThatIsCutOffMakesNoSegment(t *testing.T) {
	waiting := func() int {
		stacks := make([]byte, 8<<20)
		return strings.Count(string(stacks[:goruntime.Stack(stacks, true)]), "wal.(*spare).pace(")
	}
	before := waiting() // of stores of other tests
	db, err := Open("store", Options{FS: vfs.NewMem(), FirstSegmentBytes: 256 << 10, SegmentBytes: 256 << 10, RewriteShare: -1})
	if err != nil {
		t.Fatal(err)
	}
	w := db.commits.newWriter()
	w.body([]byte("mx"), make([]byte, 80<<10)) // over a quarter of the segment
	if err := db.commits.apply(w); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); waiting() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the next segment is not being made")
		}
	}
	db.health.breakOff() // as a goroutine of Pebble that does not go on
	db.health.poison(errors.New("a write failed"))
	if err := db.Close(); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("close: %v", err)
	}
	for end := time.Now().Add(10 * time.Second); waiting() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the next segment waits for ever")
		}
	}
}

// TestBrokenPebbleIsStuck: one whose goroutine ended in the middle of its work is not closed, also where its
// open never returned. Before there were files of the store there was no Pebble, and nothing is stuck.
func TestBrokenPebbleIsStuck(t *testing.T) {
	for _, c := range []struct {
		files  bool
		broken bool
		want   error
	}{{true, true, errStuck}, {false, true, nil}, {true, false, nil}, {false, false, nil}} {
		db := &opened{of: newStanding(Options{}.withDefaults())}
		if c.files {
			db.files = guard.FS(vfs.NewMem(), guard.FSOptions{})
		}
		if c.broken {
			db.of.health.breakOff()
		}
		if err := db.closePebble(); err != c.want {
			t.Errorf("files %v, broken %v: %v", c.files, c.broken, err)
		}
	}
}

// hangingTables is a file system on which the next table of Pebble is not made before goesOn is closed.
type hangingTables struct {
	vfs.FS
	on     atomic.Bool
	hangs  chan struct{}
	goesOn chan struct{}
}

func (f *hangingTables) Unwrap() vfs.FS { return f.FS }

func (f *hangingTables) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") && f.on.CompareAndSwap(true, false) {
		close(f.hangs)
		<-f.goesOn
	}
	return f.FS.Create(name, c)
}

// TestReleaseBesideAWriteThatHangs: nothing is given up before the write has ended, so that no other process
// opens the directory. An open that fails after it tried to open anew releases twice: the second time it
// returns too.
func TestReleaseBesideAWriteThatHangs(t *testing.T) {
	serial.Test(t) // it waits three times as long as a close waits for a write
	t.Parallel()
	fs := &hangingTables{FS: vfs.Default, hangs: make(chan struct{}), goesOn: make(chan struct{})}
	db, err := Open(filepath.Join(t.TempDir(), "store"), Options{FS: fs, RewriteShare: -1})
	if err != nil {
		t.Fatal(err)
	}
	fs.on.Store(true)
	p := db.index.p
	go func() { _ = p.Flush() }() // it ends with the process: Pebble is cut off from the disk
	<-fs.hangs
	db.health.poison(errors.New("a write failed"))
	for range 2 {
		done := make(chan error, 1)
		go func() { done <- db.release() }()
		select {
		case err := <-done:
			if tga.CodeOf(err) != tga.StoreUnavailable || db.lock == nil || db.files == nil {
				t.Fatalf("it is given up: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not return")
		}
	}
	close(fs.goesOn)
	if err := db.release(); tga.CodeOf(err) != tga.StoreUnavailable || db.lock != nil || db.files != nil {
		t.Errorf("after the write: %v", err)
	}
}

// TestCloseWaitsForTheLastCallInside: a closing store refuses new calls, and is drained when the last call
// leaves, not earlier. A second close is told that the store is closing.
func TestCloseWaitsForTheLastCallInside(t *testing.T) {
	var h health
	h.init(slog.New(slog.DiscardHandler))
	for range 2 {
		if err := h.enter(); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan bool, 1)
	go func() { done <- h.drain() }()
	<-h.stopped()
	if err := h.enter(); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a store that closes is entered: %v", err)
	}
	h.leave()
	select {
	case <-h.idle:
		t.Fatal("it is idle with a call inside")
	default:
	}
	h.leave()
	if !<-done || h.drain() {
		t.Error("it is drained twice, or not once")
	}
	h.reopen()
	if err := h.enter(); err != nil {
		t.Errorf("opened again: %v", err)
	}
	h.leave()
	select {
	case <-h.idle:
		t.Error("a store that is open is idle for good")
	default:
	}
}

// TestPanicOfPebbleInACloseIsItsError: the process lives, and the close says what happened.
func TestPanicOfPebbleInACloseIsItsError(t *testing.T) {
	db, err := Open("store", Options{FS: vfs.NewMem(), RewriteShare: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.index.p.Close(); err != nil { // whoever uses it now panics
		t.Fatal(err)
	}
	if err := db.Close(); tga.CodeOf(err) != tga.StoreUnavailable || !strings.Contains(err.Error(), "panic in pebble") {
		t.Errorf("%v", err)
	}
}
