package wal

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// begun notes how far the disk was told to begin to write.
type begun struct {
	vfs.FS
	to []int64
}

func (d *begun) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(path, c)
	return &begunFile{f, d}, err
}

type begunFile struct {
	vfs.File
	d *begun
}

func (f *begunFile) SyncTo(n int64) (bool, error) {
	f.d.to = append(f.d.to, n)
	return f.File.SyncTo(n)
}

// packing is a packer of nothing yet.
func packing(t *testing.T) (*packer, *begun) {
	t.Helper()
	disk := &begun{FS: vfs.NewMem()}
	if err := disk.MkdirAll("log", 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := newPacker(files{disk, "log"}, 1, 1, MinSegment, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.abandon(); err != nil {
			t.Error(err)
		}
	})
	return p, disk
}

// TestBlockTakesPiecesUpToItsLimit: the pieces before one and the one itself have blockTarget
// bytes at most, but a piece that is longer is a block of its own.
func TestBlockTakesPiecesUpToItsLimit(t *testing.T) {
	const entry = 8 // of a piece in its block's table
	for _, c := range []struct {
		sizes []int
		want  []uint32 // pieces of the blocks that are full
	}{
		{[]int{blockTarget + 1}, nil},
		{[]int{blockTarget + 1, 1}, []uint32{1}},
		{[]int{100, blockTarget - 100 - entry}, nil},
		{[]int{100, blockTarget - 100 - entry + 1}, []uint32{1}},
		{[]int{100, 200, blockTarget - 300 - 2*entry, 1}, []uint32{3}},
		{[]int{100, 200, blockTarget - 300 - 2*entry + 1, 1}, []uint32{2}},
	} {
		p, _ := packing(t)
		var first []uint32 // of each block
		at := uint32(0)
		for _, n := range c.sizes {
			if err := p.piece(bodyPieces, at, make([]byte, n)); err != nil {
				t.Fatal(err)
			}
			at += uint32(n)
		}
		for _, b := range p.held {
			first = append(first, b.entry.first)
		}
		var want []uint32
		n := 0
		at = 0
		for _, pieces := range c.want {
			want = append(want, at)
			for range pieces {
				at += uint32(c.sizes[n])
				n++
			}
		}
		if !slices.Equal(first, want) {
			t.Errorf("pieces of %d bytes: blocks begin at %d, want %d", c.sizes, first, want)
		}
	}
}

// TestPackedFileEndsAtItsLimit: the offsets of a packed segment have four bytes.
func TestPackedFileEndsAtItsLimit(t *testing.T) {
	for over := range uint32(2) {
		p, _ := packing(t)
		b := pieceBlock{stored: make([]byte, 100), entry: packedEntry{size: 100}}
		p.at = math.MaxUint32 - 100 + over
		if err := p.write(headPieces, b); over == 0 && err != nil || over == 1 && tga.CodeOf(err) != tga.LimitExceeded {
			t.Errorf("%d past the limit: %v", over, err)
		}
	}
}

// TestDiskBeginsToWriteWhatIsPacked: after so many bytes, so that the sync at the end is short.
func TestDiskBeginsToWriteWhatIsPacked(t *testing.T) {
	p, disk := packing(t)
	write := func(n uint32) {
		t.Helper()
		if err := p.write(headPieces, pieceBlock{stored: make([]byte, n), entry: packedEntry{size: n}}); err != nil {
			t.Fatal(err)
		}
	}
	write(filled - packedHeader - 1)
	if len(disk.to) != 0 {
		t.Errorf("at %d: %d", p.at, disk.to)
	}
	write(1)
	write(filled - 1)
	write(2)
	write(filled)
	if want := []int64{filled, 2*filled + 1, 3*filled + 1}; !slices.Equal(disk.to, want) {
		t.Errorf("told at %d, want %d", disk.to, want)
	}
}

// lying is a disk that changes one byte of a file that is being packed.
type lying struct {
	vfs.FS
	at int64 // which byte; -1: none
}

func (d *lying) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(path, c)
	if err == nil && d.PathBase(path) == packingName {
		f = &lyingFile{File: f, d: d}
	}
	return f, err
}

type lyingFile struct {
	vfs.File
	d *lying
	n int64
}

func (f *lyingFile) Write(b []byte) (int, error) {
	if i := f.d.at - f.n; i >= 0 && i < int64(len(b)) {
		b = slices.Clone(b)
		b[i] ^= 1
	}
	f.n += int64(len(b))
	return f.File.Write(b)
}

// TestPackedFileIsReadBackBeforeItCounts: wherever a disk changes what is packed, the segment stays
// what it is, and a rewrite on a disk that is well again is one.
func TestPackedFileIsReadBackBeforeItCounts(t *testing.T) {
	disk := &lying{FS: vfs.NewMem(), at: -1}
	b := newBenchOf(t, disk, MinSegment)
	for range 9 {
		b.append(1, 14<<10)
	}
	done, err := b.log.Rewrite(t.Context(), 2, every, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Sorted(maps.Keys(b.image()))
	for at := int64(0); at < done.After; at += 1 + done.After/97 {
		disk.at = at
		if _, err := b.log.Rewrite(t.Context(), 1, every, nil); tga.CodeOf(err) != tga.StateChecksumMismatch && tga.CodeOf(err) != tga.FormatTooNew {
			t.Errorf("byte %d: %v", at, err)
		}
		if after := slices.Sorted(maps.Keys(b.image())); !slices.Equal(after, before) {
			t.Fatalf("byte %d: the files are %v, %v before", at, after, before)
		}
	}
	disk.at = -1
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Error(err)
	}
	if r, err := b.read(); err != nil || r.tail.Doubt != nil || len(r.errs) > 0 || !slices.Equal(r.ops, b.want) {
		t.Errorf("%+v %v %v", r.tail, r.errs, err)
	}
}

// TestPackedSegmentIsComparedWithTheOneBefore: checksums only prove that the packed bytes are
// undamaged. That they are the right ones is checked separately.
func TestPackedSegmentIsComparedWithTheOneBefore(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 9 {
		b.append(1, 14<<10)
	}
	seg, end, err := b.log.rewritable(1)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(p *packer, out *Rewritten){
		"nothing":        func(*packer, *Rewritten) {},
		"a body":         func(p *packer, _ *Rewritten) { p.bodies.data[3] ^= 1 },
		"the end":        func(p *packer, _ *Rewritten) { p.end -= align },
		"the bytes kept": func(p *packer, _ *Rewritten) { p.kept++ },
		"the bodies":     func(_ *packer, out *Rewritten) { out.Bodies++ },
		"the records":    func(_ *packer, out *Rewritten) { out.Records++ },
	} {
		var out Rewritten
		var p *packer
		err := b.log.handles.with(1, func(h *handle) (err error) {
			if p, err = newPacker(b.log.files, 1, 1, end, nil); err != nil {
				return err
			}
			return p.copy(t.Context(), h, seg, every, &out)
		})
		if err != nil {
			t.Fatal(err)
		}
		change(p, &out)
		_, err = p.finish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.log.verify(t.Context(), nil, seg, end, out); what == "nothing" && err != nil || what != "nothing" && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s is another: %v", what, err)
		}
		if err := p.abandon(); err != nil {
			t.Error(err)
		}
	}
}
