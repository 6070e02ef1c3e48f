package turn_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestToolIsRetriedOnlyWhereTheLedgerAllows: the table says three retries for TOOL_ERROR; a
// failure that is not recorded as retryable is final.
func TestToolIsRetriedOnlyWhereTheLedgerAllows(t *testing.T) {
	for _, c := range []struct {
		class   ledger.Class
		answers int // failures before it works
		sends   int
		status  turn.ToolStatus
	}{
		{ledger.ClassNone, 1, 1, turn.ToolFailed},
		{ledger.ClassPermanent, 1, 1, turn.ToolFailed},
		{ledger.ClassRetryable, 3, 4, turn.ToolSucceeded},
		{ledger.ClassRetryable, 4, 4, turn.ToolFailed},
	} {
		w := newWorld(t)
		w.fails["echo"] = func(n int) (runtime.Reply, error) {
			if n > c.answers {
				return runtime.Reply{}, nil
			}
			return runtime.Reply{Status: tga.StatusFailure, Class: c.class, ErrorCode: "TOOL_ERROR", ErrorMessage: "busy"}, nil
		}
		res := w.run(`call echo {"a":1}`)
		if len(w.out.sends) != 1 || sum(w.out.sends) != c.sends || res.Effects[0].Status != c.status || res.Effects[0].Retries != c.sends-1 {
			t.Errorf("class %v: sends %v, %+v", c.class, w.out.sends, res.Effects)
		}
		for i, d := range w.slept {
			if want := time.Second << i; d != want {
				t.Errorf("wait %d is %v, want %v", i, d, want)
			}
		}
	}
}

// TestModelStrategies checks the table for failures of a model.
func TestModelStrategies(t *testing.T) {
	for _, c := range []struct {
		name     string
		fail     turn.Failure
		failures int // of the first model
		handlers []turn.Handler
		fallback []turn.ModelRef
		status   turn.Status
		asked    []string
		waits    []time.Duration
		text     string
	}{
		{name: "LLM_ERROR three retries", fail: turn.Failure{Code: tga.LLMError}, failures: 3, status: turn.Completed, asked: []string{"m1", "m1", "m1", "m1"}, waits: []time.Duration{1e9, 2e9, 4e9}, text: "x"},
		{name: "LLM_ERROR no fourth", fail: turn.Failure{Code: tga.LLMError}, failures: 4, status: turn.Unsuccessful, asked: []string{"m1", "m1", "m1", "m1"}},
		{name: "LLM_TIMEOUT two", fail: turn.Failure{Code: tga.LLMTimeout}, failures: 3, status: turn.Unsuccessful, asked: []string{"m1", "m1", "m1"}},
		{name: "RATE_LIMITED as long as asked", fail: turn.Failure{Code: tga.RateLimited, RetryAfter: 7 * time.Second}, failures: 1, status: turn.Completed, asked: []string{"m1", "m1"}, waits: []time.Duration{7e9}, text: "x"},
		{name: "permanent goes to the next model", fail: turn.Failure{Code: tga.LLMError, Permanent: true}, failures: 9, fallback: []turn.ModelRef{{Model: "m2"}}, status: turn.Completed, asked: []string{"m1", "m2"}, text: "x"},
		{name: "QUOTA_EXCEEDED other provider", fail: turn.Failure{Code: tga.QuotaExceeded}, failures: 9, fallback: []turn.ModelRef{{Provider: "other", Model: "m3"}}, status: turn.Completed, asked: []string{"m1", "m3"}, text: "x"},
		{name: "VALIDATION_ERROR aborts", fail: turn.Failure{Code: tga.ValidationError}, failures: 9, fallback: []turn.ModelRef{{Model: "m2"}}, status: turn.Unsuccessful, asked: []string{"m1"}},
		{name: "handler with a value", fail: turn.Failure{Code: tga.LLMError}, failures: 9, handlers: []turn.Handler{{Codes: []tga.Code{tga.LLMError}, Strategy: turn.Fallback, Fallback: json.RawMessage(`"sorry"`)}}, status: turn.Completed, asked: []string{"m1"}, text: "sorry"},
		{name: "handler skips", fail: turn.Failure{Code: tga.LLMError}, failures: 9, handlers: []turn.Handler{{Codes: []tga.Code{tga.LLMError}, Strategy: turn.Skip}}, status: turn.Completed, asked: []string{"m1"}},
		{name: "handler retries once", fail: turn.Failure{Code: tga.ValidationError}, failures: 9, handlers: []turn.Handler{{Codes: []tga.Code{tga.ValidationError}, Strategy: turn.Retry}}, status: turn.Unsuccessful, asked: []string{"m1", "m1"}},
		{name: "handler escalates", fail: turn.Failure{Code: tga.LLMError}, failures: 9, handlers: []turn.Handler{{Codes: []tga.Code{tga.LLMError}, Strategy: turn.Escalate, Target: "ops"}}, status: turn.Waiting, asked: []string{"m1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			w := newWorld(t, func(w *world) {
				w.agents[0].Handlers, w.agents[0].Model.Fallback = c.handlers, c.fallback
			})
			w.say = func(q turn.Question) (turn.Answer, error) {
				asked = append(asked, q.Model)
				if q.Model == "m1" && len(asked) <= c.failures {
					f := c.fail
					return turn.Answer{}, &f
				}
				return obedient(q)
			}
			res := w.run("done x")
			if res.Status != c.status || !slices.Equal(asked, c.asked) || res.Text != c.text && c.status == turn.Completed {
				t.Errorf("asked %v, %+v", asked, res)
			}
			if c.waits != nil && !slices.Equal(w.slept, c.waits) {
				t.Errorf("waits %v", w.slept)
			}
			if c.status == turn.Unsuccessful && res.Failure.Code != c.fail.Code {
				t.Errorf("failure %v", res.Failure)
			}
		})
	}
}

// TestEscalationWaitsForAPerson: the turn waits through restarts, and goes on as the person
// decides.
func TestEscalationWaitsForAPerson(t *testing.T) {
	for _, c := range []struct {
		d      turn.Decision
		status turn.Status
		text   string
	}{
		{turn.Decision{Who: "ann", Action: turn.Retry}, turn.Completed, "x"},
		{turn.Decision{Who: "ann", Action: turn.Skip}, turn.Completed, ""},
		{turn.Decision{Who: "ann", Action: turn.Fallback, Value: json.RawMessage(`"by hand"`)}, turn.Completed, "by hand"},
		{turn.Decision{Who: "ann", Action: turn.Abort}, turn.Unsuccessful, ""},
	} {
		w := newWorld(t, func(w *world) {
			w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{tga.LLMError}, Strategy: turn.Escalate, Target: "ops"}}
		})
		n := 0
		w.say = func(q turn.Question) (turn.Answer, error) {
			if n++; n == 1 {
				return turn.Answer{}, &turn.Failure{Code: tga.LLMError, Message: "down"}
			}
			return obedient(q)
		}
		res := w.run("done x")
		if res.Status != turn.Waiting || res.Waiting.Target != "ops" || res.Waiting.Phase != turn.Infer {
			t.Fatalf("%+v", res)
		}
		w.restart()
		if err := w.r.Decide(t.Context(), res.InteractionID, c.d); err != nil {
			t.Fatal(err)
		}
		if err := w.r.Decide(t.Context(), res.InteractionID, c.d); !errors.Is(err, tga.StateInvalidTransition) {
			t.Errorf("decided twice: %v", err)
		}
		w.restart()
		end, err := w.r.Resume(t.Context(), res.InteractionID)
		if err != nil || end.Status != c.status || end.Text != c.text {
			t.Errorf("%s: %+v, %v", c.d.Action, end, err)
		}
	}
}
