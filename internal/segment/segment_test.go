package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

func trace(o chaintest.Options) *segment.Trace {
	t := chaintest.New(o)
	s := &segment.Trace{ID: t.ID, Entries: t.Entries}
	for _, n := range t.Notes {
		s.Notes = append(s.Notes, segment.Note{Note: n, Committed: n.TS + 1, Epoch: 9})
	}
	return s
}

func document(pointer string, n int) chain.Document {
	return chain.Document{Pointer: pointer, Data: bytes.Repeat([]byte("x"), n)}
}

// sameTrace compares byte slices as a whole: comparing them element by element takes seconds.
var sameTrace = cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(chain.Entry{}),
	cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal))}

// few is a small segment that has each kind of part.
func few() []*segment.Trace {
	erased := trace(chaintest.Options{Seed: 4, Documents: []chain.Document{document("/result", 9)}})
	erased.Entries[3] = chaintest.Erase(erased.Entries[3])
	return []*segment.Trace{
		trace(chaintest.Options{Seed: 1, Key: "order-1", Notes: 2, Documents: []chain.Document{document("/result", 40), document("/evidence", 0)}}),
		trace(chaintest.Options{Seed: 2, Verdict: tga.Deny}),
		trace(chaintest.Options{Seed: 3, Status: tga.StatusFailure, Documents: []chain.Document{document("/result", chain.MaxInline+1)}}),
		erased,
	}
}

func seal(t *testing.T, traces ...*segment.Trace) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := segment.NewWriter(&b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range traces {
		if err := w.Add(tr); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	report, err := segment.Verify(bytes.NewReader(b.Bytes()), int64(b.Len()), nil)
	if err != nil {
		t.Fatalf("verify what was sealed: %v", err)
	}
	if report.Digest != sum {
		t.Errorf("close says digest %s, verify %s", sum, report.Digest)
	}
	return b.Bytes()
}

func verify(b []byte) (segment.Report, error) {
	return segment.Verify(bytes.NewReader(b), int64(len(b)), nil)
}

// many fills several blocks: its results do not compress.
func many(n int) []*segment.Trace {
	var traces []*segment.Trace
	seed := tga.Sum(nil)
	for i := range n {
		var data []byte
		for len(data) < 20<<10 {
			seed = tga.Sum(seed[:])
			data = append(data, seed[:]...)
		}
		traces = append(traces, trace(chaintest.Options{Seed: uint64(i), Documents: []chain.Document{{Pointer: "/result", Data: data}}}))
	}
	return traces
}

func TestSegmentRoundTrip(t *testing.T) {
	for name, traces := range map[string][]*segment.Trace{"none": nil, "few": few(), "several blocks": many(40)} {
		t.Run(name, func(t *testing.T) {
			b := seal(t, traces...)
			r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
			if err != nil {
				t.Fatal(err)
			}
			report, err := verify(b)
			if err != nil {
				t.Fatal(err)
			}
			if r.Len() != len(traces) || report.Traces != len(traces) || r.Digest() != report.Digest {
				t.Errorf("%d traces in, %d in the index, %d verified", len(traces), r.Len(), report.Traces)
			}
			if name == "several blocks" && report.Blocks < 3 {
				t.Errorf("%d blocks", report.Blocks)
			}
			var at int
			for got, err := range r.Traces() {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(*traces[at], got, sameTrace); diff != "" {
					t.Fatalf("trace %d (-in +out):\n%s", at, diff)
				}
				at++
			}
			if at != len(traces) {
				t.Errorf("%d traces of %d are read", at, len(traces))
			}
			for _, want := range traces {
				got, err := r.Trace(want.ID)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(*want, got, sameTrace); diff != "" {
					t.Fatalf("(-in +out):\n%s", diff)
				}
				last := want.Entries[len(want.Entries)-1]
				info, ok := r.Lookup(want.ID)
				if !ok || info.First != 1 || info.Last != last.Seq || info.HeadDigest != last.Digest || int(info.Notes) != len(want.Notes) {
					t.Errorf("index says %+v", info)
				}
			}
			if _, err := r.Trace(chaintest.ID(999, 999)); tga.CodeOf(err) != tga.NotFound {
				t.Errorf("a trace that is not there: %v", err)
			}
			var before tga.ID
			for info := range r.Index() {
				if bytes.Compare(before[:], info.TraceID[:]) >= 0 {
					t.Error("index is not in order")
				}
				before = info.TraceID
			}
		})
	}
}

// TestTraceOverTheWindowIsReadBack seals an answer that is longer than the compressor's window.
func TestTraceOverTheWindowIsReadBack(t *testing.T) {
	tr := trace(chaintest.Options{Seed: 1, Documents: []chain.Document{document("/result", 20<<20)}})
	b := seal(t, tr)
	r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Trace(tr.ID)
	if err != nil || !bytes.Equal(got.Entries[3].Documents[0].Data, tr.Entries[3].Documents[0].Data) {
		t.Errorf("a trace of 20 MiB: %v", err)
	}
}

func TestReportCountsWhatIsThere(t *testing.T) {
	alone := trace(chaintest.Options{Seed: 5, Documents: []chain.Document{document("/result", 9), document("/evidence", 9)}})
	alone.Entries[3].Documents = []chain.Document{document("/result", 9), {Pointer: "/evidence", Erased: true}}
	report, err := verify(seal(t, append(few(), alone)...))
	report.Digest = tga.Digest{}
	want := segment.Report{Blocks: 1, Traces: 5, Entries: 18, Notes: 2, Documents: 4, Erased: 2}
	if err != nil || report != want {
		t.Errorf("report %+v, %v, want %+v", report, err, want)
	}
}

// TestEveryFlipIsDetected changes the first bit, the last bit and all bits of each byte of a segment.
func TestEveryFlipIsDetected(t *testing.T) {
	whole := seal(t, few()...)
	b := bytes.Clone(whole)
	for i := range b {
		for _, mask := range []byte{1, 0x80, 0xff} {
			b[i] ^= mask
			_, err := verify(b)
			if code := tga.CodeOf(err); code != tga.StateChecksumMismatch && code != tga.FormatTooNew &&
				code != tga.StateSequenceGap {
				t.Fatalf("byte %d of %d changed by %#x: %v", i, len(b), mask, err)
			}
			b[i] = whole[i]
		}
	}
}

func TestEveryTruncationIsDetected(t *testing.T) {
	whole := seal(t, few()...)
	for n := range whole {
		if _, err := verify(whole[:n]); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Fatalf("cut to %d of %d bytes: %v", n, len(whole), err)
		}
		if _, err := segment.Open(bytes.NewReader(whole[:n]), int64(n), nil); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Fatalf("opens, cut to %d of %d bytes: %v", n, len(whole), err)
		}
	}
	for _, more := range [][]byte{{0}, whole[len(whole)-88:], whole} {
		if _, err := verify(append(bytes.Clone(whole), more...)); tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Fatalf("%d bytes added: %v", len(more), err)
		}
	}
}

// TestDamageIsFoundOnLookup changes each byte of a block and of the list. A lookup then returns the sealed
// trace or an error, and a damaged list is not read.
func TestDamageIsFoundOnLookup(t *testing.T) {
	traces := few()
	whole := seal(t, traces...)
	end := binary.BigEndian.Uint64(whole[len(whole)-88:])
	list := bytes.Index(whole, []byte("LIST"))
	b := bytes.Clone(whole)
	for i := 16; i < int(end); i++ {
		b[i] ^= 1
		r, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil)
		if err != nil {
			t.Fatalf("byte %d of a block changed: footer does not open: %v", i, err)
		}
		// No digest covers the count of traces in a block's header. A lookup stops at its trace, and Verify
		// finds a wrong count.
		if _, err := r.Trace(traces[0].ID); i < list && err == nil && (i < 20 || i >= 24) {
			t.Fatalf("byte %d of a block changed: trace reads", i)
		}
		if _, err := r.List(); i >= list && tga.CodeOf(err) != tga.StateChecksumMismatch {
			t.Fatalf("byte %d of the list changed: %v", i, err)
		}
		b[i] = whole[i]
	}
}

// TestBlockEndsAtItsTarget: a block ends with the trace that brings its records to the target. With one byte
// less, the next trace is in the block too.
func TestBlockEndsAtItsTarget(t *testing.T) {
	const headroom = 8 << 10
	of := func(n int) *segment.Trace {
		return trace(chaintest.Options{Seed: 1, Documents: []chain.Document{document("/result", n)}})
	}
	// The artifact has the size of the document, so both sizes must have the same number of digits.
	n := segment.BlockTarget - headroom
	n += segment.BlockTarget - len(record(of(n)))
	for less, blocks := range []int{2, 1} {
		if got := len(record(of(n - less))); got != segment.BlockTarget-less {
			t.Fatalf("a record of %d bytes", got)
		}
		report, err := verify(seal(t, of(n-less), few()[1]))
		if err != nil || report.Blocks != blocks {
			t.Errorf("%d bytes under the target: %d blocks, %v", less, report.Blocks, err)
		}
	}
}

func TestOnlyFinishedTracesAreSealed(t *testing.T) {
	var b bytes.Buffer
	w, err := segment.NewWriter(&b, nil)
	if err != nil {
		t.Fatal(err)
	}
	good := few()[0]
	for n := 1; n <= 3; n++ {
		if err := w.Add(trace(chaintest.Options{Seed: 5, Entries: n})); tga.CodeOf(err) != tga.GenericStateError {
			t.Errorf("trace of %d entries: %v", n, err)
		}
	}
	if err := w.Add(&segment.Trace{ID: good.ID}); tga.CodeOf(err) != tga.GenericStateError {
		t.Errorf("empty trace: %v", err)
	}
	broken := few()[0]
	broken.Entries[1].Digest[0]++
	if err := w.Add(broken); tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("broken trace: %v", err)
	}
	if err := w.Add(good); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(good); tga.CodeOf(err) != tga.GenericStateError {
		t.Errorf("the same trace again: %v", err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if report, err := verify(b.Bytes()); err != nil || report.Traces != 1 {
		t.Errorf("what was refused is in the segment: %+v, %v", report, err)
	}
	if err := w.Add(few()[1]); tga.CodeOf(err) != tga.GenericStateError {
		t.Errorf("add to a closed segment: %v", err)
	}
	if _, err := w.Close(); tga.CodeOf(err) != tga.GenericStateError {
		t.Errorf("close twice: %v", err)
	}
}

// limited is a writer that fails after n bytes.
type limited struct{ n int }

var errFull = errors.New("disk full")

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > l.n {
		return l.n, errFull
	}
	l.n -= len(b)
	return len(b), nil
}

// TestFailingWriterIsReported lets the write fail at many places, also at the last byte. A segment that was
// not written completely is reported.
func TestFailingWriterIsReported(t *testing.T) {
	size := len(seal(t, few()[:2]...))
	for n := size - 1; n >= 0; n -= 17 {
		w, err := segment.NewWriter(&limited{n}, nil)
		for _, tr := range few()[:2] {
			if err == nil {
				err = w.Add(tr)
			}
		}
		if err == nil {
			_, err = w.Close()
		}
		if !errors.Is(err, errFull) || tga.CodeOf(err) != tga.StoreUnavailable {
			t.Fatalf("write fails after %d bytes: %v", n, err)
		}
		if _, err := w.Close(); !errors.Is(err, errFull) {
			t.Fatalf("close after a failed write: %v", err)
		}
	}
}

// failing is a reader that fails from the given offset on.
type failing struct {
	r  io.ReaderAt
	at int64
}

func (f failing) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > f.at {
		return 0, errFull
	}
	return f.r.ReadAt(b, off)
}

// TestFailingReaderIsNoDamage: an error of the disk is not reported as damage of the segment.
func TestFailingReaderIsNoDamage(t *testing.T) {
	b := seal(t, many(20)...)
	for at := int64(0); at < int64(len(b)); at += 997 {
		r := failing{bytes.NewReader(b), at}
		if _, err := segment.Verify(r, int64(len(b)), nil); tga.CodeOf(err) != tga.StoreUnavailable || !errors.Is(err, errFull) {
			t.Fatalf("verify, reads fail from %d on: %v", at, err)
		}
		if _, err := segment.Open(r, int64(len(b)), nil); tga.CodeOf(err) != tga.StoreUnavailable {
			t.Fatalf("open, reads fail from %d on: %v", at, err)
		}
	}
}

func TestNewerSegmentIsRefused(t *testing.T) {
	b := seal(t, few()[0])
	b[11] = 3
	if _, err := verify(b); tga.CodeOf(err) != tga.FormatTooNew {
		t.Errorf("verify: %v", err)
	}
	if _, err := segment.Open(bytes.NewReader(b), int64(len(b)), nil); tga.CodeOf(err) != tga.FormatTooNew {
		t.Errorf("open: %v", err)
	}
}

// TestSealedTracesOfASegment: entries with a key are sealed in the file. The list and the chain can be
// checked without any key. A destroyed key counts as an erasure.
func TestSealedTracesOfASegment(t *testing.T) {
	const secret = "nobody reads this"
	ring := &chaintest.Ring{}
	var b bytes.Buffer
	w, err := segment.NewWriter(&b, ring)
	if err != nil {
		t.Fatal(err)
	}
	var made []*chaintest.Trace
	for n := range uint64(3) {
		tr := chaintest.New(chaintest.Options{Seed: n, Args: `{"secret":"` + secret + `"}`, Documents: []chain.Document{{Pointer: "/result", Data: bytes.Repeat([]byte(secret), 3000)}}})
		for i := range tr.Entries {
			tr.Entries[i].Key = chain.KeyID(n) // the first entry has no key
		}
		made = append(made, tr)
		if err := w.Add(&segment.Trace{ID: tr.ID, Entries: tr.Entries}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		keys   chain.Keys
		erased int
		code   tga.Code
	}{
		"with the ring":   {ring, 0, ""},
		"without":         {nil, 0, tga.StoreUnavailable},
		"without any key": {chain.NoKeys{}, 8, ""},
		"one destroyed":   {&chaintest.Ring{Destroyed: map[chain.KeyID]bool{2: true}}, 4, ""},
	} {
		report, err := segment.Verify(bytes.NewReader(b.Bytes()), int64(b.Len()), c.keys)
		if tga.CodeOf(err) != c.code || err == nil && report.Erased != c.erased {
			t.Errorf("%s: %d erased, %v", name, report.Erased, err)
		}
		r, err := segment.Open(bytes.NewReader(b.Bytes()), int64(b.Len()), c.keys)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Trace(made[2].ID)
		if tga.CodeOf(err) != c.code || err == nil && (got.Entries[3].Artifact == nil) != (c.erased > 0) {
			t.Errorf("%s: %v, %v", name, got.Entries, err)
		}
	}
	// What the list says of a trace is compared with the trace, unless the trace cannot be read.
	var other bytes.Buffer
	w, err = segment.NewWriter(&other, &chaintest.Ring{Err: tga.Errorf(tga.StoreUnavailable, "down")})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(&segment.Trace{ID: made[1].ID, Entries: made[1].Entries}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("added without its key: %v", err)
	}
	if err := w.Add(&segment.Trace{ID: made[0].ID, Entries: made[0].Entries}); err != nil {
		t.Errorf("after a trace that was refused: %v", err)
	}
}
