package wal

import (
	"bytes"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watched is a disk that sees how segments are written.
type watched struct {
	vfs.FS
	t      *testing.T
	writes int
}

func (d *watched) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(path, c)
	return &watchedFile{File: f, disk: d}, err
}

func (d *watched) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(path, c, opts...)
	return &watchedFile{File: f, disk: d}, err
}

type watchedFile struct {
	vfs.File
	disk *watched
}

func (f *watchedFile) look(b []byte, off int64) {
	f.disk.t.Helper()
	f.disk.writes++
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); at%pageLen != 0 || off%pageLen != 0 || len(b)%pageLen != 0 || len(b) == 0 {
		f.disk.t.Errorf("a write of %d bytes at %d, from memory at %#x", len(b), off, at)
	}
}

func (f *watchedFile) Write(b []byte) (int, error) {
	f.look(b, 0)
	return f.File.Write(b)
}

func (f *watchedFile) WriteAt(b []byte, off int64) (int, error) {
	f.look(b, off)
	return f.File.WriteAt(b, off)
}

// TestSegmentsAreWrittenInWholePages: a disk past the kernel's cache takes nothing else, and the
// bytes of a page that an earlier group wrote stay.
func TestSegmentsAreWrittenInWholePages(t *testing.T) {
	disk := &watched{FS: vfs.NewMem(), t: t}
	b := newBenchOf(t, disk, MinSegment)
	before := disk.writes
	for _, n := range []int{1, 7, 3000, pageLen, pageLen + 1, 2*pageLen - 400, 5, 20_000, 1, 1, 30_000, 9} {
		b.append(1, n)
	}
	if wrote := disk.writes - before; wrote < 12 {
		t.Errorf("%d writes seen of 12 groups", wrote)
	}
	if _, err := b.log.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := b.read()
	if err != nil || !r.tail.Clean {
		t.Fatalf("%+v %v", r.tail, err)
	}
	if b.log, err = Open(b.options()); err != nil {
		t.Fatal(err)
	}
	if err := b.log.Resume(r.tail); err != nil {
		t.Fatal(err)
	}
	b.append(1, 100) // in the page that the log was closed in
	if r, err = b.read(); err != nil || r.tail.Doubt != nil || !b.same(r) {
		t.Errorf("%d of %d operations, %+v, %v", len(r.ops), len(b.want), r.tail, err)
	}
}

// TestNothingOfAnotherGroupIsBehindOne: an erasure would not find it there.
func TestNothingOfAnotherGroupIsBehindOne(t *testing.T) {
	id, g := Identity{Number: 1, Salt: 7, Size: MinSegment}, new(Group)
	for _, n := range []int{3 * pageLen, 1, 2*pageLen - 300, 500, 0} {
		var o Ops
		o.PutBody([]byte("key"), nil, bytes.Repeat([]byte("secret"), n/6))
		g.Reset()
		g.Add(&o, MaxRecord)
		for _, before := range [][]byte{nil, bytes.Repeat([]byte("before"), 100)} {
			g.encode(&id, identityLen+uint32(len(before)), Position{}, 1, before)
			if !bytes.HasPrefix(g.buf, before) || len(bytes.Trim(g.buf[len(before)+g.Len():], "\x00")) > 0 {
				t.Errorf("a group of %d bytes behind %d", g.Len(), len(before))
			}
		}
	}
}

// balking takes the flag of a write past the cache, and refuses such writes behind so many bytes.
type balking struct {
	vfs.File
	after  int
	direct func() bool
	got    bytes.Buffer
}

func (f *balking) Write(b []byte) (int, error) {
	if f.direct() {
		n, _ := f.got.Write(b[:f.after])
		return n, syscall.EINVAL
	}
	return f.got.Write(b)
}

func (f *balking) WriteAt(b []byte, off int64) (int, error) {
	if int(off) != f.got.Len() {
		return 0, syscall.ENOTSUP
	}
	return f.Write(b)
}

// TestRefusedPagesGoThroughTheCache: all of them, each byte once, wherever the refusal came.
func TestRefusedPagesGoThroughTheCache(t *testing.T) {
	for _, after := range []int{0, pageLen, 2 * pageLen} {
		for _, at := range []bool{false, true} {
			file, err := vfs.Default.Create(t.TempDir()+"/segment", vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			f := pagesOf(file)
			f.direct = true // also where this file system has no way past its cache
			disk := &balking{File: file, after: after, direct: func() bool { return f.direct }}
			f.File = disk
			b := pages(nil).room(3 * pageLen)
			for i := range b {
				b[i] = byte(i % 251)
			}
			if at {
				err = f.writeAt(b, 0)
			} else {
				err = f.write(b)
			}
			if err != nil || !bytes.Equal(disk.got.Bytes(), b) || f.direct {
				t.Errorf("refused after %d bytes: %d of %d written, %v", after, disk.got.Len(), len(b), err)
			}
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestPagesBeginWhereTheDiskAsks: memory of any size, made anew and used again.
func TestPagesBeginWhereTheDiskAsks(t *testing.T) {
	var b pages
	for _, n := range []int{1, pageLen - 1, pageLen, pageLen + 1, 10 * pageLen, 3, MaxRecord + headerLen, 0} {
		b = b.room(n)
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); at%pageLen != 0 || len(b)%pageLen != 0 || len(b) < n || len(b) >= n+pageLen {
			t.Errorf("room for %d: %d bytes at %#x", n, len(b), at)
		}
	}
}
