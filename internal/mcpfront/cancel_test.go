package mcpfront

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/names"
	"github.com/tgad/tgad/ledger"
)

// TestCancelledRequestEndsItsPost: no answer comes, so the stream ends without one, and the id is free
// again. What the tool server did is on record: the repeat of the call gets it.
func TestCancelledRequestEndsItsPost(t *testing.T) {
	for name, door := range map[string]func(*world) (url, tool, journal string){
		"shim": func(w *world) (string, string, string) { return w.listening(), "charge", w.journal },
		"gateway": func(w *world) (string, string, string) {
			return w.door(w.gateTo(names.Lists{}, w.behind("a", names.Names{})).lobby), "a__charge", w.journalOf("a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			url, tool, journal := door(w)
			session := session2025(t, url)
			call := func(id int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"wait":%q}}}`, id, tool, w.dir+"/go on")
			}
			got := make(chan string)
			go func() {
				status, answer, err := tryPost(url, call(1), session...)
				got <- fmt.Sprint(status, " ", answer, err)
			}()
			eventually(t, "the call", func() bool { return len(journalOf(t, journal)) == 1 })
			for _, id := range []int{2, 1} { // of 2 nothing is under way
				if status, said := post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id), session...); status != http.StatusAccepted {
					t.Errorf("%d %s", status, said)
				}
			}
			if end := <-got; end != "200 <nil>" {
				t.Errorf("the POST of what was cancelled ended with %s", end)
			}
			if err := os.WriteFile(w.dir+"/go on", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the record", func() bool {
				_, again := post(t, url, call(1), session...)
				return strings.Contains(again, `"text":"ok"`)
			})
			if n := len(journalOf(t, journal)); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

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
