package mcpfront

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/ledger"
)

func TestCancelledCall(t *testing.T) {
	w := newWorld(t)
	w.opts.CancelGrace = 20 * time.Millisecond
	h := w.start()
	h.Handshake()
	gate := filepath.Join(w.Dir, "gate")
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"` + gate + `"}}}`)
	fronttest.Eventually(t, "the effect", func() bool { return len(w.Effects()) == 1 })
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	// The call may have run, so its repeat is in doubt and not sent.
	fronttest.Has(t, h.Call("2", "charge", `{"wait":"`+gate+`"}`), "OUTCOME UNKNOWN")
	// Its id stays in use while the tool server may still answer.
	fronttest.Has(t, h.Ask("1", "echo", `{}`), "under way")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The late answer ends the doubt.
	fronttest.Eventually(t, "the late answer to be recorded", func() bool {
		r := w.Record("charge", w.Effects()[0].Key)
		return r != nil && r.Status == ledger.Settled
	})
	fronttest.Has(t, h.Call("3", "charge", `{"wait":"`+gate+`"}`), `"ok"`, "replayed")
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
	if len(h.Said) != 0 {
		t.Errorf("answered although it was cancelled: %q", h.Said)
	}
}

// TestCallThatIsCancelledBeforeItIsSent: the call is not sent, and its permit is returned.
func TestCallThatIsCancelledBeforeItIsSent(t *testing.T) {
	w := newWorld(t)
	log := &flaky{Log: w.Local()}
	w.log = log
	h := w.start()
	h.Handshake()
	h.Call("1", "charge", `{"warm":1}`)
	log.onBegun = func() {
		log.onBegun = nil
		h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		fronttest.Eventually(t, "nobody waits", func() bool {
			all := h.s.Underway()
			return len(all) == 1 && all[0].Left()
		})
	}
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"n":1}}}`)
	fronttest.Eventually(t, "the permit to be given back", func() bool { return log.back.Load() == 1 && len(h.s.Underway()) == 0 })
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	fronttest.Has(t, h.Call("3", "charge", `{"n":1}`), `"ok"`)
	if n := len(w.Effects()); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}
