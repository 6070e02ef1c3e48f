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
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// observing puts the world's shims into observe mode. seen returns what they reported.
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
	w.T.Helper()
	if got := seen(); !slices.Equal(got, want) {
		w.T.Errorf("would have been %v, want %v", got, want)
	}
}

// keyed is `_meta` with a key.
func keyed(k string) string { return fmt.Sprintf(`{%q:%q}`, toolcall.MetaKey, k) }

// TestObservedCallPassesAsItIs: the message reaches the tool server byte for byte, even a message that
// would be refused, and the answer reaches the client byte for byte. The log has both.
func TestObservedCallPassesAsItIs(t *testing.T) {
	w := newWorld(t)
	seen := w.observing()
	w.opts.Tasks = TasksOn
	if err := os.WriteFile(w.Journal+".discover", []byte(`{"capabilities":{"tools":{}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	h.Handshake()
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
		h.Write(line)
		got := h.Answer(fmt.Sprint(i + 1))
		if all := w.Effects(); len(all) != i+1 || all[i].Line != line+"\n" && all[i].Line != line {
			t.Fatalf("%d effects; the last was of %q, want %q", len(all), all[len(all)-1].Line, line)
		}
		fronttest.Lacks(t, got, "tgad")
		if i == 0 {
			fronttest.Has(t, got, `"args":{"b":1.0, "a":"\u0041"},"big":9007199254740993,"one":1.0`)
		}
	}
	w.wantSeen(seen, WouldSend, WouldInvalid, WouldInvalid, WouldInvalid, WouldInvalid, WouldSend, WouldSend, WouldSend, WouldSend)
	w.WantObserved("charge COMPLETED yes", "fail FAILED yes", "fault FAILED yes", "look COMPLETED yes", "look COMPLETED yes")
	for _, method := range []string{"tools/list", "server/discover"} { // the shim adds nothing to the answers
		fronttest.Lacks(t, h.Ask("90", method, `{}`), "tgad", "io.modelcontextprotocol/tasks")
	}
}

// TestObservedRepeatsRun: a call that would have been served, held back or refused runs. The log records
// it in a trace of its own, which says so and names the other trace.
func TestObservedRepeatsRun(t *testing.T) {
	w := newWorld(t)
	seen := w.observing()
	h := w.start()
	h.Handshake()
	ok := func(id, tool, args, meta string) {
		t.Helper()
		fronttest.Has(t, h.Call(id, tool, args, meta), `"text":"ok"`)
	}
	ok("1", "charge", `{"n":1}`, keyed("a"))
	ok("2", "charge", `{"n":1}`, keyed("a"))
	ok("3", "charge", `{"n":2}`, keyed("a"))
	// The log is told of the tool server's end before the client is.
	doubts := func(n int) {
		t.Helper()
		if all, err := w.RT.InDoubt(t.Context()); err != nil || len(all) != n {
			t.Errorf("the client has its answer, and the log %d doubts, %v; want %d", len(all), err, n)
		}
	}
	fronttest.Has(t, h.Call("4", "charge", `{"die":"answer"}`, keyed("b")), "gone before it answered")
	doubts(1)
	ok("5", "charge", `{"die":"answer"}`, keyed("b"))
	// A tool that may be repeated: the client's repeat is a call of its own.
	if err := os.Remove(w.Journal + ".died"); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Call("6", "again", `{"die":"answer"}`, keyed("c")), "gone before it answered")
	doubts(2)
	ok("7", "again", `{"die":"answer"}`, keyed("c"))
	wait := filepath.Join(w.Dir, "wait")
	call := func(id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"charge","arguments":{"wait":%q},"_meta":%s}}`, id, wait, keyed("d"))
	}
	h.Write(call("8"))
	fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 8 })
	h.Write(call("9"))
	fronttest.Eventually(t, "the second", func() bool { return len(seen()) == 9 })
	if err := os.WriteFile(wait, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Answer("8"), `"text":"ok"`)
	fronttest.Has(t, h.Answer("9"), `"text":"ok"`)
	if n := len(w.Effects()); n != 9 {
		t.Errorf("%d effects of 9 calls", n)
	}
	w.wantSeen(seen, WouldSend, WouldServe, WouldConflict, WouldSend, WouldDoubt, WouldSend, WouldResend, WouldSend, WouldJoin)
	w.WantObserved("charge COMPLETED yes",
		"charge COMPLETED yes", "charge COMPLETED served, beside another", // what it would have been served is a trace too
		"charge COMPLETED key_conflict, beside another",
		"charge EXECUTING yes", "charge COMPLETED in_doubt, beside another",
		"again EXECUTING yes", "again COMPLETED sent_again, beside another",
		"charge COMPLETED yes", "charge COMPLETED joined, beside another")
}

// TestObservedCallsWithoutAKey: a client that has the answer and calls again makes a new call. A client
// that lost the answer would have been held back.
func TestObservedCallsWithoutAKey(t *testing.T) {
	w := newWorld(t)
	seen := w.observing()
	h := w.start()
	h.Handshake()
	for i := range 5 {
		fronttest.Has(t, h.Call(fmt.Sprint(i+1), "charge", `{"n":1}`), `"text":"ok"`)
	}
	w.wantSeen(seen, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend)
	fronttest.Has(t, h.Call("6", "charge", `{"die":"answer"}`), "gone before it answered")
	fronttest.Has(t, h.Call("7", "charge", `{"die":"answer"}`), `"text":"ok"`)
	w.wantSeen(seen, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend, WouldDoubt)
	// A read call has no repeats.
	if err := os.Remove(w.Journal + ".died"); err != nil {
		t.Fatal(err)
	}
	fronttest.Has(t, h.Call("8", "look", `{"die":"answer"}`), "gone before it answered")
	fronttest.Has(t, h.Call("9", "look", `{"die":"answer"}`), `"text":"ok"`)
	w.wantSeen(seen, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend, WouldSend, WouldDoubt, WouldSend, WouldSend)
	// A new shim that governs does not send the call in doubt again either.
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	w.opts.Observe = nil
	h = w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "charge", `{"die":"answer"}`), "OUTCOME UNKNOWN")
	if n := len(w.Effects()); n != 9 {
		t.Errorf("%d effects of 9 calls that passed", n)
	}
}

// TestObservedEnds: what the log records of calls without an answer, or with an answer that is not final.
func TestObservedEnds(t *testing.T) {
	w := newWorld(t)
	w.opts.CancelGrace = time.Millisecond
	w.observing()
	h := w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "input", `{}`), "input_required")
	fronttest.Has(t, h.Call("2", "job", `{"n":1}`), `"taskId":"job-1"`)
	fronttest.Has(t, h.Call("3", "unknown", `{}`), "timed out upstream")
	fronttest.Has(t, h.Call("4", "noise", `{}`), "does not pass")
	fronttest.Has(t, h.Call("6", "url", `{}`), "-32042")
	late := filepath.Join(w.Dir, "late")
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"charge","arguments":{"wait":%q}}}`, late))
	fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 4 })
	doubts := func() int {
		all, err := w.RT.InDoubt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := doubts(); n != 3 {
		t.Errorf("%d calls in doubt, want 3: of the task, the time-out and the noise", n)
	}
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	fronttest.Eventually(t, "the doubt about the cancelled call", func() bool { return doubts() == 4 })
	if err := os.WriteFile(late, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.WantObserved("input FAILED yes", "job EXECUTING yes", "unknown EXECUTING yes", "noise EXECUTING yes", "url FAILED yes", "charge COMPLETED yes")
	if n := doubts(); n != 3 {
		t.Errorf("%d calls in doubt after the late answer, want 3", n)
	}
	// An id can be used again once its request is answered.
	fronttest.Has(t, h.Call("1", "charge", `{"n":1}`), `"text":"ok"`)
}

// TestNoticeDoesNotOvertakeAnObservedCall: while the log makes a call wait, the cancellation of the call
// waits too.
func TestNoticeDoesNotOvertakeAnObservedCall(t *testing.T) {
	w := newWorld(t)
	w.observing()
	slow := &slowLog{Local: w.Local(), asked: make(chan struct{}), go_: make(chan struct{})}
	w.log = slow
	h := w.start()
	h.Handshake()
	if err := os.WriteFile(w.Journal+".order", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`)
	<-slow.asked
	h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	h.Ask("2", "echo", `{}`) // its answer shows that the cancellation was read
	close(slow.go_)
	h.Answer("1")
	fronttest.Eventually(t, "the notice", func() bool {
		raw, err := os.ReadFile(w.Journal + ".order")
		return err == nil && string(raw) == "tools/call\nnotifications/cancelled\n"
	})
}

// slowLog has a Begin that waits until the test releases it.
type slowLog struct {
	fronttest.Local
	once       sync.Once
	asked, go_ chan struct{}
}

func (l *slowLog) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	l.once.Do(func() { close(l.asked) })
	select {
	case <-l.go_:
		return l.Local.Begin(ctx, req)
	case <-ctx.Done():
		return runtime.Begun{}, tga.Errorf(tga.StoreUnavailable, "the log is slow: %w", ctx.Err())
	}
}

// deadLog is a log that accepts no requests, or no answers.
type deadLog struct {
	fronttest.Local
	begins bool
}

func (l deadLog) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	if l.begins {
		return l.Local.Begin(ctx, req)
	}
	return runtime.Begun{}, tga.Errorf(tga.StoreUnavailable, "the log is frozen")
}

func (l deadLog) Finish(context.Context, tga.ID, runtime.Permit, runtime.Finished) (runtime.Result, error) {
	return runtime.Result{}, tga.Errorf(tga.StoreUnavailable, "the log is away")
}

// TestObservedCallDoesNotNeedTheLog: a log that hangs, is frozen, or goes away before the answer delays
// neither a call nor an answer. The shim reports what the log did not record.
func TestObservedCallDoesNotNeedTheLog(t *testing.T) {
	for name, log := range map[string]func(*world) asklog.Log{
		"hangs": func(w *world) asklog.Log {
			return &slowLog{Local: w.Local(), asked: make(chan struct{}), go_: make(chan struct{})}
		},
		"is frozen":   func(w *world) asklog.Log { return deadLog{Local: w.Local()} },
		"goes away":   func(w *world) asklog.Log { return deadLog{Local: w.Local(), begins: true} },
		"has no room": func(w *world) asklog.Log { return longLog{w.Local()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			seen := w.observing()
			w.log = log(w)
			h := w.start()
			h.Handshake()
			fronttest.Has(t, h.Call("1", "charge", `{"n":1}`), `"text":"ok"`)
			if n := len(w.Effects()); n != 1 {
				t.Errorf("%d effects", n)
			}
			switch name {
			case "goes away":
				w.wantSeen(seen, WouldSend)
				w.WantObserved("charge EXECUTING yes")
			case "has no room":
				w.wantSeen(seen, WouldSend)
				w.WantObserved("charge FAILED yes") // the log has only length and digest of the answer
			default:
				w.wantSeen(seen, WouldUnknown)
				w.WantObserved()
			}
		})
	}
}

// longLog is a log that accepts only short answers.
type longLog struct{ fronttest.Local }

func (l longLog) Finish(ctx context.Context, trace tga.ID, p runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	if f.Reply.Result != nil {
		return runtime.Result{}, tga.Errorf(tga.LimitExceeded, "the answer is too long")
	}
	return l.Local.Finish(ctx, trace, p, f)
}

// TestObservedCallDoesNotWaitForDefinitions: the server's hints are trusted, and it never lists its tools.
func TestObservedCallDoesNotWaitForDefinitions(t *testing.T) {
	w := newWorld(t)
	w.observing()
	w.opts.TrustHints, w.opts.StartTimeout = true, time.Hour
	if err := os.WriteFile(w.Journal+".instead", []byte(`{"jsonrpc":"2.0","method":"notifications/silence"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "charge", `{"n":1}`), `"text":"ok"`)
}

// TestObservingShimEnds: a call that the tool server has when the shim ends is in doubt, and the next shim
// sends nothing for it.
func TestObservingShimEnds(t *testing.T) {
	w := newWorld(t)
	w.observing()
	h := w.start()
	h.Handshake()
	wait := filepath.Join(w.Dir, "wait")
	h.Write(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"again","arguments":{"wait":%q}}}`, wait))
	fronttest.Eventually(t, "the call", func() bool { return len(w.Effects()) == 1 })
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	if all, err := w.RT.InDoubt(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d calls in doubt, %v", len(all), err)
	}
	h = w.start()
	h.Handshake()
	h.Ask("1", "echo", `{}`)
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects of one call", n)
	}
}
