package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// flaky is a log that is away while down is set. It counts requests for the test.
type flaky struct {
	asklog.Log
	mu       sync.Mutex
	down     bool // no request reaches it
	deaf     bool // requests reach it, answers do not come back
	onFinish func()
	onBegun  func()
	onUnsent func()
	back     atomic.Int32 // permits that were returned
}

func (l *flaky) set(down, deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.deaf = down, deaf
}

func (l *flaky) state() (down, deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down, l.deaf
}

var errAway = tga.Errorf(tga.StoreUnavailable, "the log is away")

func (l *flaky) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	down, deaf := l.state()
	if down {
		return runtime.Begun{}, errAway
	}
	b, err := l.Log.Begin(ctx, req)
	if deaf {
		return runtime.Begun{}, errAway
	}
	if l.onBegun != nil && b.Standing == runtime.BeginSend {
		l.onBegun()
	}
	return b, err
}

func (l *flaky) Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	if l.onFinish != nil {
		l.onFinish()
	}
	down, deaf := l.state()
	if down {
		return runtime.Result{}, errAway
	}
	res, err := l.Log.Finish(ctx, trace, permit, f)
	if deaf {
		return runtime.Result{}, errAway
	}
	return res, err
}

func (l *flaky) NotSent(ctx context.Context, trace tga.ID, permit runtime.Permit, reason string, wait time.Duration) (runtime.Result, error) {
	if l.onUnsent != nil {
		l.onUnsent()
	}
	if down, _ := l.state(); down {
		return runtime.Result{}, errAway
	}
	res, err := l.Log.NotSent(ctx, trace, permit, reason, wait)
	if err == nil {
		l.back.Add(1)
	}
	return res, err
}

func TestEverySendWasBegun(t *testing.T) {
	w := newWorld(t)
	log := &flaky{Log: w.Local(), down: true}
	w.log = log
	w.opts.LogTimeout = 100 * time.Millisecond
	h := w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "charge", `{}`), `"isError":true`, "not sent", "STORE_UNAVAILABLE")
	if e := w.Effects(); len(e) != 0 {
		t.Fatalf("effects %+v", e)
	}
	// If the answer to a begin was lost, its repeat is the same begin.
	log.set(false, true)
	fronttest.Has(t, h.Call("2", "charge", `{}`), "not sent")
	log.set(false, false)
	if e := w.Effects(); len(e) != 0 {
		t.Fatalf("effects %+v", e)
	}
}

// TestLogThatGoesAwayAfterASendLeavesDoubt: the tool server died of the call, and then the log is away.
// The client must not be told that nothing has happened.
func TestLogThatGoesAwayAfterASendLeavesDoubt(t *testing.T) {
	w := newWorld(t)
	log := &flaky{Log: w.Local()}
	log.onBegun = func() { log.set(true, false) }
	w.log = log
	w.opts.LogTimeout = 100 * time.Millisecond
	h := w.start()
	h.Handshake()
	got := h.Call("1", "charge", `{"die":"answer"}`)
	fronttest.Has(t, got, "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT")
	if strings.Contains(got, "Nothing has happened") {
		t.Error(got)
	}
	if e := w.Effects(); len(e) != 1 {
		t.Errorf("effects %+v", e)
	}
}

func TestAnswerIsDurableBeforeDelivery(t *testing.T) {
	w := newWorld(t)
	log := &flaky{Log: w.Local()}
	w.log = log
	h := w.start()
	h.Handshake()
	h.Call("1", "charge", `{"warm":1}`)
	// The log goes away while the tool works: the answer is kept, not delivered, and
	// recorded when the log is back.
	var once sync.Once
	waits := make(chan struct{})
	log.onFinish = func() { once.Do(func() { log.set(true, false); close(waits) }) }
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"n":1}}}`)
	<-waits
	if got := h.Ask("3", "echo", `{"still":"here"}`); !strings.Contains(got, "still") {
		t.Errorf("got %s", got)
	}
	if len(h.Said) != 0 {
		t.Errorf("delivered before it was recorded: %q", h.Said)
	}
	log.set(false, false)
	fronttest.Has(t, h.Answer("2"), `"ok"`)
	e := w.Effects()
	if len(e) != 2 {
		t.Fatalf("effects %+v", e)
	}
	if r := w.Record("charge", e[1].Key); r == nil || r.Status != ledger.Settled || r.Attempts.Count != 1 {
		t.Errorf("record %+v", r)
	}
}

func TestLostFinishAnswerIsNoDoubt(t *testing.T) {
	w := newWorld(t)
	log := &flaky{Log: w.Local()}
	w.log = log
	h := w.start()
	h.Handshake()
	h.Call("1", "charge", `{"warm":1}`)
	n := 0
	log.onFinish = func() { n++; log.set(false, n == 1) }
	fronttest.Has(t, h.Call("2", "charge", `{}`), `"ok"`)
	if n < 2 {
		t.Errorf("finish was asked for %d times", n)
	}
}

func TestAnswerThatWaitsLongIsFoundByARepeat(t *testing.T) {
	w := newWorld(t)
	log := &flaky{Log: w.Local()}
	w.log = log
	w.opts.LogTimeout = 50 * time.Millisecond
	h := w.start()
	h.Handshake()
	h.Call("1", "charge", `{"warm":1}`)
	var once sync.Once
	log.onFinish = func() { once.Do(func() { log.set(true, false) }) }
	fronttest.Has(t, h.Call("2", "charge", `{}`), `"isError":true`, "kept", "STORE_UNAVAILABLE")
	log.set(false, false)
	// The shim offers the answer to the log again after a pause, which may be longer than a call waits.
	// Then the client repeats the call.
	answer := h.Call("3", "charge", `{}`)
	for n := 4; strings.Contains(answer, "STORE_UNAVAILABLE"); n++ {
		answer = h.Call(strconv.Itoa(n), "charge", `{}`)
	}
	fronttest.Has(t, answer, `"ok"`, `"dev.tgad/replayed":true`)
	if e := w.Effects(); len(e) != 2 {
		t.Errorf("effects %+v", e)
	}
}

func TestServerThatDiesLeavesDoubt(t *testing.T) {
	for _, at := range []string{"journal", "answer"} {
		w := newWorld(t)
		h := w.start()
		h.Handshake()
		h.Call("1", "charge", `{"warm":1}`)
		got := h.Call("2", "charge", `{"die":"`+at+`"}`)
		fronttest.Has(t, got, `"isError":true`, "OUTCOME UNKNOWN", "EFFECT_IN_DOUBT", `"dev.tgad/traceId":"`, "tgad resolve")
		n := len(w.Effects())
		if want := map[string]int{"journal": 1, "answer": 2}[at]; n != want {
			t.Errorf("%s: %d effects, want %d", at, n, want)
		}
		// The tool server is back, the repeat stays in doubt, and other calls go on.
		fronttest.Has(t, h.Call("3", "charge", `{"die":"`+at+`"}`), "OUTCOME UNKNOWN")
		fronttest.Has(t, h.Call("4", "charge", `{"other":1}`), `"ok"`)
		if got := len(w.Effects()); got != n+1 {
			t.Errorf("%s: %d effects, want %d", at, got, n+1)
		}
		// Once it is settled, the same call gets the recorded answer.
		id, err := tga.ParseID(mcpraw.ScalarText(at2(got, "/result/_meta/dev.tgad~1traceId")))
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.RT.Resolve(context.Background(), id, runtime.Resolution{
			Who: "ann", Evidence: []byte(`{"seen":"the card's statement"}`),
			Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"content":[{"type":"text","text":"charged"}]}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		fronttest.Has(t, h.Call("5", "charge", `{"die":"`+at+`"}`), "charged", `"dev.tgad/replayed":true`)
		_ = h.Stop()
	}
}

func at2(doc, pointer string) []byte { return mcpraw.At([]byte(doc), pointer) }

func TestLicenceSendsAgain(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "again", `{"die":"answer"}`), `"ok"`)
	e := w.Effects()
	if len(e) != 2 || e[0].Key != e[1].Key {
		t.Fatalf("effects %+v", e)
	}
	fronttest.Has(t, e[1].Line, `"dev.tgad/attempt":2`)
	if r := w.Record("again", e[0].Key); r.Attempts.Count != 2 || r.Status != ledger.Settled {
		t.Errorf("record %+v", r)
	}
}

// TestRefusalOfALaterAttemptLeavesTheDoubt: the tool server dies after it ran a call. The answer to the second attempt
// says, by a rule of the daemon, that this attempt did not run. The client is told that the outcome is unknown, and
// that answer ends nothing: when the tool server is not busy any more, the same call is sent again and has its answer.
func TestRefusalOfALaterAttemptLeavesTheDoubt(t *testing.T) {
	w := newWorld(t)
	var busy atomic.Bool
	busy.Store(true)
	w.Outcome = func(_ runtime.Call, r *runtime.Reply) error {
		if busy.Load() {
			r.Status, r.Class, r.ErrorCode = tga.StatusFailure, ledger.ClassRetryable, string(tga.ToolError)
		}
		return nil
	}
	if err := w.DB.Close(); err != nil {
		t.Fatal(err)
	}
	w.OpenLog()
	h := w.start()
	h.Handshake()
	const key = `{"dev.tgad/idempotencyKey":"order-1"}`
	fronttest.Has(t, h.Call("1", "again", `{"die":"answer"}`, key), "OUTCOME UNKNOWN", "refused this attempt")
	if r := w.Record("again", "order-1"); r.Status != ledger.Reserved || r.Attempts.Count != 2 || r.Attempts.Unsent != 1 {
		t.Errorf("record %+v", r)
	}
	busy.Store(false)
	fronttest.Has(t, h.Call("2", "again", `{"die":"answer"}`, key), `"ok"`)
	if r := w.Record("again", "order-1"); r.Status != ledger.Settled || r.Attempts.Count != 3 {
		t.Errorf("record %+v", r)
	}
}

func TestServerThatAlwaysDiesIsNotFedForEver(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	_ = h.Stop()
	w.extra = []string{fronttest.EnvFakeDie + "=answer"}
	h = w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "again", `{}`), "OUTCOME UNKNOWN")
	if n := len(w.Effects()); n != attempt.MaxSends {
		t.Errorf("%d sends, want %d", n, attempt.MaxSends)
	}
}

func TestPassThroughRequestOfADeadServerIsAnswered(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	first := string(at2(h.Ask("1", "started", `{}`), "/result/at"))
	fronttest.Has(t, h.Ask("2", "die", `{}`), `"error":{"code":-32000`, "exit status 3")
	// Requests that come while no tool server runs wait for the next one, or get an error.
	second := ""
	fronttest.Eventually(t, "a second tool server", func() bool {
		second = string(at2(h.Ask("3", "started", `{}`), "/result/at"))
		return second != ""
	})
	if first == second {
		t.Error("the tool server was not started again")
	}
}

func TestServerThatDoesNotStartEndsTheShim(t *testing.T) {
	for name, command := range map[string][]string{
		"no such command": {filepath.Join(t.TempDir(), "none")},
		"ends at once":    {"/bin/sh", "-c", "exit 4"},
	} {
		w := newWorld(t)
		w.opts.Command = command
		h := w.start()
		select {
		case err := <-h.Done:
			if err == nil || !errors.Is(err, tga.ToolError) {
				t.Errorf("%s: %v", name, err)
			}
			h.Done <- nil
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the shim does not end", name)
		}
	}
}

func TestSameCallTwiceAtOnceRunsOnce(t *testing.T) {
	w := newWorld(t)
	h := w.start()
	h.Handshake()
	h.Call("1", "charge", `{"warm":1}`)
	gate := filepath.Join(w.Dir, "gate")
	args := `{"wait":"` + gate + `"}`
	h.Write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":` + args + `}}`)
	fronttest.Eventually(t, "the effect", func() bool { return len(w.Effects()) == 2 })
	h.Write(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"charge","arguments":` + args + `}}`)
	fronttest.Eventually(t, "both wait for one attempt", func() bool {
		all := h.s.Underway()
		return len(all) == 1 && !all[0].Alone()
	})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fronttest.Lacks(t, h.Answer("2"), "replayed")
	fronttest.Has(t, h.Answer("3"), "replayed", `"ok"`)
	if n := len(w.Effects()); n != 2 {
		t.Errorf("%d effects", n)
	}
}

func TestUnclearAnswersAreDoubt(t *testing.T) {
	for _, tool := range []string{"unknown", "noise"} {
		w := newWorld(t)
		h := w.start()
		h.Handshake()
		fronttest.Has(t, h.Call("1", tool, `{}`), "OUTCOME UNKNOWN")
		fronttest.Has(t, h.Call("2", tool, `{}`), "OUTCOME UNKNOWN")
		if n := len(w.Effects()); n != 1 {
			t.Errorf("%s: %d effects", tool, n)
		}
	}
}

func TestApprovalIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	_ = w.DB.Close()
	w.Super = runtime.Rules{Rules: []runtime.Rule{{Tool: "charge", Decision: tga.NeedsApproval, Rationale: "payments need a person", Required: 1}, {Decision: tga.Approve}}}
	w.OpenLog()
	h := w.start()
	h.Handshake()
	waiting := func() []runtime.Approval {
		all, err := w.RT.Approvals(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`)
	fronttest.Eventually(t, "the request for an approval", func() bool { return len(waiting()) == 1 })
	_ = h.Stop()
	// People are not asked twice: the repeat waits for the same approval.
	h = w.start()
	h.Handshake()
	h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`)
	fronttest.Has(t, h.Ask("2", "echo", `{}`), "result")
	time.Sleep(50 * time.Millisecond)
	all := waiting()
	if len(all) != 1 || len(w.Effects()) != 0 {
		t.Fatalf("approvals %+v, effects %+v", all, w.Effects())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := w.RT.Decide(ctx, all[0].TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: "seen the invoice"}); err != nil {
		t.Error("decide:", err)
	}
	fronttest.Has(t, h.Answer("1"), `"ok"`)
	if n := len(w.Effects()); n != 1 {
		t.Errorf("%d effects", n)
	}
	// A denial is answered with words.
	h.Write(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"charge","arguments":{"b":1}}}`)
	fronttest.Eventually(t, "the request for an approval", func() bool { return len(waiting()) == 1 })
	if _, err := w.RT.Decide(ctx, waiting()[0].TraceID, runtime.Vote{Who: "ann", Rationale: "never seen that card"}); err != nil {
		t.Error("decide:", err)
	}
	fronttest.Has(t, h.Answer("5"), `"isError":true`, "denied", "never seen that card", "POLICY_VIOLATION")
}

// late is a log whose permits arrive too late.
type late struct{ *flaky }

func (l late) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	b, err := l.flaky.Begin(ctx, req)
	b.SendWithin = 1
	return b, err
}

// TestLateSendIsNotMade: a permit whose time is over is returned, and the tool server gets no byte.
func TestLateSendIsNotMade(t *testing.T) {
	w := newWorld(t)
	w.log = late{&flaky{Log: w.Local()}}
	h := w.start()
	h.Handshake()
	fronttest.Has(t, h.Call("1", "charge", `{}`), `"isError":true`, "not sent", "is over")
	if e := w.Effects(); len(e) != 0 {
		t.Errorf("effects %+v", e)
	}
	if s := w.RT.Stats(); s.NotSent != 1 {
		t.Errorf("%d calls ended as not sent", s.NotSent)
	}
}

// TestUnsentCallIsNotInDoubtWhenTheLogIsBack: the log goes away after it gave the permit, and the call
// cannot be sent. When the log is back, the shim tells it that the call was not sent, whether or not
// the client still waits. The same call may be made again.
func TestUnsentCallIsNotInDoubtWhenTheLogIsBack(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		t.Run(fmt.Sprint("cancelled ", cancelled), func(t *testing.T) {
			w := newWorld(t)
			log := &flaky{Log: w.Local()}
			log.onBegun = func() { log.set(true, false) }
			w.log = late{log}
			h := w.start()
			h.Handshake()
			var told atomic.Int32
			log.onUnsent = func() {
				if n := told.Add(1); n == 1 && cancelled {
					h.Write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
				} else if n == 4 {
					log.set(false, false)
				}
			}
			h.Write(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{}}}`)
			fronttest.Eventually(t, "the log knows", func() bool { return w.RT.Stats().NotSent == 1 })
			if n := told.Load(); n != 4 {
				t.Errorf("told %d times", n)
			}
			if !cancelled {
				fronttest.Has(t, h.Answer("1"), `"isError":true`, "not sent", "may be repeated")
			}
			if list, err := w.RT.InDoubt(context.Background()); err != nil || len(list) > 0 {
				t.Errorf("in doubt: %v %v", list, err)
			}
		})
	}
}
