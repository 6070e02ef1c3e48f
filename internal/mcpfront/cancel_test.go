package mcpfront

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// TestCancelledRequestsTakeNoRoom: a tool server does not answer a request that was cancelled. However many there are,
// further requests pass, governed or not, and the shim does not wait for them at its end.
func TestCancelledRequestsTakeNoRoom(t *testing.T) {
	for _, observes := range []bool{false, true} {
		w := newWorld(t)
		w.opts.MaxRequests = 3
		w.opts.CancelGrace = time.Millisecond
		w.opts.EndGrace = time.Hour
		hold := `"method":"hold"`
		if observes {
			w.opts.Observe = func(Would) {}
			hold = `"method":"tools/call","params":{"name":"mute","arguments":{"n":%d}}`
		}
		h := w.start()
		h.Handshake()
		for id := 1; id <= 20; id++ {
			said := hold
			if observes {
				said = fmt.Sprintf(hold, id)
			}
			h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, said))
			if observes {
				fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == id })
			}
			h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
		}
		fronttest.Has(t, h.Ask("30", "echo", `{"n":1}`), `"n":1`)
		fronttest.Has(t, h.Call("31", "charge", `{}`), `"ok"`)
		if !observes {
			// Nor do they take the room of a call whose late answer is still recorded.
			gate, n := filepath.Join(w.Dir, "gate"), len(w.Effects())
			h.Write(`{"jsonrpc":"2.0","id":32,"method":"tools/call","params":{"name":"charge","arguments":{"wait":"` + gate + `"}}}`)
			fronttest.Eventually(t, "the effect", func() bool { return len(w.Effects()) == n+1 })
			h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":32}}`)
			fronttest.Eventually(t, "the doubt", func() bool { return len(h.s.Underway()) == 0 })
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			fronttest.Eventually(t, "the late answer", func() bool {
				r := w.Record("charge", w.Effects()[n].Key)
				return r != nil && r.Status == ledger.Settled
			})
		}
		_ = h.Stop()
	}
}

// TestWithdrawnQuestionsTakeNoRoom: a tool server withdraws its questions to the client. However many there were, further
// ones pass.
func TestWithdrawnQuestionsTakeNoRoom(t *testing.T) {
	w := newWorld(t)
	w.opts.MaxRequests = 3
	h := w.start()
	h.Handshake()
	for id := 1; id <= 10; id++ {
		h.Said = nil
		h.Ask("1", "say", fmt.Sprintf(`{"line":%q}`, fmt.Sprintf(`{"jsonrpc":"2.0","id":"w%d","method":"sampling/createMessage","params":{}}`, id)))
		if len(h.Said) != 1 {
			t.Fatalf("question %d did not pass: %q", id, h.Said)
		}
		h.Ask("2", "say", fmt.Sprintf(`{"line":%q}`, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w%d"}}`, id)))
	}
}

// TestCancellationWithALongReason: a client may say at length why it cancels a request.
func TestCancellationWithALongReason(t *testing.T) {
	w := newWorld(t)
	w.opts.CancelGrace = 20 * time.Millisecond
	h := w.start()
	h.Handshake()
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mute","arguments":{}}}`)
	fronttest.Eventually(t, "the effect", func() bool { return len(w.Effects()) == 1 })
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"` + strings.Repeat("so ", 4<<10) + `"}}`)
	fronttest.Has(t, h.Call("2", "mute", `{}`), "OUTCOME UNKNOWN")
}
