//go:build linux

package proc

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// action is what a victim does at a point.
type action string

const (
	killHere action = "kill" // dies
	tearHere action = "tear" // dies in the middle of a write, elsewhere like kill
	stopHere action = "stop" // stops until it is continued
	stopEach action = "stop each"
)

// points counts the points that a victim passes. A point is before a file-system call that
// changes the disk, or before or after a step of a dispatch.
type points struct {
	n    atomic.Int64
	at   int64
	what action

	mu     sync.Mutex
	writes []int64 // the points that are before a write
}

// pass counts a point and does the planned action there. half, if not nil, does the first
// half of the operation.
func (p *points) pass(half func()) {
	n := p.n.Add(1)
	if half != nil {
		p.mu.Lock()
		p.writes = append(p.writes, n)
		p.mu.Unlock()
	}
	switch {
	case p.what == stopEach, p.what == stopHere && n == p.at:
		stopSelf()
	case n != p.at:
	case p.what == tearHere && half != nil:
		half()
		die()
	case p.what == killHere, p.what == tearHere:
		die()
	}
}

// stopSelf stops this process and returns when it is continued. The signal goes to this
// thread: another thread could take a signal to the process while this one goes on.
func stopSelf() {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// pointFS passes a point before each operation that changes the disk.
type pointFS struct {
	vfs.FS
	p *points
	// cached makes the log go through the kernel's cache. With direct I/O half of a page cannot be
	// written, and a write is on the image although nobody synced it.
	cached bool
	// forget names the syncs to leave out, as a bug would.
	forget func(path string, dir bool) bool
}

func (f pointFS) Unwrap() vfs.FS { return f.FS }

func (f pointFS) file(file vfs.File, err error, path string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &pointFile{File: file, fs: f, path: path}, nil
}

func (f pointFS) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.p.pass(nil)
	file, err := f.FS.Create(path, c)
	return f.file(file, err, path)
}

func (f pointFS) ReuseForWrite(old, path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.p.pass(nil)
	file, err := f.FS.ReuseForWrite(old, path, c)
	return f.file(file, err, path)
}

func (f pointFS) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f.p.pass(nil)
	file, err := f.FS.OpenReadWrite(path, c, opts...)
	return f.file(file, err, path)
}

func (f pointFS) OpenDir(path string) (vfs.File, error) {
	file, err := f.FS.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return &pointFile{File: file, fs: f, path: path, dir: true}, nil
}

func (f pointFS) Link(old, path string) error {
	f.p.pass(nil)
	return f.FS.Link(old, path)
}

func (f pointFS) Remove(path string) error {
	f.p.pass(nil)
	return f.FS.Remove(path)
}

func (f pointFS) RemoveAll(path string) error {
	f.p.pass(nil)
	return f.FS.RemoveAll(path)
}

func (f pointFS) Rename(old, path string) error {
	f.p.pass(nil)
	return f.FS.Rename(old, path)
}

func (f pointFS) MkdirAll(path string, perm os.FileMode) error {
	f.p.pass(nil)
	return f.FS.MkdirAll(path, perm)
}

type pointFile struct {
	vfs.File
	fs   pointFS
	path string
	dir  bool
}

func (f *pointFile) Write(b []byte) (int, error) {
	// File.Write may change what it is given, so a half is written from a copy.
	f.fs.p.pass(func() { _, _ = f.File.Write(slices.Clone(b[:len(b)/2])) })
	return f.File.Write(b)
}

func (f *pointFile) WriteAt(b []byte, off int64) (int, error) {
	f.fs.p.pass(func() { _, _ = f.File.WriteAt(slices.Clone(b[:len(b)/2]), off) })
	return f.File.WriteAt(b, off)
}

func (f *pointFile) Fd() uintptr {
	if f.fs.cached && isLog(f.path) {
		return vfs.InvalidFd
	}
	return f.File.Fd()
}

func (f *pointFile) sync(do func() error) error {
	f.fs.p.pass(nil)
	if f.fs.forget != nil && f.fs.forget(f.path, f.dir) {
		return nil
	}
	return do()
}

func (f *pointFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *pointFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *pointFile) SyncTo(length int64) (full bool, err error) {
	err = f.sync(func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}

func (f *pointFile) Preallocate(offset, length int64) error {
	f.fs.p.pass(nil)
	return f.File.Preallocate(offset, length)
}

// isLog says that a file is a segment of the log.
func isLog(path string) bool {
	dir, name := filepath.Split(path)
	return filepath.Base(dir) == "log" && len(name) == 16
}
