package turn_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// retry decides that what a turn waits for is tried again, and resumes the turn.
func (w *world) retry(res turn.Result) turn.Result {
	w.t.Helper()
	if err := w.r.Decide(w.t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); err != nil {
		w.t.Fatal(err)
	}
	w.restart()
	end, err := w.r.Resume(w.t.Context(), res.InteractionID)
	if err != nil {
		w.t.Fatal(err)
	}
	return end
}

// expertFails makes the model of "expert" fail the first n times that it is asked: at once, or
// when it has the result of a tool.
func expertFails(n int, late bool) func(*world) {
	return func(w *world) {
		w.say = func(q turn.Question) (turn.Answer, error) {
			tool := q.Messages[len(q.Messages)-1].Role == message.Tool
			if q.Model == "expert" && tool == late && n > 0 {
				n--
				return turn.Answer{}, &turn.Failure{Code: tga.ContentFiltered, Message: "no"}
			}
			return obedient(q)
		}
	}
}

// TestHandlerDoesNotRepeatADelegationWhoseEffectsStand: the agent's handler says that a failed
// delegation is tried again. It is, if the delegate has done nothing yet. Otherwise the turn waits
// for a person, who cannot have it tried again either.
func TestHandlerDoesNotRepeatADelegationWhoseEffectsStand(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}), expertFails(1, late), func(w *world) {
			w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{tga.DelegationFailed}, Strategy: turn.Retry, MaxRetries: 2}}
		})
		res := w.run(`call ask {"message":"call echo {}"}`)
		if sum(w.out.effects) != 1 {
			t.Errorf("late %v: %d effects", late, sum(w.out.effects))
		}
		if !late {
			if res.Status != turn.Completed {
				t.Errorf("%+v", res)
			}
			continue
		}
		if res.Status != turn.Waiting || res.Waiting.Code != tga.DelegationFailed {
			t.Fatalf("%+v", res)
		}
		if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); !errors.Is(err, tga.StateInvalidTransition) {
			t.Errorf("a person repeats it: %v", err)
		}
	}
}

// escalates is an agent whose failures of a kind wait for a person.
func escalates(code tga.Code) func(*world) {
	return func(w *world) {
		w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{code}, Strategy: turn.Escalate}}
	}
}

// TestPersonsRetryTriesAgain: a person who decides to try a call or a delegation again has it
// tried again, once for each decision. A call whose effect stands is not made again.
func TestPersonsRetryTriesAgain(t *testing.T) {
	busy := func(class ledger.Class) func(*world) {
		return func(w *world) {
			w.fails["echo"] = func(n int) (runtime.Reply, error) {
				if n > 2 {
					return runtime.Reply{}, nil
				}
				return runtime.Reply{Status: tga.StatusFailure, Class: class, ErrorCode: "TOOL_ERROR", ErrorMessage: "busy"}, nil
			}
		}
	}
	for name, c := range map[string]struct {
		set     []func(*world)
		text    string
		code    tga.Code
		retries int
		said    string
		sends   int
	}{
		"tool":       {[]func(*world){escalates(tga.ToolError), busy(ledger.ClassRetryable)}, "call count {}\ncall echo {}", tga.ToolError, 2, `tools said {"n":1}, {}`, 4},
		"limit":      {[]func(*world){escalates(tga.QuotaExceeded), func(w *world) { w.agents[0].Constraints.MaxToolCalls = 1 }}, "call echo {}\ncall echo {}", tga.QuotaExceeded, 1, "tools said {}, {}", 2},
		"delegation": {[]func(*world){delegating(turn.Delegation{Type: turn.Supervisor}), expertFails(2, false)}, `call ask {"message":"call echo {}"}`, tga.DelegationFailed, 2, "tools said tools said {}", 1},
	} {
		w := newWorld(t, c.set...)
		res := w.run(c.text)
		for n := range c.retries {
			if res.Status != turn.Waiting || res.Waiting.Code != c.code {
				t.Fatalf("%s, retry %d: %+v", name, n+1, res)
			}
			if res, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || res.Status != turn.Waiting {
				t.Errorf("%s goes on without a decision: %+v, %v", name, res, err)
			}
			res = w.retry(res)
		}
		if res.Status != turn.Completed || res.Text != c.said || sum(w.out.sends) != c.sends {
			t.Errorf("%s: sent %v, %+v", name, w.out.sends, res)
		}
	}
	w := newWorld(t, escalates(tga.ToolError), busy(ledger.ClassPermanent))
	res := w.run("call echo {}")
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); !errors.Is(err, tga.StateInvalidTransition) {
		t.Errorf("a call whose effect stands: %v", err)
	}
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Fallback, Value: json.RawMessage(`"7"`)}); err != nil {
		t.Error(err)
	}
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Text != "tools said 7" || sum(w.out.sends) != 1 {
		t.Errorf("%+v, %v", end, err)
	}
}

// crashesAfter runs f and returns the images of the disk before and after each append and each
// message to and from model and tools.
func (w *world) crashesAfter(id tga.ID, f func()) (images []image) {
	w.hook = func(where string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		images = append(images, image{fmt.Sprintf("%s %d", where, len(images)), id, w.disk.(*crashmem.FS).CrashClone(vfs.CrashCloneCfg{}), w.out.clone()})
	}
	f()
	w.hook = func(string) {}
	return images
}

// onHooks lets the world's hook see the appends of its store.
func onHooks(w *world) {
	w.disk = crashmem.New()
	w.wrap = func(s runtime.Store) runtime.Store { return &hooked{s, func(where string) { w.hook(where) }} }
}

// TestCrashAfterAPersonsRetry: one decision permits one attempt, wherever the power is cut.
func TestCrashAfterAPersonsRetry(t *testing.T) {
	set := []func(*world){escalates(tga.ToolError), func(w *world) {
		w.fails["echo"] = func(int) (runtime.Reply, error) {
			return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "TOOL_ERROR", ErrorMessage: "busy"}, nil
		}
	}}
	w := newWorld(t, append(set, onHooks)...)
	res := w.run("call echo {}")
	images := w.crashesAfter(res.InteractionID, func() {
		if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); err != nil {
			t.Fatal(err)
		}
		if res, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || res.Status != turn.Waiting {
			t.Fatalf("%+v, %v", res, err)
		}
	})
	if sum(w.out.sends) != 2 {
		t.Errorf("sent %v", w.out.sends)
	}
	for i, c := range images {
		w := newWorld(t, append(set, func(w *world) { w.disk, w.out = c.disk, c.out })...)
		res, err := w.r.Resume(t.Context(), c.id)
		if err != nil || res.Status != turn.Waiting || res.Waiting.Code != tga.ToolError {
			t.Errorf("%s: %+v, %v", c.where, res, err)
		}
		if n := sum(w.out.sends); i > 0 && n < 2 || n > 3 { // at most one that the crash cut off is sent again
			t.Errorf("%s: sent %v", c.where, w.out.sends)
		}
		w.stop()
	}
	t.Logf("%d crash images", len(images))
}

// TestSkippedCallIsNotSentAfterACrash: a person lets the turn go on without a call that waits for
// an approval. Another person's approval becomes durable, and the power is cut. Only if the log says
// that the call may have been sent is it sent again, as its licence permits.
func TestSkippedCallIsNotSentAfterACrash(t *testing.T) {
	set := func(w *world) { w.supervisor = asks("echo") }
	w := newWorld(t, set, onHooks)
	res := w.run("call echo {}")
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Skip}); err != nil {
		t.Fatal(err)
	}
	images := w.crashesAfter(res.InteractionID, func() {
		if err := approvals["runtime"](w, res.Waiting); err != nil {
			t.Fatal(err)
		}
	})
	for _, c := range images {
		w := newWorld(t, set, func(w *world) { w.disk, w.out = c.disk, c.out })
		call, err := w.r.Runtime().Result(t.Context(), res.Waiting.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.r.Resume(t.Context(), c.id)
		if n := sum(w.out.sends); err != nil || res.Status != turn.Completed || n != 0 && call.State != tga.Executing {
			t.Errorf("%s: sent %v, %+v, %v", c.where, w.out.sends, res, err)
		}
		w.stop()
	}
	t.Logf("%d crash images", len(images))
}
