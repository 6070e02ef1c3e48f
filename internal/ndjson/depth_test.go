package ndjson_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/internal/story"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// deep returns an object of the given number of levels.
func deep(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

// TestDeepestTraceIsExported: arguments, documents and notes that are nested as deeply as a daemon accepts
// can be exported, verified and shown to a person. Deeper ones are not written.
func TestDeepestTraceIsExported(t *testing.T) {
	const most = tga.DefaultMaxDepth
	for _, c := range []struct {
		what string
		o    chaintest.Options
		want tga.Code
	}{
		{"arguments at the limit", chaintest.Options{Seed: 1, Args: deep(most)}, ""},
		{"arguments past it", chaintest.Options{Seed: 1, Args: deep(most + 1)}, tga.LimitExceeded},
		{"a document at the limit", chaintest.Options{Seed: 1, Documents: []chain.Document{doc("/result", deep(ndjson.MaxDepth-1))}}, ""},
		{"a document past it", chaintest.Options{Seed: 1, Documents: []chain.Document{doc("/result", deep(ndjson.MaxDepth))}}, ""}, // written as base64
	} {
		x := chaintest.New(c.o)
		var b bytes.Buffer
		err := ndjson.WriteLists(&b, x.ID, x.Entries, x.Notes)
		if tga.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if err == nil {
			if _, _, err := ndjson.ReadTrace(&b); err != nil {
				t.Errorf("%s: written, and not read: %v", c.what, err)
			}
		}
		said := wire.Timeline{TraceID: x.ID}
		for i := range x.Entries {
			said.Entries = append(said.Entries, story.Said(&x.Entries[i]))
		}
		documents := x.Entries[len(x.Entries)-1].Documents
		if _, err := story.Fold(said, func(string) ([]byte, error) { return documents[0].Data, nil }); err != nil {
			t.Errorf("%s: nobody can look at it: %v", c.what, err)
		}
	}
	x := chaintest.New(chaintest.Options{Seed: 2})
	x.Note(chain.NewNote{Kind: tga.NoteConfirmation, Who: "ann", Body: []byte(deep(most))})
	var b bytes.Buffer
	if err := ndjson.WriteLists(&b, x.ID, x.Entries, x.Notes); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ndjson.ReadTrace(&b); err != nil {
		t.Errorf("a note at the limit: written, and not read: %v", err)
	}
}
