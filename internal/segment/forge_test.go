package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	goruntime "runtime"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// record is a trace record as this test makes it from the documented format.
func record(t *segment.Trace) []byte {
	b := append([]byte(nil), t.ID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.Entries)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.Notes)))
	for _, e := range t.Entries {
		frame, spill := chain.AppendFrame(nil, &e)
		b = binary.BigEndian.AppendUint32(b, uint32(len(frame)))
		b = binary.BigEndian.AppendUint64(b, uint64(len(spill)))
		b = append(append(b, frame...), spill...)
	}
	for _, n := range t.Notes {
		frame := chain.AppendNoteFrame(nil, &n.Note, n.Committed, n.Epoch)
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(frame))), frame...)
	}
	return b
}

// forge makes a segment of one block from records that no Writer would accept. Its footer lists no traces,
// so Verify finds the faults of the block first.
func forge(t *testing.T, records ...[]byte) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return forgeBlock(uint32(len(records)), enc.EncodeAll(bytes.Join(records, nil), nil))
}

func forgeBlock(traces uint32, stored []byte) []byte {
	b := append([]byte("TGADSEG\n"), 0, 0, 0, 2, 0, 0, 0, 0)
	b = appendPart(b, "BLOK", traces, stored)
	list := placed(len(b), nil)
	b = appendPart(b, "LIST", 0, nil)
	footer := append(append([]byte("FOOT"), make([]byte, 12)...), list...)
	return ended(b, footer)
}

// appendPart writes a block or a list.
func appendPart(b []byte, magic string, traces uint32, stored []byte) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, traces)
	b = binary.BigEndian.AppendUint64(b, uint64(len(stored)))
	return append(b, stored...)
}

// placed is how a footer describes a block or a list at an offset.
func placed(offset int, stored []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint64(b, uint64(len(stored)))
	sum := tga.Sum(stored)
	return append(b, sum[:]...)
}

// ended appends a footer and a trailer to blocks and list.
func ended(b, footer []byte) []byte {
	offset := uint64(len(b))
	b = append(b, footer...)
	b = binary.BigEndian.AppendUint64(b, offset)
	b = binary.BigEndian.AppendUint64(b, uint64(len(footer)))
	sum := tga.Sum(footer)
	b = append(b, sum[:]...)
	sum = tga.Sum(b)
	return append(append(b, sum[:]...), "TGADEND\n"...)
}

func TestForgedRecordsAreRefused(t *testing.T) {
	good := few()[0]
	open := trace(chaintest.Options{Seed: 7, Entries: 3})
	for name, b := range map[string][]byte{
		"footer without the trace": forge(t, record(good)),
		"the same trace twice":     forge(t, record(good), record(good)),
		"an unfinished trace":      forge(t, record(open)),
		"a trace without entries":  forge(t, make([]byte, 24)),
		"bytes after the records":  forge(t, append(record(good), 0)),
		"spill nobody names": forge(t, func() []byte {
			b := record(few()[1])
			binary.BigEndian.PutUint64(b[28:], 1)
			n := 36 + int(binary.BigEndian.Uint32(b[24:]))
			return append(append(bytes.Clone(b[:n]), 0), b[n:]...)
		}()),
		"no zstd":       forgeBlock(1, record(good)),
		"no traces":     forgeBlock(0, nil),
		"too many":      forgeBlock(segment.MaxTraces+1, nil),
		"empty block":   forgeBlock(1, nil),
		"many promised": forgeBlock(segment.MaxTraces, nil),
	} {
		if _, err := verify(b); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWindowOfABlockIsBounded: a reader refuses a frame that demands a larger window than the writer's,
// before it allocates the window.
func TestWindowOfABlockIsBounded(t *testing.T) {
	for window, refused := range map[int]bool{8 << 20: false, 16 << 20: true} {
		var packed bytes.Buffer
		enc, err := zstd.NewWriter(&packed, zstd.WithWindowSize(window), zstd.WithSingleSegment(false))
		if err != nil {
			t.Fatal(err)
		}
		// Without the content's length the frame has to state its window.
		for _, b := range [][]byte{record(few()[0]), nil} {
			if _, err := enc.Write(b); err != nil {
				t.Fatal(err)
			}
			if err := enc.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := enc.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = verify(forgeBlock(1, packed.Bytes()))
		if tga.CodeOf(err) != tga.StateChecksumMismatch || errors.Is(err, zstd.ErrWindowSizeExceeded) != refused {
			t.Errorf("a window of %d: %v", window, err)
		}
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestBombIsRefused gives a block whose few KiB expand to more than a trace may take, and counts of parts
// that do not exist.
func TestBombIsRefused(t *testing.T) {
	var packed bytes.Buffer
	enc, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	head := append(make([]byte, 0, 64), few()[0].ID[:]...)
	head = append(head, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	entry := binary.BigEndian.AppendUint64([]byte{0xff, 0xff, 0xff, 0xff}, 1<<63)
	if _, err := enc.Write(append(head, entry...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(enc, zeros{}, 600<<20); err != nil {
		t.Fatal(err)
	}
	if err := enc.Close(); err != nil {
		t.Fatal(err)
	}
	if packed.Len() > 1<<20 {
		t.Fatalf("%d bytes are no bomb", packed.Len())
	}
	bomb := forgeBlock(1, packed.Bytes())
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	if _, err := verify(bomb); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("bomb: %v", err)
	}
	goruntime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 32<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
}
