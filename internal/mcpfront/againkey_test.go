package mcpfront

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
)

const (
	saysYes     = `{"action":"accept","content":{"run_again":true}}`
	saysNo      = `{"action":"accept","content":{"run_again":false}}`
	saysNeither = `{"action":"cancel"}`
	keyOfMine   = `{"dev.tgad/idempotencyKey":"order 7"}`
)

// chargeOnce makes the call of these tests: its first run is in doubt.
func (h *shim) chargeOnce(id, meta string) {
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"charge","arguments":{"die":"answer"},"_meta":%s}}`, id, meta))
}

// toldAgain answers the question whether the call runs again.
func (h *shim) toldAgain(when, said string) {
	h.T.Helper()
	q := h.ReadLine()
	fronttest.Has(h.T, q, `"method":"elicitation/create"`, "may have run "+when, "Run it again?")
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, at2(q, "/id"), said))
}

// inDoubtBefore brings the call into doubt. A person who is asked says neither yes nor no.
func (h *shim) inDoubtBefore(meta string, asks bool) {
	h.T.Helper()
	if asks {
		h.elicits()
	} else {
		h.Handshake()
	}
	h.chargeOnce("1", meta)
	if asks {
		h.toldAgain("just now", saysNeither)
	}
	fronttest.Has(h.T, h.Answer("1"), "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT")
}

// TestRepeatOfADoubtAsksThePerson walks the grid: with or without a key of the client, what the person
// says, and which client repeats the call. Only an explicit yes runs the call, once.
func TestRepeatOfADoubtAsksThePerson(t *testing.T) {
	for _, meta := range []string{`{}`, keyOfMine} {
		for _, said := range []string{saysYes, saysNo, saysNeither, ""} {
			for _, anew := range []bool{false, true} {
				t.Run(fmt.Sprintf("key %v, says %s, new connection %v", meta != "{}", said, anew), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t)
					h := w.start()
					h.inDoubtBefore(meta, said != "")
					if anew {
						_ = h.Stop()
						h = w.start()
						if said == "" {
							h.Handshake()
						} else {
							h.elicits()
						}
					}
					h.chargeOnce("2", meta)
					if said != "" {
						h.toldAgain("at 20", said)
					}
					got := h.Answer("2")
					if said != saysYes {
						fronttest.Has(t, got, "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT", "tgad resolve")
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
					// With a key it stays the same call for ever; without a key the call has ended. Nobody is asked.
					h.chargeOnce("3", meta)
					got, want := h.Answer("3"), 3
					if meta == keyOfMine {
						fronttest.Has(t, got, `"dev.tgad/replayed":true`)
						want = 2
					}
					fronttest.Has(t, got, `"ok"`)
					if n := len(w.Effects()); n != want {
						t.Errorf("%d effects, want %d", n, want)
					}
				})
			}
		}
	}
}

// TestTwoWhoRepeatAKeyAtOnce: two calls of one client cause one question. If two clients are asked and
// both persons say yes, the call runs again once.
func TestTwoWhoRepeatAKeyAtOnce(t *testing.T) {
	t.Run("one client", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		h := w.start()
		h.inDoubtBefore(keyOfMine, true)
		h.chargeOnce("2", keyOfMine)
		q := h.ReadLine()
		fronttest.Has(t, q, "Run it again?")
		h.chargeOnce("3", keyOfMine)
		fronttest.Eventually(t, "both wait for one attempt", func() bool {
			all := h.s.Underway()
			return len(all) == 1 && !all[0].Alone()
		})
		h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, at2(q, "/id"), saysYes))
		fronttest.Has(t, h.Answer("2"), `"ok"`)
		fronttest.Has(t, h.Answer("3"), `"ok"`)
		for _, line := range h.Said {
			fronttest.Lacks(t, line, "elicitation")
		}
		if n := len(w.Effects()); n != 2 {
			t.Errorf("%d effects, want 2", n)
		}
	})
	t.Run("two clients", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		h := w.start()
		h.inDoubtBefore(keyOfMine, true)
		other := w.start()
		other.elicits()
		both := []*shim{h, other}
		var questions []string
		for _, h := range both {
			h.chargeOnce("2", keyOfMine)
			questions = append(questions, h.ReadLine())
		}
		for i, h := range both {
			fronttest.Has(t, questions[i], "Run it again?")
			h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, at2(questions[i], "/id"), saysYes))
		}
		for _, h := range both {
			fronttest.Has(t, h.Answer("2"), `"ok"`)
		}
		if n := len(w.Effects()); n != 2 {
			t.Errorf("%d effects, want 2", n)
		}
	})
}

// TestQuestionAboutAKeyInAnAnswer: the same for a client without a handshake. A person's answer counts
// only from a client that declares that it can ask its person.
func TestQuestionAboutAKeyInAnAnswer(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	deaf := strings.Replace(fronttest.ModernMeta, `{`, `{"dev.tgad/idempotencyKey":"order 7",`, 1)
	able := strings.Replace(deaf, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
	h.Ask("0", "echo", `{}`) // first, because a tool server that ends before it sent a message ends its shim
	call := func(id, meta, more string) string {
		return h.Ask(id, "tools/call", `{"name":"charge","arguments":{"die":"answer"},"_meta":`+meta+more+"}")
	}
	first := call("1", able, "")
	fronttest.Has(t, first, `"resultType":"input_required"`, `"tgad-run-again":{"method":"elicitation/create"`, "may have run just now")
	state := `,"requestState":"` + mcpraw.ScalarText(at2(first, "/result/requestState")) + `"`
	yes := state + `,"inputResponses":{"tgad-run-again":` + saysYes + `}`
	fronttest.Has(t, call("2", able, state+`,"inputResponses":{"tgad-run-again":{"action":"decline"}}`), "OUTCOME UNKNOWN")
	fronttest.Has(t, call("3", deaf, yes), "OUTCOME UNKNOWN")
	fronttest.Has(t, call("4", deaf, ""), "OUTCOME UNKNOWN")
	fronttest.Has(t, call("5", able, ""), "input_required", "may have run at 20")
	if n := len(w.Effects()); n != 1 {
		t.Fatalf("%d effects, want 1", n)
	}
	fronttest.Has(t, call("6", able, yes), `"ok"`)
	fronttest.Has(t, call("7", able, yes), `"ok"`, "replayed") // one yes licenses one run
	if n := len(w.Effects()); n != 2 {
		t.Errorf("%d effects, want 2", n)
	}
}

// gated is a log that holds back its answers to begin until a gate opens.
type gated struct {
	asklog.Log
	gate atomic.Pointer[chan struct{}]
}

func (l *gated) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	b, err := l.Log.Begin(ctx, req)
	if gate := l.gate.Load(); gate != nil {
		<-*gate
	}
	return b, err
}

// TestQuestionToRunAgainIsForWhoCanAnswerIt: if two clients repeat a key at the same time, the client
// that can be asked is asked, and the other gets the words for a call in doubt.
func TestQuestionToRunAgainIsForWhoCanAnswerIt(t *testing.T) {
	w := newWorld(t)
	log := &gated{Log: w.Local()}
	w.log = log
	h := w.start()
	h.Handshake()
	h.chargeOnce("1", keyOfMine)
	fronttest.Has(t, h.Answer("1"), "OUTCOME UNKNOWN")
	gate := make(chan struct{})
	log.gate.Store(&gate)
	h.chargeOnce("2", strings.Replace(fronttest.ModernMeta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}},"dev.tgad/idempotencyKey":"order 7"`, 1))
	fronttest.Eventually(t, "the one that is asked", func() bool { return len(h.s.Underway()) == 1 })
	h.chargeOnce("3", keyOfMine)
	fronttest.Eventually(t, "both wait for one attempt", func() bool {
		all := h.s.Underway()
		return len(all) == 1 && !all[0].Alone()
	})
	close(gate)
	fronttest.Has(t, h.Answer("2"), "input_required", "Run it again?")
	told := h.Answer("3")
	fronttest.Has(t, told, "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT")
	fronttest.Lacks(t, told, "input_required")
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}
