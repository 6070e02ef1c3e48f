package engine

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// stuck is a disk that makes no directory.
type stuck struct {
	vfs.FS
	err error
}

func (d *stuck) Unwrap() vfs.FS { return d.FS }

func (d *stuck) MkdirAll(path string, mode os.FileMode) error {
	if d.err != nil {
		return d.err
	}
	return d.FS.MkdirAll(path, mode)
}

// TestBackupThatFailsHasACode: errors of the disk have no code and are returned as STORE_UNAVAILABLE. A
// cancelled backup returns the error of its context.
func TestBackupThatFailsHasACode(t *testing.T) {
	disk := &stuck{FS: vfs.NewMem()}
	db, err := Open("store", Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	disk.err = errors.New("read-only file system")
	if err := db.Backup(t.Context(), "copy"); !errors.Is(err, disk.err) || tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a disk that fails: %v", err)
	}
	disk.err = nil
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.Backup(ended, "copy"); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the context: %v", err)
	}
	if err := db.Backup(t.Context(), "copy"); err != nil {
		t.Error(err)
	}
}
