package mcpfront

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// againOf is the trace that the newest call of a tool says it repeats.
func (w *world) againOf(key string) string {
	w.t.Helper()
	r := w.record("charge", key)
	if r == nil {
		w.t.Fatalf("no record of %q", key)
	}
	t, err := w.db.Load(w.t.Context(), r.TraceID)
	if err != nil {
		w.t.Fatal(err)
	}
	return t.Request.Meta.String(tga.MetaAgainOf)
}

// TestPersonAtTheClientRunsItAgain: a call in doubt runs again where the person says yes, and on
// no other word of anybody's. The record of the new call names the one in doubt.
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
			h.write(fmt.Sprintf(call, 1))
			q := h.readLine()
			has(t, q, `"method":"elicitation/create"`, "may have run just now", "Run it again?", `\"n\":42`, `"run_again":{"type":"boolean"`)
			lacks(t, q, `"approve"`)
			h.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, at2(q, "/id"), c.said))
			got := h.answer("1")
			if !c.runs {
				has(t, got, "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT")
				if n := len(w.effects()); n != 1 {
					t.Errorf("%d effects, want 1", n)
				}
				return
			}
			has(t, got, `"ok"`)
			e := w.effects()
			if len(e) != 2 || e[0].Key == e[1].Key {
				t.Fatalf("effects %+v", e)
			}
			if of := w.againOf(e[1].Key); of != w.record("charge", e[0].Key).TraceID.String() {
				t.Errorf("the new call says that it repeats %q", of)
			}
			// It is over: the same call is another one, and nobody is asked.
			has(t, h.call("3", "charge", `{"die":"answer","n":42}`), `"ok"`)
		})
	}
}

// TestQuestionToRunAgainInAnAnswer: likewise of a client without a handshake. Only a client that
// says that it can ask its person is believed that it did.
func TestQuestionToRunAgainInAnAnswer(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	able := strings.Replace(modernMeta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
	h.ask("0", "echo", `{}`) // a tool server that ends before it spoke ends its shim
	call := func(id, meta, more string) string {
		return h.ask(id, "tools/call", `{"name":"charge","arguments":{"die":"answer"},"_meta":`+meta+more+"}")
	}
	first := call("1", able, "")
	has(t, first, `"resultType":"input_required"`, `"tgad-run-again":{"method":"elicitation/create"`, "may have run just now")
	state := `,"requestState":"` + mcpraw.ScalarText(at2(first, "/result/requestState")) + `"`
	yes := state + `,"inputResponses":{"tgad-run-again":{"action":"accept","content":{"run_again":true}}}`
	has(t, call("2", able, state+`,"inputResponses":{"tgad-run-again":{"action":"decline"}}`), "OUTCOME UNKNOWN")
	has(t, call("3", modernMeta, yes), "OUTCOME UNKNOWN")
	if n := len(w.effects()); n != 1 {
		t.Fatalf("%d effects, want 1", n)
	}
	has(t, call("5", able, ""), "input_required", "may have run at 20")
	has(t, call("4", able, yes), `"ok"`)
	e := w.effects()
	if len(e) != 2 {
		t.Fatalf("effects %+v", e)
	}
	lacks(t, e[1].Line, "requestState", "inputResponses")
	if w.againOf(e[1].Key) == "" {
		t.Error("the new call does not say what it repeats")
	}
}
