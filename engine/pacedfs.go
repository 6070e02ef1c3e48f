package engine

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pacedFS makes a long-running operation rest between its reads and writes, for as long as these
// took. So the operation takes at most half of one processor, and half of the disk's time. Only one
// goroutine may use a pacedFS.
type pacedFS struct {
	vfs.FS
	ctx  context.Context
	pace *pacer
}

// Unwrap returns the wrapped file system, for [vfs.Root].
func (p pacedFS) Unwrap() vfs.FS { return p.FS }

func (p pacedFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return pacedFile{f, p}, nil
}

func (p pacedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return p.file(p.FS.Open(name, opts...))
}

func (p pacedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return p.file(p.FS.Create(name, c))
}

type pacedFile struct {
	vfs.File
	of pacedFS
}

func (f pacedFile) Read(b []byte) (int, error) {
	f.of.pace.step(f.of.ctx)
	return f.File.Read(b)
}

func (f pacedFile) ReadAt(b []byte, at int64) (int, error) {
	f.of.pace.step(f.of.ctx)
	return f.File.ReadAt(b, at)
}

func (f pacedFile) Write(b []byte) (int, error) {
	f.of.pace.step(f.of.ctx)
	return f.File.Write(b)
}
