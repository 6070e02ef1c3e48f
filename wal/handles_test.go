package wal

import (
	"bytes"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
)

// counted counts the files that are open for reading.
type counted struct {
	vfs.FS
	mu   sync.Mutex
	open map[string]int
}

func (d *counted) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(path, opts...)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[path]++
	return &countedFile{f, d, path}, nil
}

type countedFile struct {
	vfs.File
	disk *counted
	path string
}

func (f *countedFile) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.open[f.path]--
	return f.File.Close()
}

func (d *counted) files() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.open {
		n += k
	}
	return n
}

// TestReaderKeepsItsFile: a reader of a segment keeps its file until it releases it, even if the
// segment is rewritten meanwhile, if too many files are open, or if the log is closed. Then the
// file is closed, once.
func TestReaderKeepsItsFile(t *testing.T) {
	all := func(*Op) (bool, error) { return true, nil }
	for _, way := range []struct {
		name string
		do   func(b *bench) error
	}{
		{"the segment is written anew", func(b *bench) error {
			_, err := b.log.Rewrite(t.Context(), 1, all, nil)
			return err
		}},
		{"others are read", func(b *bench) error {
			for _, seg := range b.log.Full() {
				if seg.Number == 1 {
					continue
				}
				if err := b.log.handles.with(seg.Number, func(*handle) error { return nil }); err != nil {
					return err
				}
			}
			return nil
		}},
		{"the log is closed", func(b *bench) error { return b.log.Close() }},
	} {
		t.Run(way.name, func(t *testing.T) {
			disk := &counted{FS: crashmem.New(), open: map[string]int{}}
			b := newBench(t, disk)
			for range 12 {
				b.append(1, 700<<10)
			}
			if n := len(b.log.Full()); n < 2 {
				t.Fatalf("%d segments are full", n)
			}
			b.log.handles.limit = 1
			var ref Ref
			var key, body []byte
			if _, err := b.log.Scan(Position{}, func(r *Record) error {
				return r.Ops(func(op *Op) (err error) {
					if ref.Length == 0 && op.Place == Inline {
						ref, key = op.Ref, bytes.Clone(op.Key)
						body, err = b.log.Read(ref, key)
					}
					return err
				})
			}); err != nil || ref.Segment != 1 {
				t.Fatal(ref, err)
			}
			if err := b.log.handles.with(1, func(h *handle) error {
				for range 2 { // somebody else reads it too, and lets go
					if err := b.log.handles.with(1, func(*handle) error { return nil }); err != nil {
						return err
					}
				}
				if err := way.do(b); err != nil {
					return err
				}
				if n := disk.files(); n < 1 {
					t.Errorf("%d files are open beside a reader", n)
				}
				got := make([]byte, ref.Length)
				err := h.body(got, ref, key)
				if !bytes.Equal(got, body) {
					t.Error("another body")
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			if err := b.log.Close(); err != nil {
				t.Error(err)
			}
			if n := disk.files(); n != 0 {
				t.Errorf("%d files are left open: %v", n, disk.open)
			}
		})
	}
}
