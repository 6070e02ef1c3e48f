package engine

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestRebuildOnAFullDiskReturns: an open makes the index anew, of more rows than the memtables hold, and the disk is full.
// Pebble's flushes fail until the store is poisoned, and its commits wait for a flush that never comes. The open returns.
func TestRebuildOnAFullDiskReturns(t *testing.T) {
	full := false
	disk := vfs.NewMem()
	o := Options{MemTableBytes: 1 << 20, RewriteShare: -1, LowWaterBytes: 1}
	o.FS = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			return syscall.ENOSPC
		}
		return nil
	}))
	db, err := Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range byte(200) {
		w := db.commits.newWriter()
		w.set([]byte{'x', i}, make([]byte, 64<<10)) // the row has the value
		if err := db.commits.apply(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := disk.RemoveAll("store/index"); err != nil {
		t.Fatal(err)
	}
	full = true
	done := make(chan error, 1)
	go func() {
		_, err := Open("store", o)
		done <- err
	}()
	select {
	case err := <-done:
		if tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("open: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the open does not return")
	}
	full = false
	if db, err = Open("store", o); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
