package wal

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
)

// TestCutPackedSegmentIsDamaged: of every length, and with a count that its length has no room for.
func TestCutPackedSegmentIsDamaged(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 9 {
		b.append(1, 14<<10)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Fatal(err)
	}
	good := b.content("log/" + packedName(1, 1))
	try := func(what string, n int, data []byte) {
		t.Helper()
		fs := vfs.NewMem()
		f, err := fs.Create("f", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = f.Write(data); err != nil {
			t.Fatal(err)
		}
		if err = f.Close(); err != nil {
			t.Fatal(err)
		}
		if f, err = fs.Open("f"); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var cache blocks
		cache.init(maxBlock)
		if _, err = openPacked(f, 1, &cache); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s %d: %v", what, n, err)
		}
	}
	for n := range packedHeader + packedTrailer + packedBlock + 2 {
		try("the first bytes", n, good[:n])
		try("the last bytes", n, good[len(good)-n:])
	}
	room := (len(good) - packedHeader - packedTrailer) / packedBlock
	for n := room - 1; n <= room+3; n++ {
		bad := bytes.Clone(good)
		binary.BigEndian.PutUint32(bad[len(bad)-packedTrailer:], uint32(n))
		try("count", n, bad)
	}
}

// TestDamagedBlockSpoilsNoOther: a range that begins or ends with a block needs that one alone. What is damaged is called so,
// and is no outage of the disk: `tgad verify` would answer that it could not look.
func TestDamagedBlockSpoilsNoOther(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 9 {
		if _, err := b.log.Append(filler(t, 6000)); err != nil {
			t.Fatal(err)
		}
		b.append(1, 6000)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Fatal(err)
	}
	f, err := b.fs.Open("log/" + packedName(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cache blocks
	cache.init(0)
	p, err := openPacked(f, 1, &cache)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.heads) < 2 {
		t.Fatalf("%d blocks of headers", len(p.heads))
	}
	first, second := p.heads[0], p.heads[1]
	got := make([]byte, second.first-first.first)
	p.heads[1].sum++
	if _, err := p.ReadAt(got, int64(first.first)); err != nil {
		t.Errorf("before a damaged block: %v", err)
	}
	if err := readFull(p, got, int64(first.first)+1); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a byte of the damaged block: %v", err)
	}
	p.heads[1].sum--
	p.heads[0].sum++
	if _, err := p.ReadAt(got[:100], int64(second.first)); err != nil {
		t.Errorf("behind a damaged block: %v", err)
	}
	if err := readFull(p, got[:100], int64(second.first)-1); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("a byte of the damaged block: %v", err)
	}
}

// sparse is a file of zeros with bytes at one offset.
type sparse struct {
	at   int64
	data []byte
}

func (s sparse) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	from, to := max(off, s.at), min(off+int64(len(b)), s.at+int64(len(s.data)))
	if from < to {
		copy(b[from-off:], s.data[from-s.at:to-s.at])
	}
	return len(b), nil
}

var _ io.ReaderAt = sparse{}

// TestRecordsOfTheLargestSegmentAreRead: offsets about which sums of 32 bits overflow.
func TestRecordsOfTheLargestSegmentAreRead(t *testing.T) {
	id := Identity{Number: 1, Salt: 7, Size: MaxSegment}
	var o Ops
	o.PutBody([]byte("key"), []byte("value"), make([]byte, 1000))
	var g Group
	g.Add(&o, MaxRecord)
	size := uint32(g.Len())
	for _, at := range []uint32{identityLen, MaxRecord - align, MaxRecord, MaxRecord + align, 1 << 31, MaxSegment - size} {
		g.encode(&id, at, Position{Group: 4, Sum: 5}, 1, nil)
		w := &window{f: sparse{int64(at), g.record()}, size: MaxSegment}
		r, err := w.record(&id, at, Position{Group: 4, Sum: 5})
		if err != nil || r == nil || r.At.End != at+size {
			t.Errorf("at %d: %+v %v", at, r, err)
			continue
		}
		if whole, err := w.whole(r); err != nil || !whole {
			t.Errorf("at %d: its bodies: %v %v", at, whole, err)
		}
		w = &window{f: sparse{int64(at), g.record()}, size: at + size - align}
		if r, err := w.record(&id, at, Position{Group: 4, Sum: 5}); r != nil || err != nil {
			t.Errorf("at %d, in a segment that ends before its bodies do: %+v %v", at, r, err)
		}
	}
}

// TestPackedSegmentEndsWhereTheRawOneDid: what lies past that is no zeros, but nothing.
func TestPackedSegmentEndsWhereTheRawOneDid(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 9 {
		b.append(1, 14<<10)
	}
	if _, err := b.log.Rewrite(t.Context(), 1, every, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.log.handles.with(1, func(h *handle) error {
		for _, c := range []struct {
			off, n int64
			ends   bool
		}{
			{0, MinSegment, false}, {1, MinSegment, true}, {0, MinSegment + 1, true}, {MinSegment - 100, 100, false}, {MinSegment - 100, 101, true},
			{MinSegment, 0, false}, {MinSegment, 1, true}, {-1, 10, true}, {-10, 10, true}, {1 << 32, 10, true},
		} {
			n, err := h.packed.ReadAt(make([]byte, c.n), c.off)
			if (err == io.EOF) != c.ends || err != nil && err != io.EOF || !c.ends && int64(n) != c.n {
				t.Errorf("%d bytes at %d: %d, %v", c.n, c.off, n, err)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
