package wal

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
)

// losing is a disk whose failed syncs lose data, as on Linux: the pages can still be read but count
// as clean, so no later sync writes them. Only writing them again makes them durable.
type losing struct {
	vfs.FS
	mu   sync.Mutex
	fail bool
	lost []lostWrite
}

// lostWrite is a write, and what was at its place before.
type lostWrite struct {
	path string
	off  int64
	was  []byte
}

func (d *losing) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(path, c, opts...)
	return &losingFile{File: f, disk: d, path: path}, err
}

type losingFile struct {
	vfs.File
	disk  *losing
	path  string
	dirty []lostWrite
}

func (f *losingFile) WriteAt(b []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	was := make([]byte, len(b))
	if err := readFull(f.File, was, off); err != nil {
		return 0, err
	}
	n, err := f.File.WriteAt(bytes.Clone(b), off) // the disk may change what it is given
	f.dirty = append(f.dirty, lostWrite{f.path, off, was})
	var rest []lostWrite
	for _, l := range f.disk.lost {
		if l.path != f.path || l.off < off || l.off+int64(len(l.was)) > off+int64(len(b)) {
			rest = append(rest, l)
		}
	}
	f.disk.lost = rest
	return n, err
}

func (f *losingFile) SyncData() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	dirty := f.dirty
	f.dirty = nil
	if f.disk.fail {
		f.disk.lost = append(f.disk.lost, dirty...)
		return errors.New("the disk failed")
	}
	return f.File.SyncData()
}

// cut simulates a power cut: from now on, reads return what the disk has.
func (d *losing) cut(t *testing.T) {
	t.Helper()
	for _, l := range d.lost {
		f, err := d.FS.OpenReadWrite(l.path, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.WriteAt(l.was, l.off)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	d.lost = nil
}

// TestLastRecordIsWrittenAgain: a group whose sync failed is there when the log is opened again,
// and from then on it stays. Resume writes it again, because a sync of its pages, which look
// clean, would write nothing.
func TestLastRecordIsWrittenAgain(t *testing.T) {
	disk := &losing{FS: crashmem.New()}
	b := newBench(t, disk)
	for range 3 {
		b.append(1, 1000)
	}
	disk.fail = true
	if b.try(1000) == nil || len(disk.lost) == 0 {
		t.Fatalf("a group whose sync fails is acknowledged, or nothing is lost: %d", len(disk.lost))
	}
	disk.fail = false
	_ = b.log.Close() // it says again that the disk failed, or not
	r, err := b.read()
	if err != nil || len(r.ops) != len(b.want)+1 {
		t.Fatalf("%d operations, %v", len(r.ops), err)
	}
	if b.log, err = Open(b.options()); err != nil {
		t.Fatal(err)
	}
	if err := b.log.Resume(r.tail); err != nil {
		t.Fatal(err)
	}
	b.want = r.ops // all of it was read, and may have been told
	b.append(1, 1000)
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	disk.cut(t)
	if r, err = b.read(); err != nil || r.tail.Doubt != nil || !b.same(r) {
		t.Errorf("%d of %d operations, %+v, %v", len(r.ops), len(b.want), r.tail, err)
	}
}
