package engine_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// logFiles counts the files of a log.
func logFiles(t *testing.T, fs vfs.FS) (n int) {
	t.Helper()
	names, err := fs.List("store/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "0") {
			n++
		}
	}
	return n
}

// TestErasureWithoutRoomStopsNothing: where the disk may not hold what an erasure takes, nothing of it is begun,
// however often it is asked for. One that was begun before waits for room: the store opens, and takes calls to
// their ends.
func TestErasureWithoutRoomStopsNothing(t *testing.T) {
	disk := &smallDisk{vfs.NewMem(), 1 << 40}
	fs := &faultFS{FS: disk, suffix: "packing"}
	o := readable(fs)
	o.LowWaterBytes = 1 << 20
	first := func() *engine.DB {
		t.Helper()
		db, err := engine.Open("store", o)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	closed := func(db *engine.DB) {
		t.Helper()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, lasting := secretive(1, 10), spec{trace: id(2)}.make(t)
	db := first()
	run(t, db, s)
	append_(t, db, acquire(t, db, id(2)), lasting.begin())
	closed(db)

	disk.free = o.LowWaterBytes + 64<<10
	db = first()
	files := logFiles(t, disk)
	for range 3 {
		_, err := db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{s.trace}, Who: "operator", Reason: "the customer asked for it"})
		wantCode(t, err, tga.StoreUnavailable)
		if err == nil || !strings.Contains(err.Error(), "nothing was erased") {
			t.Fatal(err)
		}
	}
	if tr, err := db.Load(t.Context(), s.trace); err != nil || tr.Request == nil || len(tr.Notes) != 0 {
		t.Errorf("the trace is %+v, %v", tr, err)
	}
	if now := logFiles(t, disk); now != files {
		t.Errorf("the log has %d files, had %d", now, files)
	}
	closed(db)

	disk.free = 1 << 40
	db = first()
	fs.onWrite(func(func() (int, error)) (int, error) { return 0, syscall.ENOSPC })
	_, err := db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{s.trace}, Who: "operator", Reason: "the customer asked for it"})
	wantCode(t, err, tga.StoreUnavailable)
	closed(db)
	fs.onWrite(func(real func() (int, error)) (int, error) { return real() })

	disk.free = o.LowWaterBytes + 64<<10
	files = logFiles(t, disk)
	for range 3 {
		db = first()
		closed(db)
	}
	db = first()
	append_(t, db, acquire(t, db, id(2)), lasting.end())
	if now := logFiles(t, disk); now != files || db.Stats().Poisoned != "" {
		t.Errorf("the log has %d files, had %d; %s", now, files, db.Stats().Poisoned)
	}
	closed(db)

	disk.free = 1 << 40
	wantErased(t, open(t, "store", o), s)
}
