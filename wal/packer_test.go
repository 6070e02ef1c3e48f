package wal

import (
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
