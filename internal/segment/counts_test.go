package segment_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/tgad/tgad/internal/segment"
)

// counted counts the reads of a segment.
type counted struct {
	io.ReaderAt
	reads, bytes int
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(b)
	return c.ReaderAt.ReadAt(b, off)
}

// take returns the counts since the last take.
func (c *counted) take() (reads, n int) {
	reads, n = c.reads, c.bytes
	c.reads, c.bytes = 0, 0
	return reads, n
}

// TestReadsOfASegment counts reads. Opening a segment reads its footer. The list is one more read, and so is
// a trace, by its block. Reading all traces reads each byte of the blocks once. No read of one trace reads
// the whole file, and no read of the list reads a block.
func TestReadsOfASegment(t *testing.T) {
	traces := many(200)
	whole := seal(t, traces...)
	report, err := verify(whole)
	if err != nil || report.Blocks < 4 {
		t.Fatalf("%+v, %v: want some blocks", report, err)
	}
	c := &counted{ReaderAt: bytes.NewReader(whole)}
	r, err := segment.Open(c, int64(len(whole)), nil)
	if err != nil {
		t.Fatal(err)
	}
	reads, fixed := c.take()
	if reads != 3 {
		t.Errorf("opening takes %d reads, want the header, the trailer and the footer", reads)
	}
	if _, err := r.List(); err != nil {
		t.Fatal(err)
	}
	reads, list := c.take()
	if reads != 1 || list > 60*len(traces) {
		t.Errorf("the list takes %d reads of %d bytes for %d traces", reads, list, len(traces))
	}
	blocks := len(whole) - fixed - list
	most := 0
	for _, tr := range traces {
		if _, err := r.Trace(tr.ID); err != nil {
			t.Fatal(err)
		}
		reads, n := c.take()
		if reads != 1 {
			t.Fatalf("a trace takes %d reads, want its block", reads)
		}
		most = max(most, n)
	}
	if most > 2*blocks/report.Blocks {
		t.Errorf("a trace reads up to %d bytes of %d in %d blocks", most, blocks, report.Blocks)
	}
	for _, err := range r.Traces() {
		if err != nil {
			t.Fatal(err)
		}
	}
	if reads, n := c.take(); reads != report.Blocks || n != blocks {
		t.Errorf("all traces take %d reads of %d bytes, want %d of %d", reads, n, report.Blocks, blocks)
	}
	t.Logf("%d traces, %d bytes: footer %d, list %d, %d blocks of at most %d", len(traces), len(whole), fixed, list, report.Blocks, most)
}
