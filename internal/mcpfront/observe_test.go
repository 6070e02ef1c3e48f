package mcpfront

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// observing makes the world's shims observe. seen is what they said would have become of the calls.
func (w *world) observing() (seen func() []Would) {
	var mu sync.Mutex
	var all []Would
	w.opts.Observe = func(x Would) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, x)
	}
	return func() []Would {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func (w *world) wantSeen(seen func() []Would, want ...Would) {
	w.t.Helper()
	if got := seen(); !slices.Equal(got, want) {
		w.t.Errorf("would have been %v, want %v", got, want)
	}
}

// keyed is `_meta` with a key.
func keyed(k string) string { return fmt.Sprintf(`{%q:%q}`, toolcall.MetaKey, k) }

// TestObservedCallPassesAsItIs: the message reaches the tool server byte for byte, also one that would
// be refused, and the answer the client. The log has both.
func TestObservedCallPassesAsItIs(t *testing.T) {
	w := newWorld(t)
	seen := w.observing()
	w.opts.Tasks = TasksOn
	if err := os.WriteFile(w.journal+".discover", []byte(`{"capabilities":{"tools":{}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	h.handshake()
	for i, params := range []string{
		`{ "name":"charge" , "arguments":{"b":1.0, "a":"\u0041"},"_meta":{"dev.tgad/idempotencyKey":"k","x":[ ]}}`,
		`{"name":"charge","arguments":{"n":9007199254740993}}`,
		`{"name":"charge","arguments":{"n":1,"n":2}}`,
		`{"name":"charge","arguments":[]}`,
		`{"name":"charge","name":"look","arguments":{}}`,
		`{"name":"fail","arguments":{}}`,
		`{"name":"fault","arguments":{}}`,
		`{"name":"look","arguments":{}}`,
		`{"name":"look","arguments":{}}`,
	} {
		line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, i+1, params)
		h.write(line)
		got := h.answer(fmt.Sprint(i + 1))
		if all := w.effects(); len(all) != i+1 || all[i].Line != line+"\n" && all[i].Line != line {
			t.Fatalf("%d effects; the last was of %q, want %q", len(all), all[len(all)-1].Line, line)
		}
		lacks(t, got, "tgad")
		if i == 0 {
			has(t, got, `"args":{"b":1.0, "a":"\u0041"},"big":9007199254740993,"one":1.0`)
		}
	}
	w.wantSeen(seen, WouldSend, WouldInvalid, WouldInvalid, WouldInvalid, WouldInvalid, WouldSend, WouldSend, WouldSend, WouldSend)
	w.wantObserved("charge COMPLETED yes", "fail FAILED yes", "fault FAILED yes", "look COMPLETED yes", "look COMPLETED yes")
	for _, method := range []string{"tools/list", "server/discover"} { // the shim shows itself nowhere
		lacks(t, h.ask("90", method, `{}`), "tgad", "io.modelcontextprotocol/tasks")
	}
}

// TestObservedRepeatsRun: what would have been served, held back or refused runs, and the log says so
// beside the call that it would have been.
func TestObservedRepeatsRun(t *testing.T) {
	w := newWorld(t)
	seen := w.observing()
	h := w.start()
	h.handshake()
	ok := func(id, tool, args, meta string) {
		t.Helper()
		has(t, h.call(id, tool, args, meta), `"text":"ok"`)
	}
	ok("1", "charge", `{"n":1}`, keyed("a"))
	ok("2", "charge", `{"n":1}`, keyed("a"))
	ok("3", "charge", `{"n":2}`, keyed("a"))
	// The log hears of the tool server's end before the client does.
	doubts := func(n int) {
		t.Helper()
		if all, err := w.rt.InDoubt(t.Context()); err != nil || len(all) != n {
			t.Errorf("the client has its answer, and the log %d doubts, %v; want %d", len(all), err, n)
		}
	}
	has(t, h.call("4", "charge", `{"die":"answer"}`, keyed("b")), "gone before it answered")
	doubts(1)
	ok("5", "charge", `{"die":"answer"}`, keyed("b"))
	// One that may be repeated: that it is sent again is the client's doing, and another call.
	if err := os.Remove(w.journal + ".died"); err != nil {
		t.Fatal(err)
	}
	has(t, h.call("6", "again", `{"die":"answer"}`, keyed("c")), "gone before it answered")
	doubts(2)
	ok("7", "again", `{"die":"answer"}`, keyed("c"))
	wait := filepath.Join(w.dir, "wait")
	call := func(id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"charge","arguments":{"wait":%q},"_meta":%s}}`, id, wait, keyed("d"))
	}
	h.write(call("8"))
	eventually(t, "the call", func() bool { return len(w.effects()) == 8 })
	h.write(call("9"))
	eventually(t, "the second", func() bool { return len(seen()) == 9 })
	if err := os.WriteFile(wait, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, h.answer("8"), `"text":"ok"`)
	has(t, h.answer("9"), `"text":"ok"`)
	if n := len(w.effects()); n != 9 {
		t.Errorf("%d effects of 9 calls", n)
	}
	w.wantSeen(seen, WouldSend, WouldServe, WouldConflict, WouldSend, WouldDoubt, WouldSend, WouldResend, WouldSend, WouldJoin)
	w.wantObserved("charge COMPLETED yes",
		"charge COMPLETED yes", "charge COMPLETED served, beside another", // what it would have been served is a trace too
		"charge COMPLETED key_conflict, beside another",
		"charge EXECUTING yes", "charge COMPLETED in_doubt, beside another",
		"again EXECUTING yes", "again COMPLETED sent_again, beside another",
		"charge COMPLETED yes", "charge COMPLETED joined, beside another")
}

// TestObservedCallsWithoutAKey: who has the answer and calls again means another call; who lost it
// would have been held back.
func TestObservedCallsWithoutAKey(t *testing.T) {
	w := newWorld(t)
	seen := w.observing()
	h := w.start()
	h.handshake()
	for i := range 5 {
		has(t, h.call(fmt.Sprint(i+1), "charge", `{"n":1}`), `"text":"ok"`)
	}
	w.wantSeen(seen, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend)
	has(t, h.call("6", "charge", `{"die":"answer"}`), "gone before it answered")
	has(t, h.call("7", "charge", `{"die":"answer"}`), `"text":"ok"`)
	w.wantSeen(seen, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend, WouldDoubt)
	// A read call has no repeats.
	if err := os.Remove(w.journal + ".died"); err != nil {
		t.Fatal(err)
	}
	has(t, h.call("8", "look", `{"die":"answer"}`), "gone before it answered")
	has(t, h.call("9", "look", `{"die":"answer"}`), `"text":"ok"`)
	w.wantSeen(seen, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend, WouldDoubt, WouldSend, WouldSend)
	// Nor does a shim that is started anew, and governs, send the one in doubt again.
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	w.opts.Observe = nil
	h = w.start()
	h.handshake()
	has(t, h.call("1", "charge", `{"die":"answer"}`), "OUTCOME UNKNOWN")
	if n := len(w.effects()); n != 9 {
		t.Errorf("%d effects of 9 calls that passed", n)
	}
}

// TestObservedEnds: what the log has of calls that end without an answer, or with one that is no end.
func TestObservedEnds(t *testing.T) {
	w := newWorld(t)
	w.opts.CancelGrace = time.Millisecond
	w.observing()
	h := w.start()
	h.handshake()
	has(t, h.call("1", "input", `{}`), "input_required")
	has(t, h.call("2", "job", `{"n":1}`), `"taskId":"job-1"`)
	has(t, h.call("3", "unknown", `{}`), "timed out upstream")
	has(t, h.call("4", "noise", `{}`), "does not pass")
	late := filepath.Join(w.dir, "late")
	h.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"charge","arguments":{"wait":%q}}}`, late))
	eventually(t, "the call", func() bool { return len(w.effects()) == 4 })
	doubts := func() int {
		all, err := w.rt.InDoubt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := doubts(); n != 3 {
		t.Errorf("%d calls in doubt, want 3: of the task, the time-out and the noise", n)
	}
	h.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	eventually(t, "the doubt about the cancelled call", func() bool { return doubts() == 4 })
	if err := os.WriteFile(late, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.wantObserved("input FAILED yes", "job EXECUTING yes", "unknown EXECUTING yes", "noise EXECUTING yes", "charge COMPLETED yes")
	if n := doubts(); n != 3 {
		t.Errorf("%d calls in doubt after the late answer, want 3", n)
	}
	// An id is free when its request is answered.
	has(t, h.call("1", "charge", `{"n":1}`), `"text":"ok"`)
}

// TestNoticeDoesNotOvertakeAnObservedCall: the log makes the call wait, and a notice that it is given
// up waits with it.
func TestNoticeDoesNotOvertakeAnObservedCall(t *testing.T) {
	w := newWorld(t)
	w.observing()
	slow := &slowLog{local: local{w.rt}, asked: make(chan struct{}), go_: make(chan struct{})}
	w.log = slow
	h := w.start()
	h.handshake()
	if err := os.WriteFile(w.journal+".order", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`)
	<-slow.asked
	h.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	h.ask("2", "echo", `{}`) // the notice was read
	close(slow.go_)
	h.answer("1")
	eventually(t, "the notice", func() bool {
		raw, err := os.ReadFile(w.journal + ".order")
		return err == nil && string(raw) == "tools/call\nnotifications/cancelled\n"
	})
}

// slowLog has a Begin that waits to be let go.
type slowLog struct {
	local
	once       sync.Once
	asked, go_ chan struct{}
}

func (l *slowLog) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	l.once.Do(func() { close(l.asked) })
	select {
	case <-l.go_:
		return l.local.Begin(ctx, req)
	case <-ctx.Done():
		return runtime.Begun{}, tga.Errorf(tga.StoreUnavailable, "the log is slow: %w", ctx.Err())
	}
}

// deadLog takes nothing, or no answers.
type deadLog struct {
	local
	begins bool
}

func (l deadLog) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	if l.begins {
		return l.local.Begin(ctx, req)
	}
	return runtime.Begun{}, tga.Errorf(tga.StoreUnavailable, "the log is frozen")
}

func (l deadLog) Finish(context.Context, tga.ID, runtime.Permit, runtime.Finished) (runtime.Result, error) {
	return runtime.Result{}, tga.Errorf(tga.StoreUnavailable, "the log is away")
}

// TestObservedCallDoesNotNeedTheLog: a log that hangs, is frozen, or goes away before the answer holds
// no call up, and no answer. What it did not take is said.
func TestObservedCallDoesNotNeedTheLog(t *testing.T) {
	for name, log := range map[string]func(*world) asklog.Log{
		"hangs": func(w *world) asklog.Log {
			return &slowLog{local: local{w.rt}, asked: make(chan struct{}), go_: make(chan struct{})}
		},
		"is frozen":   func(w *world) asklog.Log { return deadLog{local: local{w.rt}} },
		"goes away":   func(w *world) asklog.Log { return deadLog{local: local{w.rt}, begins: true} },
		"has no room": func(w *world) asklog.Log { return longLog{local{w.rt}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			seen := w.observing()
			w.log = log(w)
			h := w.start()
			h.handshake()
			has(t, h.call("1", "charge", `{"n":1}`), `"text":"ok"`)
			if n := len(w.effects()); n != 1 {
				t.Errorf("%d effects", n)
			}
			switch name {
			case "goes away":
				w.wantSeen(seen, WouldSend)
				w.wantObserved("charge EXECUTING yes")
			case "has no room":
				w.wantSeen(seen, WouldSend)
				w.wantObserved("charge FAILED yes") // of the answer it has length and digest
			default:
				w.wantSeen(seen, WouldUnknown)
				w.wantObserved()
			}
		})
	}
}

// longLog takes no answers but short ones.
type longLog struct{ local }

func (l longLog) Finish(ctx context.Context, trace tga.ID, p runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	if f.Reply.Result != nil {
		return runtime.Result{}, tga.Errorf(tga.LimitExceeded, "the answer is too long")
	}
	return l.local.Finish(ctx, trace, p, f)
}

// TestObservedCallDoesNotWaitForDefinitions: a server whose hints are trusted and that never lists its tools.
func TestObservedCallDoesNotWaitForDefinitions(t *testing.T) {
	w := newWorld(t)
	w.observing()
	w.opts.TrustHints, w.opts.StartTimeout = true, time.Hour
	if err := os.WriteFile(w.journal+".instead", []byte(`{"jsonrpc":"2.0","method":"notifications/silence"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	h.handshake()
	has(t, h.call("1", "charge", `{"n":1}`), `"text":"ok"`)
}

// TestObservingShimEnds: a call that is with the tool server is in doubt then, and who comes after sends
// nothing.
func TestObservingShimEnds(t *testing.T) {
	w := newWorld(t)
	w.observing()
	h := w.start()
	h.handshake()
	wait := filepath.Join(w.dir, "wait")
	h.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"again","arguments":{"wait":%q}}}`, wait))
	eventually(t, "the call", func() bool { return len(w.effects()) == 1 })
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if all, err := w.rt.InDoubt(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d calls in doubt, %v", len(all), err)
	}
	h = w.start()
	h.handshake()
	h.ask("1", "echo", `{}`)
	if n := len(w.effects()); n != 1 {
		t.Errorf("%d effects of one call", n)
	}
}
