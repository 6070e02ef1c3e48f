package guard

import (
	"io"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/diskfs"
)

// FSOptions says how [FS] handles failures in Pebble's directory.
type FSOptions struct {
	// Index is Pebble's directory.
	Index string

	// OnLost is called when a sync of Pebble's directory failed. It should not return: Pebble
	// would panic in a place where nobody can recover. If it returns, Pebble gets the error.
	OnLost func(error)

	// OnFailed is called when any other changing operation of Pebble failed, or the listing of
	// its directory. Pebble gets the error that OnFailed returns; OnFailed need not return.
	// nil = pass the error on.
	OnFailed func(error) error

	// OnSlowDisk is called when an operation of Pebble's on the OS file system takes longer
	// than SlowDisk (0 = 5 s).
	OnSlowDisk func(vfs.DiskSlowInfo)
	SlowDisk   time.Duration
}

// Fenced is the file system that a store runs on; see [FS].
type Fenced struct {
	vfs.FS // with health checks if base is the operating system's
	health io.Closer
	index  string // opts.Index, in the form that PathDir returns for a file in it
	opts   FSOptions
	fence  fence
}

var _ vfs.FS = (*Fenced)(nil)

// FS wraps base for one store. Every changing operation passes a fence that can be shut, and
// failures of Pebble's operations are reported through o. Close it after the store.
func FS(base vfs.FS, o FSOptions) *Fenced {
	f := &Fenced{FS: base, opts: o}
	if o.Index != "" {
		f.index = base.PathDir(base.PathJoin(o.Index, "x"))
	}
	if _, ok := base.(diskfs.FS); ok || base == vfs.Default {
		// Pebble checks the disk's health only on a file system that it chose itself.
		slow, onSlow := o.SlowDisk, o.OnSlowDisk
		if slow == 0 {
			slow = 5 * time.Second
		}
		if onSlow == nil {
			onSlow = func(vfs.DiskSlowInfo) {}
		}
		f.FS, f.health = vfs.WithDiskHealthChecks(base, slow, nil, onSlow)
	}
	return f
}

// Close stops the health checks.
func (f *Fenced) Close() error {
	if f.health == nil {
		return nil
	}
	return f.health.Close()
}

// Unwrap returns the wrapped file system.
func (f *Fenced) Unwrap() vfs.FS { return f.FS }

// Create creates a file.
func (f *Fenced) Create(name string, category vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.fence.pass(func() error { file, err = f.FS.Create(name, category); return err })
	return f.wrap(file, err, name)
}

// ReuseForWrite renames a file and opens it for writing, its old bytes in place.
func (f *Fenced) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.fence.pass(func() error { file, err = f.FS.ReuseForWrite(oldname, newname, category); return err })
	return f.wrap(file, err, newname)
}

// OpenReadWrite opens a file for reading and writing. Pebble's health checks do not watch such
// files. That matters for the watermark: a watched file must not be synced while it is written,
// and the watermark is.
func (f *Fenced) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (file vfs.File, err error) {
	err = f.fence.pass(func() error { file, err = f.FS.OpenReadWrite(name, category, opts...); return err })
	return f.wrap(file, err, name)
}

// OpenDir opens a directory for syncing.
func (f *Fenced) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	pebble := f.pebbles(f.PathJoin(name, "x"))
	return &fencedFile{File: dir, fs: f, pebble: pebble, vital: pebble}, nil
}

// List lists a directory.
func (f *Fenced) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	return names, f.failed(f.pebbles(f.PathJoin(dir, "x")), err)
}

// pebbles reports whether a file lies in Pebble's directory.
func (f *Fenced) pebbles(name string) bool { return f.index != "" && f.PathDir(name) == f.index }

func (f *Fenced) failed(pebble bool, err error) error {
	if err == nil || !pebble || f.opts.OnFailed == nil {
		return err
	}
	return f.opts.OnFailed(err)
}

func (f *Fenced) wrap(file vfs.File, err error, name string) (vfs.File, error) {
	pebble := f.pebbles(name)
	if err != nil {
		return nil, f.failed(pebble, err)
	}
	return &fencedFile{File: file, fs: f, pebble: pebble}, nil
}

type fencedFile struct {
	vfs.File
	fs     *Fenced
	pebble bool // in Pebble's directory
	vital  bool // it is that directory itself, see [FSOptions.OnLost]
}

// change runs one operation that may change something on disk.
func (c *fencedFile) change(do func() error) error {
	err := c.fs.fence.pass(do)
	if err != nil && c.vital {
		return c.fs.lost(err)
	}
	return c.fs.failed(c.pebble, err)
}

func (c *fencedFile) Write(p []byte) (n int, err error) {
	err = c.change(func() error { n, err = c.File.Write(p); return err })
	return n, err
}

func (c *fencedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = c.change(func() error { n, err = c.File.WriteAt(p, off); return err })
	return n, err
}

func (c *fencedFile) Sync() error     { return c.change(c.File.Sync) }
func (c *fencedFile) SyncData() error { return c.change(c.File.SyncData) }

func (c *fencedFile) SyncTo(length int64) (full bool, err error) {
	err = c.change(func() error { full, err = c.File.SyncTo(length); return err })
	return full, err
}

func (c *fencedFile) Preallocate(offset, length int64) error {
	return c.fs.fence.pass(func() error { return c.File.Preallocate(offset, length) })
}

func (c *fencedFile) Close() error { return c.change(c.File.Close) }
