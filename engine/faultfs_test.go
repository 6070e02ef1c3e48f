package engine_test

import (
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// faultFS calls sync and write in place of those operations on files whose name ends
// in suffix, or on the segments of the log. Each is given the real operation.
type faultFS struct {
	vfs.FS
	suffix string
	log    bool
	sync   atomic.Pointer[func(real func() error) error]
	write  atomic.Pointer[func(real func() (int, error)) (int, error)]
}

func (f *faultFS) Unwrap() vfs.FS { return f.FS }

func (f *faultFS) onSync(g func(real func() error) error) {
	if g == nil {
		f.sync.Store(nil)
		return
	}
	f.sync.Store(&g)
}

func (f *faultFS) onWrite(g func(real func() (int, error)) (int, error)) { f.write.Store(&g) }

func (f *faultFS) wrap(name string, file vfs.File, err error) (vfs.File, error) {
	if err != nil || f.log || !strings.HasSuffix(name, f.suffix) {
		return file, err
	}
	return &faultFile{File: file, fs: f}, nil
}

func (f *faultFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.wrap(name, file, err)
}

func (f *faultFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, c)
	return f.wrap(name, file, err)
}

func (f *faultFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	if err == nil && f.log && strings.Contains(name, "log/") {
		return &faultFile{File: file, fs: f}, nil
	}
	return f.wrap(name, file, err)
}

type faultFile struct {
	vfs.File
	fs *faultFS
}

func (f *faultFile) synced(real func() error) error {
	if g := f.fs.sync.Load(); g != nil {
		return (*g)(real)
	}
	return real()
}

func (f *faultFile) written(real func() (int, error)) (int, error) {
	if g := f.fs.write.Load(); g != nil {
		return (*g)(real)
	}
	return real()
}

func (f *faultFile) Sync() error     { return f.synced(f.File.Sync) }
func (f *faultFile) SyncData() error { return f.synced(f.File.SyncData) }
func (f *faultFile) SyncTo(n int64) (full bool, err error) {
	err = f.synced(func() error { full, err = f.File.SyncTo(n); return err })
	return full, err
}

func (f *faultFile) Write(p []byte) (int, error) {
	return f.written(func() (int, error) { return f.File.Write(p) })
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	return f.written(func() (int, error) { return f.File.WriteAt(p, off) })
}
