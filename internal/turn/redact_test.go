package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// TestAnswersAreRedactedBeforeTheyAreStored: nothing that was removed is in the store, and the
// received answer stays provable.
func TestAnswersAreRedactedBeforeTheyAreStored(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.agents[0].Redact = message.Filter{PII: []string{"email"}, Actions: map[string]message.Action{"pii:email": message.Block}}
	})
	w.tool("who", func(context.Context, string) (string, error) { return `{"mail":"ann@example.com","n":1}`, nil })
	res := w.run("call who {}")
	if strings.Contains(res.Text, "ann@example.com") || strings.Contains(res.Effects[0].Output, "ann@") {
		t.Errorf("%+v", res)
	}
	served, err := w.r.Runtime().Result(t.Context(), res.Effects[0].TraceID)
	if err != nil || strings.Contains(string(served.Value), "ann@") || !json.Valid(served.Value) {
		t.Errorf("%s, %v", served.Value, err)
	}
	trace, err := w.db.Load(t.Context(), res.Effects[0].TraceID)
	if err != nil {
		t.Fatal(err)
	}
	hashes := trace.Effect.Effect.DocumentHashes
	if len(hashes) != 2 || hashes[0].Pointer != tga.PointerResult || hashes[0].Hash != tga.Sum(served.Value) ||
		hashes[1].Pointer != tga.PointerReceived || hashes[1].SizeBytes != int64(len(`{"mail":"ann@example.com","n":1}`)) || hashes[1].Hash == tga.Sum([]byte(`{"mail":"ann@example.com","n":1}`)) {
		t.Errorf("%+v", hashes)
	}
}

// TestWhatAToolSaysOfItsFailureIsRedactedToo.
func TestWhatAToolSaysOfItsFailureIsRedactedToo(t *testing.T) {
	w := newWorld(t, func(w *world) { w.agents[0].Redact = message.Filter{PII: []string{"email"}} })
	w.tool("who", func(context.Context, string) (string, error) { return "", errors.New("no account of ann@example.com") })
	res := w.run("call who {}")
	served, err := w.r.Runtime().Result(t.Context(), res.Effects[0].TraceID)
	if err != nil || strings.Contains(served.ErrorMessage, "ann@") || !strings.Contains(served.ErrorMessage, "no account of") || strings.Contains(res.Text, "ann@") {
		t.Errorf("%q, %q, %v", served.ErrorMessage, res.Text, err)
	}
}
