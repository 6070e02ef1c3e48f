package fuzz

import (
	"bytes"
	"testing"

	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/schemas/tga"
)

func sealed(f fuzzer) []byte {
	var b bytes.Buffer
	w, err := segment.NewWriter(&b, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, t := range seeds() {
		s := segment.Trace{ID: t.ID, Entries: t.Entries}
		for _, n := range t.Notes {
			s.Notes = append(s.Notes, segment.Note{Note: n, Committed: 5, Epoch: 6})
		}
		if err := w.Add(&s); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		f.Fatal(err)
	}
	return b.Bytes()
}

// FuzzVerifySegment: no input makes Verify or Open panic or allocate without limit. If Verify accepts a
// segment, Open reads all its traces and its list.
func FuzzVerifySegment(f *testing.F) { fuzzVerifySegment(f) }

func fuzzVerifySegment(f fuzzer) {
	whole := sealed(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("TGADSEG\n"))
	f.Fuzz(bounded(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		report, err := segment.Verify(r, int64(len(b)), nil)
		opened, openErr := segment.Open(r, int64(len(b)), nil)
		if openErr != nil {
			if err == nil {
				t.Fatalf("verifies, does not open: %v", openErr)
			}
			return
		}
		if _, listErr := opened.List(); listErr != nil && err == nil {
			t.Fatalf("verifies, has no list: %v", listErr)
		}
		var traces int
		for _, e := range opened.Traces() {
			if e != nil {
				if err == nil {
					t.Fatalf("verifies, does not read: %v", e)
				}
				return
			}
			traces++
		}
		if err == nil && traces != report.Traces {
			t.Fatalf("verifies %d traces, reads %d", report.Traces, traces)
		}
	}))
}

// FuzzSegmentFlip: a change of any byte is found.
func FuzzSegmentFlip(f *testing.F) { fuzzSegmentFlip(f) }

func fuzzSegmentFlip(f fuzzer) {
	whole := sealed(f)
	f.Add(uint32(0), uint8(1))
	f.Add(uint32(100), uint8(255))
	f.Fuzz(func(t *testing.T, at uint32, mask uint8) {
		if mask == 0 {
			return
		}
		b := bytes.Clone(whole)
		b[int(at)%len(b)] ^= mask
		_, err := segment.Verify(bytes.NewReader(b), int64(len(b)), nil)
		if code := tga.CodeOf(err); code == "" || code == tga.StoreUnavailable {
			t.Fatalf("byte %d changed by %#x: %v", int(at)%len(b), mask, err)
		}
	})
}
