package mcpfront

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// againOf returns the trace that the newest call of a tool repeats (meta again_of).
func (w *world) againOf(key string) string {
	w.T.Helper()
	r := w.Record("charge", key)
	if r == nil {
		w.T.Fatalf("no record of %q", key)
	}
	t, err := w.DB.Load(w.T.Context(), r.TraceID)
	if err != nil {
		w.T.Fatal(err)
	}
	return t.Request.Meta.String(tga.MetaAgainOf)
}

// TestPersonAtTheClientRunsItAgain: a call in doubt runs again only if the person says yes. The record
// of the new call names the call in doubt.
func TestPersonAtTheClientRunsItAgain(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"charge","arguments":{"die":"answer","n":42}}}`
	for _, c := range []struct {
		said string
		runs bool
	}{
		{`{"action":"accept","content":{"run_again":true}}`, true},
		{`{"action":"accept","content":{"run_again":false}}`, false},
		{`{"action":"accept","content":{}}`, false},
		{`{"action":"accept"}`, false},
		{`{"action":"decline","content":{"run_again":true}}`, false},
		{`{"action":"cancel"}`, false},
	} {
		t.Run(c.said, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.start()
			h.elicits()
			h.Write(fmt.Sprintf(call, 1))
			q := h.ReadLine()
			fronttest.Has(t, q, `"method":"elicitation/create"`, "may have run just now", "Run it again?", `\"n\":42`, `"run_again":{"type":"boolean"`)
			fronttest.Lacks(t, q, `"approve"`)
			h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, at2(q, "/id"), c.said))
			got := h.Answer("1")
			if !c.runs {
				fronttest.Has(t, got, "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT")
				if n := len(w.Effects()); n != 1 {
					t.Errorf("%d effects, want 1", n)
				}
				return
			}
			fronttest.Has(t, got, `"ok"`)
			e := w.Effects()
			if len(e) != 2 || e[0].Key == e[1].Key {
				t.Fatalf("effects %+v", e)
			}
			if of := w.againOf(e[1].Key); of != w.Record("charge", e[0].Key).TraceID.String() {
				t.Errorf("the new call says that it repeats %q", of)
			}
			// The call has ended: the same call is a new call, and nobody is asked.
			fronttest.Has(t, h.Call("3", "charge", `{"die":"answer","n":42}`), `"ok"`)
		})
	}
}

// TestClientThatOnlyOpensURLsIsAskedNothing: a client that shows its person no forms is told of the doubt, as one that cannot ask.
func TestClientThatOnlyOpensURLsIsAskedNothing(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Ask("0", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"url":{}}},"clientInfo":{"name":"test","version":"1"}}`)
	h.Write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fronttest.Has(t, h.Call("1", "charge", `{"die":"answer"}`), "OUTCOME UNKNOWN")
	able := strings.Replace(fronttest.ModernMeta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{"url":{}}}`, 1)
	got := h.Ask("2", "tools/call", `{"name":"charge","arguments":{"die":"answer"},"_meta":`+able+"}")
	fronttest.Has(t, got, "OUTCOME UNKNOWN")
	fronttest.Lacks(t, got, "input_required")
}

// TestQuestionToRunAgainInAnAnswer: the same for a client without a handshake. A person's answer counts
// only from a client that declares that it can ask its person.
func TestQuestionToRunAgainInAnAnswer(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	able := strings.Replace(fronttest.ModernMeta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
	h.Ask("0", "echo", `{}`) // first, because a tool server that ends before it sent a message ends its shim
	call := func(id, meta, more string) string {
		return h.Ask(id, "tools/call", `{"name":"charge","arguments":{"die":"answer"},"_meta":`+meta+more+"}")
	}
	first := call("1", able, "")
	fronttest.Has(t, first, `"resultType":"input_required"`, `"tgad-run-again":{"method":"elicitation/create"`, "may have run just now")
	state := `,"requestState":"` + mcpraw.ScalarText(at2(first, "/result/requestState")) + `"`
	yes := state + `,"inputResponses":{"tgad-run-again":{"action":"accept","content":{"run_again":true}}}`
	fronttest.Has(t, call("2", able, state+`,"inputResponses":{"tgad-run-again":{"action":"decline"}}`), "OUTCOME UNKNOWN")
	fronttest.Has(t, call("3", fronttest.ModernMeta, yes), "OUTCOME UNKNOWN")
	if n := len(w.Effects()); n != 1 {
		t.Fatalf("%d effects, want 1", n)
	}
	fronttest.Has(t, call("5", able, ""), "input_required", "may have run at 20")
	fronttest.Has(t, call("4", able, yes), `"ok"`)
	e := w.Effects()
	if len(e) != 2 {
		t.Fatalf("effects %+v", e)
	}
	fronttest.Lacks(t, e[1].Line, "requestState", "inputResponses")
	if w.againOf(e[1].Key) == "" {
		t.Error("the new call does not say what it repeats")
	}
}
