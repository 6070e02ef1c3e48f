package fuzz

import (
	"bytes"
	"testing"

	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
)

// FuzzVerifyExport: an export that verifies consists of whole lines, and no byte that a digest covers can be
// changed.
func FuzzVerifyExport(f *testing.F) { fuzzVerifyExport(f) }

func fuzzVerifyExport(f fuzzer) {
	for _, t := range seeds() {
		var b bytes.Buffer
		if err := ndjson.Write(&b, t.ID, t.AllEntries(), t.AllNotes()); err != nil {
			f.Fatal(err)
		}
		if err := ndjson.End(&b, 1); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()/2])
	}
	addTexts(f)
	f.Fuzz(bounded(func(t *testing.T, b []byte) {
		report, err := ndjson.Verify(bytes.NewReader(b))
		if err != nil {
			if tga.CodeOf(err) == "" {
				t.Fatalf("%.300q: an error without a code: %v", b, err)
			}
			return
		}
		lines := bytes.Count(b, []byte("\n"))
		if n := len(b); n > 0 && b[n-1] != '\n' {
			lines++
		}
		if report.Lines > lines || report.Traces > report.Lines {
			t.Fatalf("%d traces on %d lines, the file has %d", report.Traces, report.Lines, lines)
		}
	}))
}
