package mcpfront

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// resolve settles the call in doubt that an answer names.
func (w *world) resolve(answer string, r runtime.Reply) {
	w.T.Helper()
	_, err := w.RT.Resolve(w.T.Context(), w.traceOf(answer), runtime.Resolution{Who: "ann", Evidence: []byte(`"the statement"`), Reply: r})
	if err != nil {
		w.T.Fatal(err)
	}
}

// traceOf returns the trace that an answer names.
func (w *world) traceOf(answer string) tga.ID {
	w.T.Helper()
	var said string
	if v := at2(answer, "/result/_meta/dev.tgad~1traceId"); len(v) > 2 {
		said = string(v[1 : len(v)-1])
	}
	id, err := tga.ParseID(said)
	if err != nil {
		w.T.Fatalf("%s: %v", answer, err)
	}
	return id
}

// TestRepeatAfterNotRunRuns: once somebody has settled a call as not run, the same call runs at once,
// with an idempotency key and without one. The client was told so.
func TestRepeatAfterNotRunRuns(t *testing.T) {
	for name, meta := range map[string]string{"without a key": `{}`, "with a key": `{"dev.tgad/idempotencyKey":"k"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.start()
			h.Handshake()
			const args = `{"die":"journal"}`
			w.resolve(h.Call("1", "charge", args, meta), runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable})
			got := h.Call("2", "charge", args, meta)
			fronttest.Has(t, got, `"ok"`)
			fronttest.Lacks(t, got, "replayed")
			if n := len(w.Effects()); n != 1 {
				t.Errorf("%d effects, want 1", n)
			}
			if name == "with a key" {
				fronttest.Has(t, h.Call("3", "charge", args, meta), `"ok"`, `"dev.tgad/replayed":true`)
			}
		})
	}
}

// TestFailureThatTheToolAnsweredIsServed: a tool's own answer that nothing was done is an effect. The
// repeat with the same key gets that answer; a new try needs a new key.
func TestFailureThatTheToolAnsweredIsServed(t *testing.T) {
	w := newWorld(t)
	w.log = retryable{w.Local()}
	h := w.start()
	h.Handshake()
	for i, id := range []string{"1", "2"} {
		got := h.Call(id, "fail", `{}`, `{"dev.tgad/idempotencyKey":"k"}`)
		fronttest.Has(t, got, "no money")
		if i == 1 {
			fronttest.Has(t, got, `"dev.tgad/replayed":true`)
		}
	}
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

// retryable is a log whose operator attests that each failure means that the call did not run.
type retryable struct{ asklog.Log }

func (l retryable) Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	f.Class = ledger.ClassRetryable
	return l.Log.Finish(ctx, trace, permit, f)
}

// TestWhatAPersonRecordedIsServed: whoever settles a call may record an answer in any form, which need not be one of the
// protocol. The same call is answered with one line that a client can read, and with all of the answer.
func TestWhatAPersonRecordedIsServed(t *testing.T) {
	for recorded, want := range map[string]string{
		"{\n  \"content\": [\n    {\"type\": \"text\", \"text\": \"paid\\nby hand\"}\n  ]\n}\n": `paid\nby hand`,
		"paid\nby hand": `paid\nby hand`,
		`"paid"`:        `paid`,
		`[1,2]`:         `[1,2]`,
		`7`:             `"7"`,
		"paid \xff":     `paid`,
		`{"a":1,"a":2}`: `a`,
	} {
		w := newWorld(t)
		h := w.start()
		h.Handshake()
		const args, meta = `{"die":"journal"}`, `{"dev.tgad/idempotencyKey":"k"}`
		w.resolve(h.Call("1", "charge", args, meta), runtime.Reply{Status: tga.StatusSuccess, Result: []byte(recorded)})
		h.Write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":` + args + `,"_meta":` + meta + `}}`)
		got := h.ReadLine()
		if !json.Valid([]byte(got)) || at2(got, "/result/content") == nil {
			t.Errorf("%q is served as %s", recorded, got)
		}
		fronttest.Has(t, got, want, `"dev.tgad/replayed":true`)
		_ = h.Stop()
	}
}
