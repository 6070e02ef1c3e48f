package crashtest

import (
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Op is one operation that changes the file system.
type Op struct {
	N    int // counted from 1 in its process
	Kind string
	Path string
}

// Fault says how an operation fails. The zero Fault is no failure.
type Fault struct {
	Err error
	// Done says that the operation takes place although it is reported failed.
	Done bool
}

// The two errors that disks give.
var (
	ErrIO    error = syscall.EIO
	ErrSpace error = syscall.ENOSPC
)

// worldFS passes a point before each operation that changes the disk.
type worldFS struct {
	vfs.FS
	w *World
}

// Disk returns the file system as a process in the world sees it.
func (w *World) Disk() vfs.FS { return worldFS{w.FS, w} }

// Unwrap returns the file system below.
func (f worldFS) Unwrap() vfs.FS { return f.FS }

// opSync is the kind of an operation that makes a file durable.
const opSync = "sync"

// isLog reports whether a file is a segment of the log.
func isLog(path string) bool {
	dir, name := filepath.Split(path)
	return filepath.Base(dir) == "log" && len(name) == 16
}

// do passes a point and then does op, unless it is to fail.
func (w *World) do(kind, path string, op func() error) error {
	if kind == opSync && isLog(path) {
		w.awaitHold()
	}
	w.mu.Lock()
	w.point(kind, path)
	var fault Fault
	if w.fault != nil {
		fault = w.fault(Op{w.points, kind, path})
	}
	w.mu.Unlock()
	if fault.Err == nil {
		return op()
	}
	if fault.Done {
		if err := op(); err != nil {
			return err
		}
	} else if kind == opSync && isLog(path) {
		w.mu.Lock()
		w.pages.failed(path)
		w.mu.Unlock()
	}
	return fault.Err
}

func (f worldFS) open(kind, path string, open func() (vfs.File, error)) (vfs.File, error) {
	var file vfs.File
	err := f.w.do(kind, path, func() (err error) {
		file, err = open()
		return err
	})
	if err != nil {
		if file != nil {
			_ = file.Close() // done and reported failed: the caller has no file
		}
		return nil, err
	}
	return &worldFile{file, f.w, path}, nil
}

func (f worldFS) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.open("create", path, func() (vfs.File, error) { return f.FS.Create(path, c) })
}

func (f worldFS) ReuseForWrite(old, path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.open("reuse", path, func() (vfs.File, error) { return f.FS.ReuseForWrite(old, path, c) })
}

func (f worldFS) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.open("open", path, func() (vfs.File, error) { return f.FS.OpenReadWrite(path, c, opts...) })
}

func (f worldFS) OpenDir(path string) (vfs.File, error) {
	file, err := f.FS.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return &worldFile{file, f.w, path}, nil
}

func (f worldFS) Link(old, path string) error {
	return f.w.do("link", path, func() error { return f.FS.Link(old, path) })
}

func (f worldFS) Remove(path string) error {
	return f.w.do("remove", path, func() error { return f.FS.Remove(path) })
}

func (f worldFS) RemoveAll(path string) error {
	return f.w.do("remove all", path, func() error { return f.FS.RemoveAll(path) })
}

func (f worldFS) Rename(old, path string) error {
	return f.w.do("rename", path, func() error { return f.FS.Rename(old, path) })
}

func (f worldFS) MkdirAll(path string, perm os.FileMode) error {
	return f.w.do("mkdir", path, func() error { return f.FS.MkdirAll(path, perm) })
}

type worldFile struct {
	vfs.File
	w    *World
	path string
}

func (f *worldFile) Write(p []byte) (n int, err error) {
	err = f.w.do("write", f.path, func() (err error) { n, err = f.File.Write(p); return err })
	return n, err
}

func (f *worldFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.w.do("write", f.path, func() (err error) {
		var was []byte
		if isLog(f.path) {
			was = make([]byte, len(p))
			if n, err = f.File.ReadAt(was, off); err != nil && err != io.EOF {
				return err
			}
			was = was[:n]
		}
		if n, err = f.File.WriteAt(p, off); err == nil && isLog(f.path) {
			f.w.mu.Lock()
			f.w.pages.wrote(f.path, span{off, off + int64(n), was})
			f.w.mu.Unlock()
		}
		return err
	})
	return n, err
}

func (f *worldFile) Sync() error     { return f.w.do(opSync, f.path, f.File.Sync) }
func (f *worldFile) SyncData() error { return f.w.do(opSync, f.path, f.File.SyncData) }
func (f *worldFile) SyncTo(n int64) (full bool, err error) {
	err = f.w.do(opSync, f.path, func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, err
}
