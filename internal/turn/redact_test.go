package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
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

// TestWhatOthersSayOfACallIsRedactedToo: a person settles a call in doubt with the tool's answer, or
// the tool server is asked what became of it.
func TestWhatOthersSayOfACallIsRedactedToo(t *testing.T) {
	const answer = `{"mail":"ann@example.com","n":1}`
	for _, probes := range []bool{false, true} {
		w := newWorld(t, func(w *world) {
			w.licence = ledger.Park
			w.agents[0].Redact = message.Filter{PII: []string{"email"}}
			if probes {
				w.licence = ledger.Probe
				w.options = func(o *turn.Options) {
					o.Runtime.Trust.Prober = func(string, string) runtime.Prober { return says(answer) }
				}
			}
		})
		w.fails["echo"] = func(int) (runtime.Reply, error) { return runtime.Reply{}, errors.New("connection reset") }
		res := w.run("call echo {}")
		if !probes {
			if _, err := w.r.Settle(t.Context(), res.InteractionID, turn.Settlement{Who: "ann", Action: turn.Ran, Result: json.RawMessage(answer), Note: note}); err != nil {
				t.Fatal(err)
			}
			var err error
			if res, err = w.r.Resume(t.Context(), res.InteractionID); err != nil {
				t.Fatal(err)
			}
		}
		if res.Status != turn.Completed || strings.Contains(res.Text, "ann@") || !strings.Contains(res.Text, `"n":1`) {
			t.Errorf("probes %v: %+v", probes, res)
		}
		w.stop()
		if found := filesWith(t, w.disk, "store", "ann@"); len(found) != 0 {
			t.Errorf("probes %v: it is in %v", probes, found)
		}
	}
}

// says is a prober that knows the answer of every call.
type says string

func (s says) Probe(context.Context, runtime.Call) (runtime.Probed, error) {
	return runtime.Probed{
		Answer: ledger.ProbeRan, Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(s)},
		Evidence: runtime.Evidence{Source: "the server", Detail: []byte(s)},
	}, nil
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
