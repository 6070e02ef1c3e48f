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

// unsynced is a disk of which one directory cannot be synced, and which removes no lock file.
type unsynced struct {
	vfs.FS
	dir string
}

func (d *unsynced) Unwrap() vfs.FS { return d.FS }

func (d *unsynced) OpenDir(dir string) (vfs.File, error) {
	if dir == d.dir {
		return nil, errors.New("input/output error")
	}
	return d.FS.OpenDir(dir)
}

func (d *unsynced) Remove(name string) error {
	if d.PathBase(name) == makingName {
		return errors.New("input/output error")
	}
	return d.FS.Remove(name)
}

// TestNothingIsLeftUnderANameThatIsNotDurable: if a finished directory gets its name and that cannot be made
// durable, the name is free again, and the same call makes it. A lock file that stays in a finished
// directory is no error.
func TestNothingIsLeftUnderANameThatIsNotDurable(t *testing.T) {
	disk := &unsynced{FS: vfs.NewMem()}
	o := Options{FS: disk}
	db, err := Open("store", o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	for dir, make := range map[string]func(dir string) error{
		"backup":   func(dir string) error { return db.Backup(t.Context(), dir) },
		"restored": func(dir string) error { return Restore(t.Context(), "copy", dir, o) },
	} {
		if err := db.Backup(t.Context(), "copy"); err != nil {
			t.Fatal(err)
		}
		if disk.dir = disk.PathDir(dir); make(dir) == nil {
			t.Errorf("%s: no error", dir)
		}
		if _, err := disk.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", dir, err)
		}
		disk.dir = ""
		if err := make(dir); err != nil {
			t.Errorf("%s: again: %v", dir, err)
		}
	}
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
