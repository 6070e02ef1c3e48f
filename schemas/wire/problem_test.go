package wire

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// TestProblemRoundTrip: an error crosses the wire with its code, its facts and the codes of its causes.
func TestProblemRoundTrip(t *testing.T) {
	id, err := tga.ParseID("01936a8b-4c2d-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	cause := tga.Errorf(tga.StateChecksumMismatch, "the log is short: %w", tga.Errorf(tga.FormatTooNew, "version 9"))
	want := tga.Errorf(tga.StoreUnavailable, "the store is frozen: %w", cause)
	want.TraceID, want.Seq, want.Note, want.Pointer = id, 3, 2, "/a/0"
	want.ExpectedSeq, want.ActualSeq = 4, 7
	want.RetryAfter = 7 * time.Second
	want.WantDigest, want.GotDigest, want.Where = tga.Sum([]byte("a")), tga.Sum([]byte("b")), "stored"

	var p Problem
	if err := json.Unmarshal(Append(nil, ProblemOf(want)), &p); err != nil {
		t.Fatal(err)
	}
	got := p.Err()
	for _, code := range []tga.Code{tga.StoreUnavailable, tga.StateChecksumMismatch, tga.FormatTooNew} {
		if !errors.Is(got, code) {
			t.Errorf("the error is no %s any more", code)
		}
	}
	if errors.Is(got, tga.NotFound) || tga.CodeOf(got) != tga.StoreUnavailable || got.Error() != want.Error() {
		t.Errorf("error %v", got)
	}
	got.Err, want.Err = nil, nil
	if *got != *want {
		t.Errorf("facts %+v, want %+v", *got, *want)
	}
}
