package mcpfront

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// held is a log that keeps who asks it waiting.
type held struct {
	asklog.Log
	goOn      chan bool
	delivered chan tga.ID
}

func (l *held) Keep(ctx context.Context, r runtime.KeepRequest) (runtime.Kept, bool, error) {
	<-l.goOn
	return l.Log.Keep(ctx, r)
}

func (l *held) Delivered(ctx context.Context, trace tga.ID) error {
	<-l.goOn
	l.delivered <- trace
	return l.Log.Delivered(ctx, trace)
}

// TestLastAnswersArrive: a client that closes its end gets the answers to what it has asked,
// and what it got is noted.
func TestLastAnswersArrive(t *testing.T) {
	for name, c := range map[string]struct{ ask, has string }{
		"a list": {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"Charges a card"`},
		"a call": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`, `"ok"`},
		"an array": {`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}},` +
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"n":1}}}]`, `"ok"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			log := &held{Log: local{w.rt}, goOn: make(chan bool), delivered: make(chan tga.ID, 8)}
			w.log = log
			w.opts.EndGrace = time.Minute
			h := w.start()
			h.write(c.ask)
			answer := make(chan string, 1)
			go func() {
				line, err := h.out.ReadString('\n')
				if err != nil {
					line = err.Error()
				}
				answer <- line
			}()
			if name == "a list" {
				eventually(t, "the question", func() bool {
					_, err := os.Stat(w.journal + ".listed")
					return err == nil
				})
			} else {
				has(t, <-answer, c.has)
			}
			if err := h.in.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-h.done:
				t.Fatalf("the shim ended before it was done: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			close(log.goOn)
			if name == "a list" {
				has(t, <-answer, c.has)
			}
			h.stop()
			if n := len(log.delivered); n != strings.Count(c.ask, "tools/call") {
				t.Errorf("%d answers were noted", n)
			}
		})
	}
}

// TestToldToEndItWaitsForNoCall: a client that has closed its end waits for a slow call as long as it
// likes. When it tells the shim to end, the shim is gone at once, and the call is in doubt.
func TestToldToEndItWaitsForNoCall(t *testing.T) {
	w := newWorld(t)
	w.opts.EndGrace = endGrace
	slow := func(file string) *shim {
		h := w.start()
		before := len(w.effects())
		h.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":%q}}}`, file))
		eventually(t, "the call", func() bool { return len(w.effects()) == before+1 })
		if err := h.in.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-h.done:
			t.Fatalf("the shim ended before its call did: %v", err)
		case <-time.After(noteGrace + 500*time.Millisecond):
		}
		return h
	}
	done := filepath.Join(t.TempDir(), "done")
	h := slow(done)
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, h.readLine(), `"ok"`)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}

	h = slow(done + " never")
	h.end()
	select {
	case err := <-h.done:
		h.done <- err
	case <-time.After(endGrace / 2):
		t.Fatal("it waits for the call")
	}
	if doubts, err := w.rt.InDoubt(t.Context()); err != nil || len(doubts) != 1 {
		t.Errorf("%d calls in doubt, %v; want the one that was given up", len(doubts), err)
	}
}

// TestManyAnswersToOneQuestion: a tool server that answers the shim's own request again and
// again, with what is no message, is still heard.
func TestManyAnswersToOneQuestion(t *testing.T) {
	w := newWorld(t)
	w.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Block: true} }
	if err := os.WriteFile(w.journal+".instead", []byte(strings.Repeat(`{"jsonrpc":"2.0","id":ID,"result":{},"result":{}}`+"\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	has(t, h.call("1", "charge", `{}`), "TOOL_ERROR", "was not sent", "cannot be looked at")
	has(t, h.ask("2", "echo", `{"n":1}`), `"n":1`)
}

// TestAnswerToNoRequest: an answer of the tool server's whose id is null or not there is nobody's. Over HTTP it
// stands in no client's POST.
func TestAnswerToNoRequest(t *testing.T) {
	w := newWorld(t)
	var all strings.Builder
	for _, id := range []string{"", `"id":null,`} {
		for _, what := range []string{`"result":{"stray":1}`, `"error":{"code":-32700,"message":"stray"}`} {
			all.WriteString(`{"jsonrpc":"2.0",` + id + what + "}\n")
		}
	}
	if err := os.WriteFile(w.journal+".instead", []byte(all.String()+`{"jsonrpc":"2.0","id":ID,"result":{"tools":[]}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	h.write(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	for { // JSON-RPC knows errors of no request
		line := h.readLine()
		lacks(t, line, `"result":{"stray"`)
		if strings.Contains(line, `"id":1`) {
			break
		}
	}
	url := w.listening()
	for _, header := range [][]string{nil, session2025(t, url)} {
		status, got := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, header...)
		if has(t, got, `"id":1`, `"tools":[]`); status != 200 || strings.Contains(got, "stray") {
			t.Errorf("%d %s", status, got)
		}
	}
}

// TestServerThatNeverListsItsTools: a call that has to see the definition first is refused when
// the tool server has not shown it in time, and nothing is sent.
func TestServerThatNeverListsItsTools(t *testing.T) {
	w := newWorld(t)
	w.opts.Tools = func(name string) toolcall.Tool { return toolcall.Tool{Block: name == "charge"} }
	w.opts.StartTimeout = 3 * time.Second
	if err := os.WriteFile(w.journal+".instead", []byte(`{"jsonrpc":"2.0","method":"notifications/silence"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	h.handshake()
	has(t, h.call("1", "charge", `{"n":1}`), "TOOL_ERROR", "was not sent", "cannot be looked at", "no answer to tools/list in 3s")
	if got := w.effects(); len(got) != 0 {
		t.Errorf("it was sent: %v", got)
	}
	if err := os.Remove(w.journal + ".instead"); err != nil {
		t.Fatal(err)
	}
	has(t, h.call("2", "charge", `{"n":1}`), `"ok"`)
}

// forgetful is a log that may be away when it is asked what is pinned.
type forgetful struct {
	asklog.Log
	away atomic.Int32 // that many more times
}

func (l *forgetful) Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error] {
	if l.away.Add(-1) >= 0 {
		return func(yield func(runtime.Kept, error) bool) { yield(runtime.Kept{}, errAway) }
	}
	return l.Log.Kept(ctx, namespace, server)
}

// TestDefinitionsWaitForTheLog: a log that is away for a moment, as when another process takes it over,
// says nothing of a definition: the call waits for it, and after that is told what it is: not sent.
func TestDefinitionsWaitForTheLog(t *testing.T) {
	w := newWorld(t)
	w.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Block: true} }
	log := &forgetful{Log: local{w.rt}}
	log.away.Store(2)
	w.log = log
	h := w.start()
	has(t, h.call("1", "charge", `{"n":1}`), `"ok"`)
	if got := w.effects(); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
	h.stop()

	w.opts.LogTimeout = 50 * time.Millisecond
	log.away.Store(1 << 20)
	h = w.start()
	got := h.call("2", "charge", `{"n":2}`)
	has(t, got, `"isError":true`, "STORE_UNAVAILABLE", "was not sent")
	lacks(t, got, "TOOL_SCHEMA_CHANGED")
	if got := w.effects(); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
}

// TestClientThatReadsNothing: the shim ends all the same when it is told to.
func TestClientThatReadsNothing(t *testing.T) {
	w := newWorld(t)
	w.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Ungoverned: true} }
	w.tune = func(s *Shim) { s.quit = 2 * time.Second }
	h := w.start()
	h.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"mib":4}}}`)
	eventually(t, "the call", func() bool { return len(w.effects()) == 1 })
	h.end()
	select {
	case err := <-h.done:
		h.done <- err
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// TestCallsThatAreNeverAnswered: a tool server need not answer what was cancelled. Such calls
// take no request's place, and hold up no end.
func TestCallsThatAreNeverAnswered(t *testing.T) {
	w := newWorld(t)
	w.opts.MaxRequests, w.opts.CancelGrace = 2, time.Millisecond
	w.opts.EndGrace = time.Minute
	h := w.start()
	for i := range 6 {
		id := fmt.Sprint(i)
		h.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"mute","arguments":{},"_meta":{"dev.tgad/idempotencyKey":"k` + id + `"}}}`)
		eventually(t, "the call", func() bool { return len(w.effects()) == i+1 })
		h.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		eventually(t, "room for another", func() bool {
			return strings.Contains(h.ask(`"e`+id+`"`, "echo", `{}`), `"result"`)
		})
	}
	has(t, h.call("9", "mute", `{}`, `{"dev.tgad/idempotencyKey":"k0"}`), "OUTCOME UNKNOWN")
	// Of as many as there is room for an answer is still waited for, and no more.
	has(t, h.ask("0", "echo", `{}`), "under way")
	eventually(t, "an id to be free", func() bool { return strings.Contains(h.ask("5", "echo", `{}`), `"result"`) })
	// Nor do they outlive the tool server that has them.
	h.write(`{"jsonrpc":"2.0","id":10,"method":"die"}`)
	has(t, h.answer("10"), "-32000")
	eventually(t, "the ids to be free", func() bool { return strings.Contains(h.ask("0", "echo", `{}`), `"result"`) })
	n := len(w.effects())
	h.write(`{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"mute","arguments":{},"_meta":{"dev.tgad/idempotencyKey":"k11"}}}`)
	eventually(t, "the call", func() bool { return len(w.effects()) == n+1 })
	h.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}`)
	h.stop()
}
