package engine_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/schemas/tga"
)

// returns fails the test when f does not come back. The time is no measure: it is
// between a hang and a machine that has other things to do.
func returns(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s does not return", what)
		return nil
	}
}

// TestFailedFlushDoesNotHang was found by failing every operation while a store is made:
// a flush waited for a goroutine of Pebble that had ended with the store poisoned.
func TestFailedFlushDoesNotHang(t *testing.T) {
	for _, suffix := range []string{".sst", "MANIFEST-000001"} {
		fs := &faultFS{FS: vfs.NewMem(), suffix: suffix}
		fs.onSync(func(func() error) error { return errDisk })
		err := returns(t, "open with failing "+suffix, func() error {
			db, err := engine.Open("store", options(fs))
			if err == nil {
				err = db.Close() // which flushes
			}
			return err
		})
		if tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("%s: open: %v", suffix, err)
		}

		fs = &faultFS{FS: vfs.NewMem(), suffix: suffix}
		db, err := engine.Open("store", options(fs))
		if err != nil {
			t.Fatal(err)
		}
		run(t, db, spec{trace: id(1)})
		fs.onSync(func(func() error) error { return errDisk })
		err = returns(t, "flush with failing "+suffix, db.Flush)
		if tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("%s: flush: %v", suffix, err)
		}
		if err := returns(t, "close", db.Close); err == nil {
			t.Errorf("%s: close says nothing of the failure", suffix)
		}
	}
}
