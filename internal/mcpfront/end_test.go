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
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// held is a log that holds back its answers.
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

// TestLastAnswersArrive: a client that closes its end gets the answers to its requests, and the
// deliveries are noted.
func TestLastAnswersArrive(t *testing.T) {
	for name, c := range map[string]struct{ ask, has string }{
		"a list": {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"Charges a card"`},
		"a call": {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`, `"ok"`},
		"an array": {`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}},` +
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"n":1}}}]`, `"ok"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			log := &held{Log: w.Local(), goOn: make(chan bool), delivered: make(chan tga.ID, 8)}
			w.log = log
			w.opts.EndGrace = time.Minute
			h := w.start()
			h.Write(c.ask)
			answer := make(chan string, 1)
			go func() {
				line, err := h.Out.ReadString('\n')
				if err != nil {
					line = err.Error()
				}
				answer <- line
			}()
			if name == "a list" {
				fronttest.Eventually(t, "the question", func() bool {
					_, err := os.Stat(w.Journal + ".listed")
					return err == nil
				})
			} else {
				fronttest.Has(t, <-answer, c.has)
			}
			if err := h.In.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-h.Done:
				t.Fatalf("the shim ended before it was done: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			close(log.goOn)
			if name == "a list" {
				fronttest.Has(t, <-answer, c.has)
			}
			h.Stop()
			if n := len(log.delivered); n != strings.Count(c.ask, "tools/call") {
				t.Errorf("%d answers were noted", n)
			}
		})
	}
}

// TestToldToEndItWaitsForNoCall: after a client has closed its end, the shim still waits for a slow
// call. When the client tells the shim to end, the shim ends at once, and the call is in doubt.
func TestToldToEndItWaitsForNoCall(t *testing.T) {
	w := newWorld(t)
	w.opts.EndGrace = endGrace
	slow := func(file string) *shim {
		h := w.start()
		before := len(w.Effects())
		h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"wait":%q}}}`, file))
		fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == before+1 })
		if err := h.In.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-h.Done:
			t.Fatalf("the shim ended before its call did: %v", err)
		case <-time.After(entry.NoteGrace + 500*time.Millisecond):
		}
		return h
	}
	done := filepath.Join(t.TempDir(), "done")
	h := slow(done)
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.ReadLine(), `"ok"`)
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}

	h = slow(done + " never")
	h.End()
	select {
	case err := <-h.Done:
		h.Done <- err
	case <-time.After(endGrace / 2):
		t.Fatal("it waits for the call")
	}
	if doubts, err := w.RT.InDoubt(t.Context()); err != nil || len(doubts) != 1 {
		t.Errorf("%d calls in doubt, %v; want the one that was given up", len(doubts), err)
	}
}

// TestManyAnswersToOneQuestion: a tool server may answer the shim's own request many times with
// malformed messages; its other messages still pass.
func TestManyAnswersToOneQuestion(t *testing.T) {
	w := newWorld(t)
	w.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Block: true} }
	if err := os.WriteFile(w.Journal+".instead", []byte(strings.Repeat(`{"jsonrpc":"2.0","id":ID,"result":{},"result":{}}`+"\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	fronttest.Has(t, h.Call("1", "charge", `{}`), "TOOL_ERROR", "was not sent", "cannot be looked at")
	fronttest.Has(t, h.Ask("2", "echo", `{"n":1}`), `"n":1`)
}

// TestAnswerToNoRequest: an answer of the tool server whose id is null or absent belongs to no request. Over HTTP it
// is in no client's POST.
func TestAnswerToNoRequest(t *testing.T) {
	w := newWorld(t)
	var all strings.Builder
	for _, id := range []string{"", `"id":null,`} {
		for _, what := range []string{`"result":{"stray":1}`, `"error":{"code":-32700,"message":"stray"}`} {
			all.WriteString(`{"jsonrpc":"2.0",` + id + what + "}\n")
		}
	}
	if err := os.WriteFile(w.Journal+".instead", []byte(all.String()+`{"jsonrpc":"2.0","id":ID,"result":{"tools":[]}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	for { // JSON-RPC has errors that belong to no request
		line := h.ReadLine()
		fronttest.Lacks(t, line, `"result":{"stray"`)
		if strings.Contains(line, `"id":1`) {
			break
		}
	}
	url := w.listening()
	for _, header := range [][]string{nil, fronttest.Session2025(t, url)} {
		status, got := fronttest.Post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, header...)
		if fronttest.Has(t, got, `"id":1`, `"tools":[]`); status != 200 || strings.Contains(got, "stray") {
			t.Errorf("%d %s", status, got)
		}
	}
}

// TestServerThatNeverListsItsTools: a call that needs the tool's definition first is refused if the
// tool server does not list it in time, and nothing is sent.
func TestServerThatNeverListsItsTools(t *testing.T) {
	w := newWorld(t)
	w.opts.Tools = func(name string) toolcall.Tool { return toolcall.Tool{Block: name == "charge"} }
	w.opts.StartTimeout = 3 * time.Second
	if err := os.WriteFile(w.Journal+".instead", []byte(`{"jsonrpc":"2.0","method":"notifications/silence"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "charge", `{"n":1}`), "TOOL_ERROR", "was not sent", "cannot be looked at", "no answer to tools/list in 3s")
	if got := w.Effects(); len(got) != 0 {
		t.Errorf("it was sent: %v", got)
	}
	if err := os.Remove(w.Journal + ".instead"); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Call("2", "charge", `{"n":1}`), `"ok"`)
}

// forgetful is a log that may be away when the pins are read.
type forgetful struct {
	asklog.Log
	away atomic.Int32 // how many more times
}

func (l *forgetful) Kept(ctx context.Context, namespace, server string) iter.Seq2[runtime.Kept, error] {
	if l.away.Add(-1) >= 0 {
		return func(yield func(runtime.Kept, error) bool) { yield(runtime.Kept{}, errAway) }
	}
	return l.Log.Kept(ctx, namespace, server)
}

// TestDefinitionsWaitForTheLog: if the log is away for a moment, for example while another process takes
// it over, a call that needs a pin waits for it. If the log stays away, the call is answered as not sent.
func TestDefinitionsWaitForTheLog(t *testing.T) {
	w := newWorld(t)
	w.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Block: true} }
	log := &forgetful{Log: w.Local()}
	log.away.Store(2)
	w.log = log
	h := w.start()
	fronttest.Has(t, h.Call("1", "charge", `{"n":1}`), `"ok"`)
	if got := w.Effects(); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
	h.Stop()

	w.opts.LogTimeout = 50 * time.Millisecond
	log.away.Store(1 << 20)
	h = w.start()
	got := h.Call("2", "charge", `{"n":2}`)
	fronttest.Has(t, got, `"isError":true`, "STORE_UNAVAILABLE", "was not sent")
	fronttest.Lacks(t, got, "TOOL_SCHEMA_CHANGED")
	if got := w.Effects(); len(got) != 1 {
		t.Errorf("effects: %v", got)
	}
}

// TestClientThatReadsNothing: the shim ends when it is told to, even if the client reads nothing.
func TestClientThatReadsNothing(t *testing.T) {
	w := newWorld(t)
	w.opts.Tools = func(string) toolcall.Tool { return toolcall.Tool{Ungoverned: true} }
	w.tune = func(s *Shim) { s.quit = 2 * time.Second }
	h := w.start()
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"mib":4}}}`)
	fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 1 })
	h.End()
	select {
	case err := <-h.Done:
		h.Done <- err
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// TestCallsThatAreNeverAnswered: a tool server need not answer cancelled calls. Such calls do not count
// against MaxRequests, and do not delay the end.
func TestCallsThatAreNeverAnswered(t *testing.T) {
	w := newWorld(t)
	w.opts.MaxRequests, w.opts.CancelGrace = 2, time.Millisecond
	w.opts.EndGrace = time.Minute
	h := w.start()
	for i := range 6 {
		id := fmt.Sprint(i)
		h.Write(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"mute","arguments":{},"_meta":{"dev.tgad/idempotencyKey":"k` + id + `"}}}`)
		fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == i+1 })
		h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		fronttest.Eventually(t, "room for another", func() bool {
			return strings.Contains(h.Ask(`"e`+id+`"`, "echo", `{}`), `"result"`)
		})
	}
	fronttest.Has(t, h.Call("9", "mute", `{}`, `{"dev.tgad/idempotencyKey":"k0"}`), "OUTCOME UNKNOWN")
	// Late answers are still expected to at most MaxRequests of them.
	fronttest.Has(t, h.Ask("0", "echo", `{}`), "under way")
	fronttest.Eventually(t, "an id to be free", func() bool { return strings.Contains(h.Ask("5", "echo", `{}`), `"result"`) })
	// Their entries are removed when the tool server that has them ends.
	h.Write(`{"jsonrpc":"2.0","id":10,"method":"die"}`)
	fronttest.Has(t, h.Answer("10"), "-32000")
	fronttest.Eventually(t, "the ids to be free", func() bool { return strings.Contains(h.Ask("0", "echo", `{}`), `"result"`) })
	n := len(w.Effects())
	h.Write(`{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"mute","arguments":{},"_meta":{"dev.tgad/idempotencyKey":"k11"}}}`)
	fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == n+1 })
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}`)
	h.Stop()
}
