package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestBlocksKeepsWhatWasUsedLast: within its limit, and of one that is longer by itself nothing.
func TestBlocksKeepsWhatWasUsedLast(t *testing.T) {
	var c blocks
	c.init(10)
	key := func(n uint32) blockKey { return blockKey{7, n} }
	put := func(n uint32, size int) { c.put(key(n), bytes.Repeat([]byte{byte(n)}, size)) }
	want := func(what string, numbers ...uint32) {
		t.Helper()
		size := 0
		for _, n := range numbers {
			b := c.list[key(n)]
			if b == nil || b.plain[0] != byte(n) {
				t.Fatalf("%s: block %d is not kept", what, n)
			}
			size += len(b.plain)
		}
		if len(c.list) != len(numbers) || c.size != size {
			t.Errorf("%s: %d blocks of %d bytes are kept, want %d of %d", what, len(c.list), c.size, len(numbers), size)
		}
	}
	put(1, 4)
	put(2, 4)
	want("two", 1, 2)
	if c.get(key(1)) == nil || c.get(key(3)) != nil {
		t.Error("what is kept is not found, or what is not is")
	}
	put(3, 4)
	want("the one that was used longest ago goes", 1, 3)
	put(4, 2)
	want("at the limit", 1, 3, 4)
	c.put(key(4), []byte{9, 9})
	want("the same again", 1, 3, 4)
	put(5, 1)
	want("one past the limit", 3, 4, 5)
	put(6, 11)
	want("one that is longer than the limit", 3, 4, 5)
	put(7, 10)
	want("one of just the limit", 7)
}

// TestPiecesFillTheirBlock: a block's table is refused unless it agrees with the block.
func TestPiecesFillTheirBlock(t *testing.T) {
	block := func(count uint32, data int, table ...uint32) []byte {
		b := binary.BigEndian.AppendUint32(nil, count)
		for _, n := range table {
			b = binary.BigEndian.AppendUint32(b, n)
		}
		return append(b, make([]byte, data)...)
	}
	for what, c := range map[string]struct {
		plain []byte
		first uint32
		fit   bool
	}{
		"one piece":                       {block(1, 5, 100, 5), 100, true},
		"an empty one":                    {block(1, 0, 100, 0), 100, true},
		"two, one behind the other":       {block(2, 7, 100, 5, 105, 2), 100, true},
		"two with room between":           {block(2, 7, 100, 5, 120, 2), 100, true},
		"two that overlap":                {block(2, 7, 100, 5, 104, 2), 100, false},
		"another first":                   {block(1, 5, 100, 5), 99, false},
		"a byte too many":                 {block(1, 6, 100, 5), 100, false},
		"a byte too few":                  {block(1, 4, 100, 5), 100, false},
		"none":                            {block(0, 0), 0, false},
		"no room for the count":           {make([]byte, 3), 0, false},
		"room for the count alone":        {block(1, 0), 0, false},
		"no room for the table":           {block(2, 0, 100, 0, 100), 100, false},
		"as many pieces as there are":     {block(2, 0, 100, 0, 100, 0), 100, true},
		"more pieces than four bytes say": {block(1<<32-1, 8, 100, 5), 100, false},
		"up to the end of a segment":      {block(1, 5, MaxSegment-5, 5), MaxSegment - 5, true},
		"past the end of a segment":       {block(1, 5, MaxSegment-4, 5), MaxSegment - 4, false},
	} {
		if got := piecesFit(c.plain, c.first); got != c.fit {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestPackedSegmentReadsAsTheRawOne reads every range about the ends of what it has: headers and
// operations are where they were, and zeros where bodies were.
func TestPackedSegmentReadsAsTheRawOne(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for i := range 9 {
		b.append(1+i%2, 6000+i)
		at, err := b.log.Append(filler(t, 5000)) // operations alone
		if err != nil {
			t.Fatal(err)
		}
		b.last = at
	}
	want := b.content("log/" + segmentName(1))
	seg, end, err := b.log.rewritable(1)
	if err != nil {
		t.Fatal(err)
	}
	var edges []int64
	err = b.log.handles.with(1, func(h *handle) error {
		return (&window{f: h, size: end}).records(t.Context(), nil, seg, end, func(r *Record) error {
			edges = append(edges, int64(r.At.Start), int64(r.At.Start)+int64(len(r.buf)), int64(r.At.End))
			return r.Ops(func(op *Op) error {
				if op.Place == Inline {
					clear(want[op.Ref.Offset:][:op.Ref.Length])
					edges = append(edges, int64(op.Ref.Offset), int64(op.Ref.Offset)+int64(op.Ref.Length))
				}
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
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
	cache.init(maxBlock)
	p, err := openPacked(f, 1, &cache)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.heads) < 2 {
		t.Fatalf("%d blocks of headers", len(p.heads))
	}
	edges = append(edges, 0, identityLen, MinSegment)
	for _, from := range edges {
		for _, to := range edges {
			for off := from - 1; off <= from+1; off++ {
				got := bytes.Repeat([]byte{0xaa}, int(max(0, to-off)))
				n, err := p.ReadAt(got, off)
				if off < 0 || off+int64(len(got)) > MinSegment {
					if !errors.Is(err, io.EOF) {
						t.Fatalf("%d to %d: %v", off, to, err)
					}
				} else if err != nil || n != len(got) || !bytes.Equal(got, want[off:][:n]) {
					t.Fatalf("%d to %d: %d bytes, %v; they are the raw segment's: %v", off, to, n, err, bytes.Equal(got, want[off:][:len(got)]))
				}
			}
		}
	}
}

// TestFullSegmentsSayWhatTheyTake: raw and packed.
func TestFullSegmentsSayWhatTheyTake(t *testing.T) {
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	for range 9 {
		b.append(1, 14<<10)
	}
	before := b.log.Full()
	if len(before) != 2 {
		t.Fatalf("%+v", before)
	}
	for i, s := range before {
		if s.Number != uint64(i+1) || s.Generation != 0 || s.Records+s.Idle != MinSegment || s.Idle < 1 || s.Records < 3*14<<10 {
			t.Errorf("%+v", s)
		}
	}
	raw, err := b.log.Stored(t.Context(), 1, nil)
	if err != nil || raw.File != MinSegment || raw.Bodies < 3*14<<10 || raw.Bodies > before[0].Records {
		t.Errorf("%+v %v", raw, err)
	}
	stop := errors.New("stop")
	if _, err := b.log.Stored(t.Context(), 1, func(context.Context) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("its pace stops it: %v", err)
	}
	if _, err := b.log.Stored(t.Context(), 3, nil); err == nil {
		t.Error("the newest segment is full")
	}
	done, err := b.log.Rewrite(t.Context(), 1, every, nil)
	if err != nil {
		t.Fatal(err)
	}
	after := b.log.Full()
	if after[0].Generation != 1 || after[0].Idle != 0 || after[0].Records != before[0].Records || after[1] != before[1] {
		t.Errorf("%+v, before %+v", after, before)
	}
	// The padding of each record's bodies is not taken over.
	packed, err := b.log.Stored(t.Context(), 1, nil)
	if err != nil || packed.File != done.After || packed.Bodies > raw.Bodies || packed.Bodies < 3*14<<10 {
		t.Errorf("%+v %v, raw %+v", packed, err, raw)
	}
}

// TestSpareIsFilledAsTheSegmentIs: it is begun past a quarter, and whole at three quarters.
func TestSpareIsFilledAsTheSegmentIs(t *testing.T) {
	const quarter = MinSegment / 4
	b := newBenchOf(t, vfs.NewMem(), MinSegment)
	to := func(end uint32) int64 {
		t.Helper()
		at, err := b.log.Append(filler(t, end-b.log.at.End))
		if err != nil || at.End != end {
			t.Fatalf("%+v %v", at, err)
		}
		s := b.log.spare
		if s == nil {
			return -1
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.allowed
	}
	for _, c := range []struct {
		end  uint32
		want int64
	}{
		{quarter, -1},
		{quarter + 128, MinSegment * 128 / (2 * quarter)},
		{2 * quarter, MinSegment / 2},
		{3 * quarter, MinSegment},
	} {
		if got := to(c.end); got != c.want {
			t.Errorf("with %d bytes used %d may be filled, want %d", c.end, got, c.want)
		}
	}
	b.log.spare.allow(7) // less than before
	if got := b.log.spare.allowed; got != MinSegment {
		t.Errorf("%d may be filled", got)
	}
	b.log.spare.wait()
	if err := b.log.spare.err; err != nil {
		t.Error(err)
	}
}
