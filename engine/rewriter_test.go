package engine_test

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// busy is a store with full segments of a mebibyte, whose rewriter has that share.
func busy(t *testing.T, fs vfs.FS, share int) (*engine.DB, engine.Options) {
	t.Helper()
	o := readable(fs)
	o.FirstSegmentBytes, o.SegmentBytes, o.RewriteShare = 1<<20+64<<10, 1<<20+64<<10, share
	db := open(t, "store", o)
	for i := range uint64(120) {
		run(t, db, spec{trace: id(i + 1), key: "key-" + strconv.FormatUint(i+1, 10), args: `{"customer":"` + noise(i, 2) + `","lines":"` + strings.Repeat("one line of an order, ", 400) + `"}`})
	}
	return db, o
}

// until waits for a condition that another goroutine brings about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came to " + what)
		}
	}
}

// TestRewriteKeepsEveryRow compresses full segments: every value reads as before, here, after a
// reopen and with another index, and the floor of a restore stays, for nothing was left out.
func TestRewriteKeepsEveryRow(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	db, o := busy(t, fs, -1)
	before, want := db.Stats(), db.Dump()
	if before.UncompressedSegments < 2 || before.UncompressedBytes < 2<<20 || before.Rewritten != 0 {
		t.Fatalf("too little to do: %+v", before)
	}
	n, err := db.Rewrite(t.Context())
	if err != nil || n != before.UncompressedSegments {
		t.Fatalf("%d segments of %d: %v", n, before.UncompressedSegments, err)
	}
	after := db.Stats()
	if after.UncompressedSegments != 0 || after.UncompressedBytes != 0 || after.Rewritten != uint64(n) ||
		after.RewrittenFrom != uint64(before.UncompressedBytes) || after.RewrittenTo > after.RewrittenFrom*45/100 {
		t.Errorf("after: %+v", after)
	}
	names, err := fs.List("store/log")
	if err != nil {
		t.Fatal(err)
	}
	var packed int64
	for _, name := range names {
		if strings.HasSuffix(name, ".z") {
			info, err := fs.Stat("store/log/" + name)
			if err != nil {
				t.Fatal(err)
			}
			packed += info.Size()
			if _, err := fs.Stat("store/log/" + name[:16]); err == nil {
				t.Errorf("%s is still there raw", name)
			}
		}
	}
	if packed != int64(after.RewrittenTo) {
		t.Errorf("the files have %d bytes, and %d were written", packed, after.RewrittenTo)
	}
	if n, err := db.Rewrite(t.Context()); n != 0 || err != nil {
		t.Errorf("again: %d segments, %v", n, err)
	}
	for _, what := range []string{"at once", "after a reopen", "with another index"} {
		db.DropCaches()
		got := db.Dump()
		for _, m := range []map[string]string{got, want} {
			delete(m, "mincarnation") // each open raises it
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: other values", what)
		}
		check(t, db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if what != "at once" {
			if err := fs.RemoveAll("store/index"); err != nil {
				t.Fatal(err)
			}
		}
		if db, err = engine.Open("store", o); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRewriterCatchesUp lets the goroutine do it, while others read and append, and then gives it
// archived traces.
func TestRewriterCatchesUp(t *testing.T) {
	db, _ := busy(t, vfs.NewMem(), 400)
	until(t, "the end of what it had to compress", func() bool {
		if st, err := db.State(t.Context(), id(1)); err != nil || st.Current != tga.Completed {
			t.Fatalf("%+v %v", st, err)
		}
		s := db.Stats()
		return s.Rewritten > 0 && s.UncompressedSegments == 0
	})
	compressed := db.Stats().LogBytes
	if done, err := db.SealTraces(t.Context(), start+1); err != nil || done.Traces != 120 {
		t.Fatalf("%+v %v", done, err)
	}
	until(t, "the room of archived traces", func() bool {
		for _, dead := range engine.DeadBytes(db) {
			if dead > 0 {
				return false
			}
		}
		return db.Stats().UncompressedSegments == 0
	})
	t.Logf("%d bytes compressed, %d archived", compressed, db.Stats().LogBytes)
}

// TestNothingIsRewrittenWhereNothingMayBeWritten: no segment of a frozen store, or of a store that is
// open for reading, is rewritten.
func TestNothingIsRewrittenWhereNothingMayBeWritten(t *testing.T) {
	serial.Test(t)
	fs := vfs.NewMem()
	db, o := busy(t, fs, -1)
	if err := db.Backup(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := engine.Restore(t.Context(), "backup", "restored", o); err != nil {
		t.Fatal(err)
	}
	o.RewriteShare = 100
	frozen, err := engine.Open("restored", o)
	if err != nil {
		t.Fatal(err)
	}
	reading, err := engine.OpenReadOnly("store", o)
	if err != nil {
		t.Fatal(err)
	}
	for _, db := range []*engine.DB{frozen, reading} {
		if _, err := db.Rewrite(t.Context()); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("rewrite: %v", err)
		}
		if did, err := engine.RewriteStep(db); did || err != nil {
			t.Errorf("the rewriter would go on: %v", err)
		}
		if s := db.Stats(); s.Rewritten != 0 || s.UncompressedSegments == 0 {
			t.Errorf("%+v", s)
		}
	}
	if err := errors.Join(frozen.Unfreeze(t.Context(), true, "tester"), reading.Close()); err != nil {
		t.Fatal(err)
	}
	until(t, "work once the store is not frozen any more", func() bool { return frozen.Stats().UncompressedSegments == 0 })
	if err := frozen.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFullDiskEndsARewriteOnly: on a full disk the begun rewrite is removed, the store goes on, and the
// same segments are rewritten once there is room.
func TestFullDiskEndsARewriteOnly(t *testing.T) {
	serial.Test(t)
	fs := &faultFS{FS: vfs.NewMem(), suffix: "packing"}
	db, _ := busy(t, fs, -1)
	full := func() error { return syscall.ENOSPC }
	for _, what := range []string{"write", "sync"} {
		if what == "write" {
			fs.onWrite(func(func() (int, error)) (int, error) { return 0, full() })
		} else {
			fs.onWrite(func(real func() (int, error)) (int, error) { return real() })
			fs.onSync(func(func() error) error { return full() })
		}
		if n, err := db.Rewrite(t.Context()); n != 0 || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %d segments, %v", what, n, err)
		}
		if _, err := fs.Stat("store/log/packing"); err == nil {
			t.Errorf("%s: what was begun is still there", what)
		}
		run(t, db, spec{trace: id(1000 + uint64(len(what)))})
	}
	fs.onSync(nil)
	if n, err := db.Rewrite(t.Context()); n == 0 || err != nil {
		t.Errorf("%d segments, %v", n, err)
	}
	if why := db.Stats().Poisoned; why != "" {
		t.Error(why)
	}
}

// TestRewriteThatFailedIsTriedAgain: a segment with many unneeded bodies meets a full disk. The rewriter rewrites it
// once there is room.
func TestRewriteThatFailedIsTriedAgain(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem(), suffix: "packing"}
	o := readable(fs)
	o.FirstSegmentBytes, o.SegmentBytes, o.RewriteShare = 1<<20, 1<<20, -1
	db := open(t, "store", o)
	lease := acquire(t, db, id(1))
	append_(t, db, lease, spec{trace: id(1)}.make(t).begin())
	for i := range uint64(20) {
		append_(t, db, lease, chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: make([]byte, 32), Value: []byte(noise(i, 5000))}}})
	}
	dead := func() (n int64) {
		for _, bytes := range engine.DeadBytes(db) {
			n += bytes
		}
		return n
	}
	before, step := dead(), engine.RewriteSteps(db)
	fs.onWrite(func(func() (int, error)) (int, error) { return 0, syscall.ENOSPC })
	if _, err := step(); before == 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("with %d unneeded bytes: %v", before, err)
	}
	fs.onWrite(func(real func() (int, error)) (int, error) { return real() })
	for {
		did, err := step()
		if err != nil {
			t.Fatal(err)
		}
		if !did {
			break
		}
	}
	if left := dead(); left > 0 {
		t.Errorf("%d unneeded bytes are left of %d", left, before)
	}
}

// smallDisk says how much is free.
type smallDisk struct {
	vfs.FS
	free uint64
}

func (d *smallDisk) Unwrap() vfs.FS { return d.FS }

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free, TotalBytes: 1 << 40}, nil
}

// TestRewriteStaysAboveTheLowWaterMark: at the limit and one byte under it.
func TestRewriteStaysAboveTheLowWaterMark(t *testing.T) {
	for _, short := range []uint64{0, 1} {
		fs := &smallDisk{vfs.NewMem(), 1<<20 + 5000 - short}
		o := options(fs)
		o.LowWaterBytes = 1 << 20
		db := open(t, "store", o)
		if err := engine.RoomToRewrite(db, 4000); (err != nil) != (short > 0) || err != nil && tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("%d bytes short: %v", short, err)
		}
	}
}

// TestRewriterShare: what one goroutine rests, for so many percent of so many processors.
func TestRewriterShare(t *testing.T) {
	for _, c := range []struct {
		percent, processors int
		want                float64
	}{{15, 2, 7. / 3}, {50, 1, 1}, {100, 1, 0}, {15, 8, 0}, {1, 1, 99}, {25, 4, 0}} {
		if got := engine.RestOf(c.percent, c.processors); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%d %% of %d: %v, want %v", c.percent, c.processors, got, c.want)
		}
	}
}

// TestCloseEndsARewrite closes a store in the middle of a rewrite: nothing of it stays.
func TestCloseEndsARewrite(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem(), suffix: "packing"}
	entered := make(chan struct{}, 1000)
	hold := make(chan struct{})
	fs.onWrite(func(real func() (int, error)) (int, error) {
		entered <- struct{}{}
		<-hold
		return real()
	})
	db, o := busy(t, fs, 400)
	<-entered
	closed := make(chan error)
	go func() { closed <- db.Close() }()
	close(hold) // the write ends, and the rewrite with it
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat("store/log/packing"); err == nil {
		t.Error("what was begun is still there")
	}
	o.RewriteShare = -1
	db, err := engine.Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	check(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
