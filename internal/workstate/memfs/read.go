package memfs

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"time"
)

var (
	_ fs.ReadFileFS = (*FS)(nil)
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
)

func (f *FS) lookup(op, name string) (item, error) {
	if !fs.ValidPath(name) {
		return item{}, pathError(op, name, fs.ErrInvalid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	it, ok := f.look(name)
	if !ok {
		return item{}, pathError(op, name, fs.ErrNotExist)
	}
	it.name = path.Base(name)
	return it, nil
}

// Open implements [fs.FS]. A file that is open keeps the content it was opened with.
func (f *FS) Open(name string) (fs.File, error) {
	it, err := f.lookup("open", name)
	if err != nil {
		return nil, err
	}
	if it.dir {
		list, err := f.ReadDir(name)
		return &openDir{info{it}, list}, err
	}
	return &openFile{bytes.NewReader(content(it.node)), info{it}}, nil
}

// ReadFile implements [fs.ReadFileFS].
func (f *FS) ReadFile(name string) ([]byte, error) {
	it, err := f.lookup("read", name)
	if err == nil && it.dir {
		err = pathError("read", name, errIsDir)
	}
	if err != nil {
		return nil, err
	}
	return append([]byte{}, content(it.node)...), nil
}

// Stat implements [fs.StatFS].
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	it, err := f.lookup("stat", name)
	if err != nil {
		return nil, err
	}
	return info{it}, nil
}

// ReadDir implements [fs.ReadDirFS].
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	it, err := f.lookup("readdir", name)
	if err == nil && !it.dir {
		err = pathError("readdir", name, errNotDir)
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.touch(f.read, name+"/")
	f.mu.Unlock()
	var list []fs.DirEntry
	for _, child := range entries(it.node) {
		list = append(list, fs.FileInfoToDirEntry(info{child}))
	}
	return list, nil
}

// info is an item as an fs.FileInfo. Its time is the zero time.
type info struct{ item }

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return i.perm | fs.ModeDir
	}
	return i.perm
}

type openFile struct {
	*bytes.Reader
	info info
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

type openDir struct {
	info info
	left []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }
func (d *openDir) Read([]byte) (int, error)   { return 0, pathError("read", d.info.name, errIsDir) }

// ReadDir implements [fs.ReadDirFile].
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.left)
	} else if len(d.left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.left))
	out := d.left[:n:n]
	d.left = d.left[n:]
	return out, nil
}
