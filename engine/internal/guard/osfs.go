package guard

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/access"
)

// osFS is the operating system's file system, on which every file and directory that is
// made belongs to this user alone. Pebble asks for modes 0666 and 0755 and leaves the rest
// to the umask; the process of an embedder has that of its other work.
type osFS struct{ vfs.FS }

// OS returns the file system of stores that lie on the operating system's.
func OS() vfs.FS { return osFS{vfs.Default} }

func (o osFS) Unwrap() vfs.FS { return o.FS }

// ours makes a file before the wrapped file system opens it, so that it never has
// another mode: who opens a file while it can be read reads all that is written later.
func ours(name string) error {
	f, err := access.Create(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// Create removes the file that is there, as vfs.Default does: it may have other links.
func (o osFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	err := ours(name)
	for errors.Is(err, fs.ErrExist) {
		if err := o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		err = ours(name)
	}
	if err != nil {
		return nil, err
	}
	return o.FS.OpenReadWrite(name, category)
}

func (o osFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := ours(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return o.FS.OpenReadWrite(name, category, opts...)
}

func (o osFS) Lock(name string) (io.Closer, error) {
	if err := ours(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return o.FS.Lock(name)
}

// MkdirAll pays no heed to the mode that it is asked for.
func (o osFS) MkdirAll(dir string, _ os.FileMode) error { return access.MkdirAll(dir) }
