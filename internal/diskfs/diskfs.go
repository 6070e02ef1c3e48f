// Package diskfs is the operating system's file system as a store uses it: what is made is accessible to this user alone, and a
// pipe in the place of a file is refused.
package diskfs

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/access"
)

// FS is the operating system's file system, but new files and directories are accessible to
// this user alone. [OS] returns it. Pebble asks for modes 0666 and 0755 and relies on the umask, but a program that
// embeds tgad may have any umask.
type FS struct{ vfs.FS }

// OS returns the file system for stores that lie on the operating system's file system.
func OS() vfs.FS { return FS{vfs.Default} }

// Unwrap returns the wrapped file system.
func (o FS) Unwrap() vfs.FS { return o.FS }

// ours makes a file with the right mode before the wrapped file system opens it. If the file were
// readable by others for a moment, a process that opened it then could read everything that is
// written later.
func ours(name string) error {
	f, err := access.Create(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// Create removes an existing file first, as vfs.Default does, because the file may have other links.
func (o FS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
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

// Link makes no second link to a symbolic link: the new name would lead to whatever the path in it then leads to, and
// whoever counts the links of the file would not see the name.
func (o FS) Link(oldname, newname string) error {
	if info, err := os.Lstat(oldname); err == nil && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "link", Path: oldname, Err: errNoFile}
	}
	return o.FS.Link(oldname, newname)
}

var errNoFile = errors.New("it is no regular file")

// file refuses a pipe or a device: to open a pipe waits until somebody writes to it.
func file(name string) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return &fs.PathError{Op: "open", Path: name, Err: errNoFile}
	}
	return nil // the open says what else is wrong
}

// Open opens a file or a directory for reading.
func (o FS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := file(name); err != nil {
		return nil, err
	}
	return o.FS.Open(name, opts...)
}

// OpenReadWrite makes the file if there is none.
func (o FS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := ours(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := file(name); err != nil {
		return nil, err
	}
	return o.FS.OpenReadWrite(name, category, opts...)
}

// Lock makes the file of the lock if there is none.
func (o FS) Lock(name string) (io.Closer, error) {
	if err := ours(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return o.FS.Lock(name)
}

// MkdirAll ignores the mode that it is asked for.
func (o FS) MkdirAll(dir string, _ os.FileMode) error { return access.MkdirAll(dir) }
