package mcpfront

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
)

func TestCancelledCall(t *testing.T) {
	w := newWorld(t)
	w.opts.CancelGrace = 20 * time.Millisecond
	h := w.start()
	h.handshake()
	gate := filepath.Join(w.dir, "gate")
	h.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"` + gate + `"}}}`)
	eventually(t, "the effect", func() bool { return len(w.effects()) == 1 })
	h.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	// It may have run, so a repeat is in doubt, and not sent.
	has(t, h.call("2", "charge", `{"wait":"`+gate+`"}`), "OUTCOME UNKNOWN")
	// Its id is not free while the tool server may still answer.
	has(t, h.ask("1", "echo", `{}`), "under way")
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// The late answer ends the doubt.
	eventually(t, "the late answer to be recorded", func() bool {
		r := w.record("charge", w.effects()[0].Key)
		return r != nil && r.Status == ledger.Settled
	})
	has(t, h.call("3", "charge", `{"wait":"`+gate+`"}`), `"ok"`, "replayed")
	if n := len(w.effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
	if len(h.said) != 0 {
		t.Errorf("answered although it was cancelled: %q", h.said)
	}
}

// TestCallThatIsCancelledBeforeItIsSent is not sent, and its permit is given back.
func TestCallThatIsCancelledBeforeItIsSent(t *testing.T) {
	w := newWorld(t)
	log := &flaky{Log: local{w.rt}}
	w.log = log
	h := w.start()
	h.handshake()
	h.call("1", "charge", `{"warm":1}`)
	log.onBegun = func() {
		log.onBegun = nil
		h.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		eventually(t, "nobody waits", func() bool {
			h.s.mu.Lock()
			defer h.s.mu.Unlock()
			for _, a := range h.s.open {
				select {
				case <-a.lonely.C:
					return true
				default:
				}
			}
			return false
		})
	}
	h.write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"n":1}}}`)
	eventually(t, "the permit to be given back", func() bool {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		return len(h.s.unsent) == 1 && len(h.s.open) == 0
	})
	if n := len(w.effects()); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	has(t, h.call("3", "charge", `{"n":1}`), `"ok"`)
	if n := len(w.effects()); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}
