package wal

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// sized is a file that says that it has so many bytes, and has zeros where it has none.
type sized struct {
	vfs.File
	size int64
}

func (f sized) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	return sizedInfo{info, f.size}, err
}

func (f sized) ReadAt(b []byte, _ int64) (int, error) {
	clear(b)
	return len(b), nil
}

type sizedInfo struct {
	vfs.FileInfo
	size int64
}

func (i sizedInfo) Size() int64 { return i.size }

// TestPackedSegmentOpensWithinItsLimits: how many bytes the file has, and how many blocks its table.
func TestPackedSegmentOpensWithinItsLimits(t *testing.T) {
	fs := vfs.NewMem()
	f, err := fs.Create("file", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const least = packedHeader + packedTrailer
	for size, refused := range map[int64]bool{least - 1: true, least: false, MaxSegment: false, MaxSegment + 1: true} {
		_, err := openPacked(sized{f, size}, 1, nil)
		if tga.CodeOf(err) != tga.StateChecksumMismatch || strings.Contains(err.Error(), " bytes") != refused {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// TestPackedTableIsRefused walks what can be wrong with the table of a packed segment whose checksum is
// right: no block lies elsewhere than behind the one before, and none has more than one may have.
func TestPackedTableIsRefused(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 9 {
		b.append(1, 14<<10)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Fatal(err)
	}
	whole := b.content("log/" + packedName(1, 1))
	put, get := binary.BigEndian.PutUint32, binary.BigEndian.Uint32
	n := int(get(whole[len(whole)-packedTrailer:]))
	if n < 3 {
		t.Fatalf("%d blocks", n)
	}
	const misplaced, noEnd = "out of its place", "header or trailer is damaged"
	for what, c := range map[string]struct {
		change func(table [][]byte, tail []byte)
		says   string // "" where it opens
	}{
		"as it is":        {func([][]byte, []byte) {}, ""},
		"one block fewer": {func(_ [][]byte, tail []byte) { put(tail, uint32(n-1)) }, "a block that is"},
		"more blocks than the file has room for": {func(_ [][]byte, tail []byte) {
			put(tail, uint32((len(whole)-packedHeader-packedTrailer)/packedBlock+1))
		}, noEnd},
		"a block behind its place":                   {func(table [][]byte, _ []byte) { put(table[1][16:], get(table[1][16:])+1) }, misplaced},
		"a block before its place":                   {func(table [][]byte, _ []byte) { put(table[1][16:], get(table[1][16:])-1) }, misplaced},
		"a block that ends behind the table's start": {func(table [][]byte, _ []byte) { last := table[n-1]; put(last[20:], get(last[20:])+1) }, misplaced},
		"a block that ends before it":                {func(table [][]byte, _ []byte) { last := table[n-1]; put(last[20:], get(last[20:])-1) }, "bytes between its blocks"},
		"two blocks that go round": {func(table [][]byte, _ []byte) {
			last, before := table[n-1], table[n-2]
			put(before[20:], get(before[20:])+1<<31)
			put(last[16:], get(last[16:])+1<<31)
			put(last[20:], get(last[20:])+1<<31)
		}, misplaced},
		"a block with the most":      {func(table [][]byte, _ []byte) { put(table[n-1][12:], maxBlock) }, ""},
		"a block with one byte more": {func(table [][]byte, _ []byte) { put(table[n-1][12:], maxBlock+1) }, misplaced},
		"a block where the one is":   {func(table [][]byte, _ []byte) { put(table[n-1][8:], get(table[n-2][8:])) }, misplaced},
		"a block of neither kind":    {func(table [][]byte, _ []byte) { table[n-1][0] = 3 }, "a block of kind 3"},
		"headers behind the bodies":  {func(table [][]byte, _ []byte) { table[n-1][0] = headPieces }, "a block of kind 1"},
		"another version":            {nil, "version 3"},
		"another checksum":           {nil, "does not have its checksum"},
	} {
		raw := append([]byte(nil), whole...)
		tail := raw[len(raw)-packedTrailer:]
		footer := raw[len(raw)-packedTrailer-n*packedBlock : len(raw)-packedTrailer]
		var table [][]byte
		for i := range n {
			table = append(table, footer[i*packedBlock:][:packedBlock])
		}
		switch {
		case c.change != nil:
			c.change(table, tail)
			if m := int(get(tail)); m*packedBlock <= len(raw)-packedHeader-packedTrailer {
				footer = raw[len(raw)-packedTrailer-m*packedBlock : len(raw)-packedTrailer]
			}
			put(tail[4:], packedSum(raw[:packedHeader], footer, tail))
		case what == "another version":
			put(raw[8:], tga.LogPackedVersion+1)
		default:
			tail[4] ^= 1
		}
		f, err := b.fs.Create("forged", vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
		var cache blocks
		cache.init(maxBlock)
		_, err = openPacked(f, 1, &cache)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", what, err, c.says)
		}
		if err := f.Close(); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}
