package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestBlocksHaveTheirTraces: once read, a block has its own traces and no others, whatever happens to the
// reader.
func TestBlocksHaveTheirTraces(t *testing.T) {
	traces := many(60)
	whole := seal(t, traces...)
	first, err := segment.Open(bytes.NewReader(whole), int64(len(whole)), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := first.On(bytes.NewReader(slices.Clone(whole)))
	blocks := map[uint32]*segment.Block{}
	for _, want := range traces {
		info, ok := r.Lookup(want.ID)
		if !ok {
			t.Fatalf("trace %s is not there", want.ID)
		}
		if blocks[info.Block] == nil {
			if blocks[info.Block], err = r.Block(info.Block); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(blocks) < 4 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, want := range traces {
		info, _ := r.Lookup(want.ID)
		for n, b := range blocks {
			got, err := b.Trace(want.ID)
			if n != info.Block {
				if tga.CodeOf(err) != tga.NotFound {
					t.Fatalf("trace %s of block %d in block %d: %v", want.ID, info.Block, n, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*want, got, sameTrace); diff != "" {
				t.Fatal(diff)
			}
		}
	}
	if b := blocks[0]; b.Size() < segment.BlockTarget {
		t.Errorf("a block of %d bytes", b.Size())
	}
}

// TestRecordsThatArePassedOver: a reader skips a record by its lengths. Whatever the lengths are, a trace
// that would lie behind missing bytes is not found, and nothing else happens.
func TestRecordsThatArePassedOver(t *testing.T) {
	traces := few()
	wanted := traces[2]
	before := record(traces[0]) // with notes, and with entries that have documents
	frame := binary.BigEndian.Uint32(before[24:])
	spill := binary.BigEndian.Uint64(before[28:])
	notes := before[24:]
	for range traces[0].Entries {
		notes = notes[12+uint64(binary.BigEndian.Uint32(notes))+binary.BigEndian.Uint64(notes[4:]):]
	}
	atNotes := len(before) - len(notes)
	put := func(b []byte, at int, v uint64, width int) []byte {
		b = slices.Clone(b)
		for i := range width {
			b[at+i] = byte(v >> (8 * (width - 1 - i)))
		}
		return b
	}
	whole := record(wanted)
	for name, c := range map[string]struct {
		records []byte
		ok      bool
	}{
		"as they are":                {append(slices.Clone(before), whole...), true},
		"nothing before":             {whole, true},
		"nothing":                    {nil, false},
		"a head that is cut short":   {before[:23], false},
		"a head":                     {before[:24], false},
		"an entry's head cut short":  {before[:35], false},
		"a frame a byte short":       {before[:36+frame-1], false},
		"a frame a byte longer":      {append(put(before, 24, uint64(frame)+1, 4), whole...), false},
		"a frame that is too long":   {append(put(before, 24, 1<<32-1, 4), whole...), false},
		"beside it too much":         {append(put(before, 28, 1<<64-1, 8), whole...), false},
		"beside it, around once":     {append(put(before, 28, spill-uint64(len(before)), 8), whole...), false},
		"more entries than there is": {append(put(before, 16, 1<<32-1, 4), whole...), false},
		"one entry less":             {append(put(before, 16, uint64(len(traces[0].Entries)-1), 4), whole...), false},
		"more notes than there is":   {append(put(before, 20, 1<<32-1, 4), whole...), false},
		"a note's head cut short":    {before[:atNotes+3], false},
		"a note a byte short":        {before[:len(before)-1], false},
		"a note that is too long":    {append(put(before, atNotes, 1<<32-1, 4), whole...), false},
		"the last one, a byte short": {append(slices.Clone(before), whole[:len(whole)-1]...), false},
	} {
		b := packedSegment(t, c.records, wanted.ID)
		r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
		if err != nil {
			t.Fatal(err)
		}
		// The forged footer has only the place of the trace. So a trace that is found does not match the
		// footer.
		if _, err := r.Trace(wanted.ID); tga.CodeOf(err) != tga.StateChecksumMismatch || strings.Contains(err.Error(), "differs") != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// packedSegment makes a segment with one block of two traces. Its footer names only the second trace,
// without its digests.
func packedSegment(t *testing.T, records []byte, id tga.ID) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return packedRaw(enc.EncodeAll(records, nil), id)
}

func packedRaw(stored []byte, id tga.ID) []byte {
	b := append([]byte("TGADSEG\n"), 0, 0, 0, 2, 0, 0, 0, 0)
	foot := append([]byte("FOOT"), 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0)
	foot = append(foot, placed(len(b), stored)...)
	b = appendPart(b, "BLOK", 2, stored)
	foot = append(foot, placed(len(b), nil)...)
	b = appendPart(b, "LIST", 1, nil)
	foot = append(foot, id[:]...)
	return ended(b, append(foot, make([]byte, 104-16)...))
}

// TestBlockThatExpandsWithoutEnd: a block may not expand to more than the largest trace.
func TestBlockThatExpandsWithoutEnd(t *testing.T) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	frame := enc.EncodeAll(make([]byte, 8<<20), nil)
	bomb := bytes.Repeat(frame, (segment.MaxTrace+segment.BlockTarget)/(8<<20)+1)
	b := packedRaw(bomb, few()[0].ID)
	r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Trace(few()[0].ID); tga.CodeOf(err) != tga.StateChecksumMismatch || !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		t.Errorf("%v", err)
	}
}

// TestWalkStopsWhereItIsTold: an error of the callback ends the walk and is returned unchanged.
func TestWalkStopsWhereItIsTold(t *testing.T) {
	traces := few()
	whole := seal(t, traces...)
	enough := errors.New("enough")
	for stop := range len(traces) {
		seen := 0
		_, err := segment.Walk(bytes.NewReader(whole), int64(len(whole)), nil, func(tr *segment.Trace, folded *chain.Trace) error {
			if diff := cmp.Diff(traces[seen], tr, sameTrace); diff != "" || folded.ID != tr.ID || folded.Head.Seq != uint64(len(tr.Entries)) {
				t.Errorf("trace %d: %s", seen, diff)
			}
			if seen++; seen > stop {
				return enough
			}
			return nil
		})
		if err != enough || seen != stop+1 {
			t.Errorf("%v after %d traces, want it after %d", err, seen, stop+1)
		}
	}
}
