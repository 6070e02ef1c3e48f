package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/turn"
	"github.com/tgad/tgad/runtime/turn/message"
	"github.com/tgad/tgad/runtime/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

func TestATurnAnswers(t *testing.T) {
	w := newWorld(t)
	res := w.run("done hello")
	if res.Status != turn.Completed || res.Text != "hello" || res.Turns != 1 || res.TurnNumber != 1 || res.Usage.Total != 15 {
		t.Errorf("%+v", res)
	}
	res = w.run("call echo {\"a\":1}\ncall count 7")
	if res.Status != turn.Completed || res.Turns != 2 || res.TurnNumber != 3 || !strings.HasPrefix(res.Text, `tools said {"a":1}, SCHEMA_VIOLATION`) {
		t.Errorf("%+v", res)
	}
	if len(res.Effects) != 2 || res.Effects[0].Status != turn.ToolSucceeded || res.Effects[1].Status != turn.ToolFailed {
		t.Errorf("effects %+v", res.Effects)
	}
}

// TestPhasesComeOnceAndInOrder: OSSA 0.2.9 §1, for both turns of a chain.
func TestPhasesComeOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	res := w.run(`call echo {"a":1}`)
	for i, id := range []tga.ID{res.InvocationID, res.InteractionID} {
		records, err := w.r.Records(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range records {
			got = append(got, string(r.Phase)+" "+string(r.Kind))
		}
		want := []string{"init done", "normalize done", "resolve done", "infer asked", "infer done", "execute done", "persist done", "emit done"}
		if !slices.Equal(got, want) {
			t.Errorf("turn %d: %v", i+1, got)
		}
	}
	if res.InvocationID == res.InteractionID || res.Turns != 2 {
		t.Errorf("both turns of the chain are %s", res.InteractionID)
	}
	if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}

// TestCrashAnywhereInATurn cuts the power at every append and at every message to and from
// model and tools: before it, and after. The turn then goes on, and comes to the same end:
// the model was asked, and tools had effects, as often as in one run.
func TestCrashAnywhereInATurn(t *testing.T) {
	const text = "call count {\"x\":1}\ncall echo {\"y\":2}\ncall count {\"x\":3}"
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprint("parallel=", parallel), func(t *testing.T) {
			set := func(w *world) {
				for i := range w.defs {
					w.defs[i].Parallel = parallel
				}
			}
			images := crashImages(t, text, set)
			asked, again := 0, 0
			for _, c := range images {
				w := newWorld(t, set, func(w *world) { w.disk, w.out = c.disk, c.out })
				res := w.goOn(c.id, c.where, text)
				wantEnd(t, c.where, w, res, parallel)
				for key, n := range w.out.requests {
					asked += n
					if n > 1 {
						again++
						if !strings.HasPrefix(c.where, "model") && !strings.HasPrefix(c.where, "append") || n > 2 {
							t.Errorf("%s: question %s was sent %d times", c.where, key, n)
						}
					}
				}
				if len(w.out.requests) != 2 || len(w.out.effects) != 3 {
					t.Errorf("%s: %d questions, %d effects", c.where, len(w.out.requests), len(w.out.effects))
				}
				w.stop()
			}
			t.Logf("%d crash images, %d questions sent, %d of them again after a crash between sending and recording", len(images), asked, again)
			if len(images) < 40 {
				t.Errorf("only %d places to crash at", len(images))
			}
		})
	}
}

func wantEnd(t *testing.T, where string, w *world, res turn.Result, parallel bool) {
	t.Helper()
	if res.Status != turn.Completed || res.Turns != 2 || len(res.Effects) != 3 || !strings.Contains(res.Text, `{"y":2}`) {
		t.Fatalf("%s: %+v", where, res)
	}
	if !parallel && res.Text != `tools said {"n":1}, {"y":2}, {"n":2}` {
		t.Errorf("%s: answer %q", where, res.Text)
	}
	got := w.read("n", "log")
	list, n := string(got["log"]), string(got["n"])
	kept := 0
	for _, e := range res.Effects {
		switch {
		case e.Name == "count" && e.Status == turn.ToolSucceeded:
			kept++
		case parallel && e.Name == "count" && e.Failure.Code != tga.StateConflict:
			t.Errorf("%s: %+v", where, e)
		}
	}
	// What is kept of two that ran at once is what their results say.
	switch {
	case kept == 2 && n == "2" && (list == `[{"x":1},{"x":3}]` || parallel && list == `[{"x":3},{"x":1}]`):
	case parallel && kept == 1 && n == "1" && (list == `[{"x":1}]` || list == `[{"x":3}]`):
	default:
		t.Errorf("%s: %d kept, state %s", where, kept, got)
	}
}

// read returns committed values of the session's state.
func (w *world) read(keys ...string) map[string]json.RawMessage {
	w.t.Helper()
	space := state.Open(w.db, state.Options{})
	tx, err := space.Begin(context.Background(), state.Scope{Mode: state.Session, ID: "helper\x00s"}, state.ReadCommitted)
	if err != nil {
		w.t.Fatal(err)
	}
	defer tx.Discard()
	got, err := tx.GetMany(keys)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// TestCallInDoubtParksTheTurn: a tool that may have run is not called again, whatever the
// table of strategies says, and the model is not told to try again either.
func TestCallInDoubtParksTheTurn(t *testing.T) {
	w := newWorld(t, func(w *world) { w.licence = ledger.Park })
	w.fails["echo"] = func(int) (runtime.Reply, error) { return runtime.Reply{}, errors.New("connection reset") }
	res := w.run(`call echo {"a":1}`)
	if res.Status != turn.Waiting || res.Waiting.Code != tga.EffectInDoubt || res.Waiting.TraceID.IsZero() {
		t.Fatalf("%+v", res)
	}
	again, err := w.r.Resume(t.Context(), res.InteractionID)
	if err != nil || again.Status != turn.Waiting {
		t.Fatalf("%+v, %v", again, err)
	}
	w.restart()
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); !errors.Is(err, tga.StateInvalidTransition) {
		t.Errorf("a retry of a call in doubt: %v", err)
	}
	if _, err := w.r.Runtime().Resolve(t.Context(), res.Waiting.TraceID, runtime.Resolution{Who: "ann", Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`{"a":1}`)}, Evidence: []byte(`{"seen":true}`)}); err != nil {
		t.Fatal(err)
	}
	end, err := w.r.Resume(t.Context(), res.InteractionID)
	if err != nil || end.Status != turn.Completed || end.Text != `tools said {"a":1}` {
		t.Fatalf("%+v, %v", end, err)
	}
	for key, n := range w.out.sends {
		if n != 1 {
			t.Errorf("%s was sent %d times", key, n)
		}
	}
}

// TestSkippedDoubtIsATimeout: who decides to go on without the answer gets a result that
// says so, and the call stays in doubt.
func TestSkippedDoubtIsATimeout(t *testing.T) {
	w := newWorld(t, func(w *world) { w.licence = ledger.Park })
	w.fails["echo"] = func(int) (runtime.Reply, error) { return runtime.Reply{}, errors.New("connection reset") }
	res := w.run(`call echo {"a":1}`)
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Skip}); err != nil {
		t.Fatal(err)
	}
	end, err := w.r.Resume(t.Context(), res.InteractionID)
	if err != nil || end.Status != turn.Completed || len(end.Effects) != 1 || end.Effects[0].Status != turn.ToolTimedOut {
		t.Fatalf("%+v, %v", end, err)
	}
}

// TestToolIsRetriedOnlyWhereTheLedgerAllows: the table says three times for TOOL_ERROR; a
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

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// TestModelStrategies walks the table for failures of a model.
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

// TestEscalationWaitsForAPerson: through restarts, and goes on as they decide.
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

// TestFailedTurnRollsItsStateBack: and the effects of its tools stand, and are listed.
func TestFailedTurnRollsItsStateBack(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{tga.ToolError}, Strategy: turn.Abort}}
	})
	w.tool("broken", func(context.Context, string) (string, error) { return "", errors.New("no") })
	res := w.run("call count {}\ncall broken {}")
	if res.Status != turn.Unsuccessful || res.Failure.Code != tga.ToolError || len(res.Effects) != 2 || res.Effects[0].Status != turn.ToolSucceeded {
		t.Fatalf("%+v", res)
	}
	if got := w.read("n", "log"); len(got) != 0 {
		t.Errorf("state %s", got)
	}
	// A tool that fails and is no reason to fail the turn leaves nothing of its own.
	w.agents[0].Handlers = nil
	w.tool("half", func(ctx context.Context, args string) (string, error) {
		if _, err := count(ctx, args); err != nil {
			return "", err
		}
		return "", errors.New("no")
	})
	if res := w.run("call half {}\ncall count {}"); res.Status != turn.Completed {
		t.Fatalf("%+v", res)
	}
	if got := w.read("n", "log"); string(got["n"]) != "1" || string(got["log"]) != "[{}]" {
		t.Errorf("state %s", got)
	}
}

func TestLimitsOfASession(t *testing.T) {
	w := newWorld(t, func(w *world) { w.agents[0].Constraints.MaxTurns = 2 })
	for range 2 {
		if res := w.run("done x"); res.Status != turn.Completed {
			t.Fatalf("%+v", res)
		}
	}
	res := w.run("done x")
	if res.Status != turn.Waiting || res.Waiting.Code != tga.MaxTurnsExceeded {
		t.Fatalf("%+v", res)
	}
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); err != nil {
		t.Fatal(err)
	}
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Status != turn.Completed {
		t.Errorf("%+v, %v", end, err)
	}
}

// TestQuestionIsDurableBeforeItIsSent: a model's server never knows of a question that the
// journal does not.
func TestQuestionIsDurableBeforeItIsSent(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.say = func(q turn.Question) (turn.Answer, error) {
		open, err := w.r.OpenTurns(t.Context())
		if err != nil || len(open) != 1 {
			t.Fatalf("open: %v, %v", open, err)
		}
		records, err := w.r.Records(t.Context(), open[0])
		if err != nil {
			t.Fatal(err)
		}
		if last := records[len(records)-1]; last.Kind != turn.Asked || !strings.Contains(string(last.Body), q.Key) {
			t.Errorf("the newest record is %s %s", last.Phase, last.Kind)
		}
		asked++
		return obedient(q)
	}
	if w.run("call echo {}"); asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

func TestTokenLimit(t *testing.T) {
	for _, c := range []struct {
		most   int64
		turns  int
		status turn.Status
	}{{45, 3, turn.Completed}, {44, 3, turn.Unsuccessful}} {
		w := newWorld(t, func(w *world) {
			w.agents[0].Constraints.MaxTokens = c.most
			w.options = func(o *turn.Options) { o.Tokens = func(message.Message) int { return 0 } }
		})
		var res turn.Result
		var left []int64
		w.say = func(q turn.Question) (turn.Answer, error) {
			left = append(left, *q.Parameters.MaxTokens)
			return obedient(q)
		}
		for range c.turns {
			res = w.run("done x")
		}
		if want := []int64{c.most, c.most - 15, c.most - 30}; !slices.Equal(left, want) {
			t.Errorf("%d: an answer may have %v tokens, want %v", c.most, left, want)
		}
		if res.Status != c.status || c.status == turn.Unsuccessful && res.Failure.Code != tga.MaxTokensExceeded {
			t.Errorf("%d: %+v", c.most, res)
		}
	}
}

func TestToolTurnsInARowAreLimited(t *testing.T) {
	for _, c := range []struct {
		most   int
		status turn.Status
	}{{3, turn.Completed}, {2, turn.Waiting}} {
		w := newWorld(t, func(w *world) { w.agents[0].Chain.MaxToolTurns = c.most })
		n := 0
		w.say = func(q turn.Question) (turn.Answer, error) {
			if n++; n > 3 {
				return turn.Answer{Said: message.TextMessage(message.Assistant, "end", message.FromModel, 0), Finish: turn.FinishStop}, nil
			}
			m := message.TextMessage(message.Assistant, "", message.FromModel, 0)
			m.ToolCalls = []message.ToolCall{{ID: fmt.Sprint(n), Name: "echo", Arguments: "{}"}}
			return turn.Answer{Said: m, Finish: turn.FinishToolUse}, nil
		}
		if res := w.run("go"); res.Status != c.status || c.status == turn.Waiting && res.Waiting.Code != tga.MaxTurnsExceeded {
			t.Errorf("%d: %+v", c.most, res)
		}
	}
}

// TestChainStops: continue_on_tool_use false, and confirm_between_turns.
func TestChainStops(t *testing.T) {
	w := newWorld(t, func(w *world) { w.agents[0].Chain.Stop = true })
	if res := w.run("call echo {}"); res.Status != turn.Completed || res.Turns != 1 || len(res.Effects) != 1 {
		t.Errorf("%+v", res)
	}
	w.agents[0].Chain = turn.ChainSpec{Confirm: true}
	res := w.run("call echo {}")
	if res.Status != turn.Waiting || res.Waiting.Phase != turn.Emit {
		t.Fatalf("%+v", res)
	}
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); err != nil {
		t.Fatal(err)
	}
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Turns != 2 || end.Text != "tools said {}" {
		t.Errorf("%+v, %v", end, err)
	}
}

// TestConversationIsRemembered: the model is given what was said before, and what a tool
// said never without the call.
func TestConversationIsRemembered(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.agents[0].Examples = []turn.Example{{Input: "in", Output: "out"}}
		w.agents[0].Role, w.agents[0].SystemPrompt = "role", "prompt"
	})
	var last turn.Question
	w.say = func(q turn.Question) (turn.Answer, error) { last = q; return obedient(q) }
	w.run(`call echo {"a":1}`)
	w.run("done two")
	var got []string
	for _, m := range last.Messages {
		got = append(got, fmt.Sprint(m.Role, ":", m.Plain(), len(m.ToolCalls)))
	}
	want := []string{"user:in0", "assistant:out0", `user:call echo {"a":1}0`, "assistant:1", `tool:{"a":1}0`, `assistant:tools said {"a":1}0`, "user:done two0"}
	if !slices.Equal(got, want) || last.System != "role\n\nprompt" {
		t.Errorf("%q, system %q", got, last.System)
	}
	// A turn that failed is no part of the conversation.
	w.say = func(turn.Question) (turn.Answer, error) {
		return turn.Answer{}, &turn.Failure{Code: tga.ValidationError}
	}
	w.run("done three")
	w.say = func(q turn.Question) (turn.Answer, error) { last = q; return obedient(q) }
	w.run("done four")
	if n := len(last.Messages); n != len(want)+2 || last.Messages[n-1].Plain() != "done four" || last.Messages[n-2].Plain() != "two" {
		t.Errorf("%d messages", n)
	}
}

// TestAnswersAreRedactedBeforeTheyAreStored: nothing of what was taken out is in the
// store, and what was received stays provable.
func TestAnswersAreRedactedBeforeTheyAreStored(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.agents[0].Redact = message.Filter{PII: []string{"email"}, Actions: map[string]message.Action{"pii:email": message.Block}}
	})
	w.tool("who", func(context.Context, string) (string, error) { return `{"mail":"ann@example.com","n":1}`, nil })
	res := w.run("call who {}")
	if strings.Contains(res.Text, "ann@example.com") || strings.Contains(res.Effects[0].Output, "ann@") {
		t.Errorf("%+v", res)
	}
	served, err := w.r.Runtime().Result(t.Context(), res.Effects[0].TraceID)
	if err != nil || strings.Contains(string(served.Value), "ann@") || !json.Valid(served.Value) {
		t.Errorf("%s, %v", served.Value, err)
	}
	trace, err := w.db.Load(t.Context(), res.Effects[0].TraceID)
	if err != nil {
		t.Fatal(err)
	}
	hashes := trace.Effect.Effect.DocumentHashes
	if len(hashes) != 2 || hashes[0].Pointer != tga.PointerResult || hashes[0].Hash != tga.Sum(served.Value) ||
		hashes[1].Pointer != tga.PointerReceived || hashes[1].SizeBytes != int64(len(`{"mail":"ann@example.com","n":1}`)) || hashes[1].Hash == tga.Sum([]byte(`{"mail":"ann@example.com","n":1}`)) {
		t.Errorf("%+v", hashes)
	}
}

// TestWhatAToolSaysOfItsFailureIsRedactedToo.
func TestWhatAToolSaysOfItsFailureIsRedactedToo(t *testing.T) {
	w := newWorld(t, func(w *world) { w.agents[0].Redact = message.Filter{PII: []string{"email"}} })
	w.tool("who", func(context.Context, string) (string, error) { return "", errors.New("no account of ann@example.com") })
	res := w.run("call who {}")
	served, err := w.r.Runtime().Result(t.Context(), res.Effects[0].TraceID)
	if err != nil || strings.Contains(served.ErrorMessage, "ann@") || !strings.Contains(served.ErrorMessage, "no account of") || strings.Contains(res.Text, "ann@") {
		t.Errorf("%q, %q, %v", served.ErrorMessage, res.Text, err)
	}
}

// TestQuestionInDoubtUnderPark waits for a person, who may resolve its call, give it up, or
// go on without an answer.
func TestQuestionInDoubtUnderPark(t *testing.T) {
	for _, c := range []struct {
		name   string
		act    func(w *world, res turn.Result) error
		status turn.Status
		text   string
	}{
		{"skip", func(w *world, res turn.Result) error {
			return w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Skip})
		}, turn.Completed, ""},
		{"resolve", func(w *world, res turn.Result) error {
			answer, err := json.Marshal(turn.Answer{Model: "m1", Finish: turn.FinishStop, Said: message.TextMessage(message.Assistant, "by mail", message.FromModel, 1)})
			if err != nil {
				return err
			}
			_, err = w.r.Runtime().Resolve(t.Context(), res.Waiting.TraceID, runtime.Resolution{Who: "ann", Reply: runtime.Reply{Status: tga.StatusSuccess, Result: answer}, Evidence: []byte(`{}`)})
			return err
		}, turn.Completed, "by mail"},
		{"abort", func(w *world, res turn.Result) error {
			return w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Abort})
		}, turn.Unsuccessful, ""},
	} {
		set := func(w *world) {
			w.options = func(o *turn.Options) { o.ModelLicence = &ledger.Licence{Kind: ledger.Park} }
		}
		images := crashImages(t, "done x", set)
		i := slices.IndexFunc(images, func(i image) bool { return strings.HasPrefix(i.where, "model answered") })
		w := newWorld(t, set, func(w *world) { w.disk, w.out = images[i].disk, images[i].out })
		all, err := w.r.Recover(t.Context())
		if err != nil || len(all) != 1 || all[0].Status != turn.Waiting || all[0].Waiting.Code != tga.EffectInDoubt || sum(w.out.requests) != 1 {
			t.Fatalf("%s: %+v, %v", c.name, all, err)
		}
		if err := c.act(w, all[0]); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		res, err := w.r.Resume(t.Context(), all[0].InteractionID)
		if err != nil || res.Status != c.status || res.Text != c.text || sum(w.out.requests) != 1 {
			t.Errorf("%s: %+v, %v", c.name, res, err)
		}
	}
}

// TestTurnOfAnotherAgentIsLeftAlone: who has its manifest goes on with it.
func TestTurnOfAnotherAgentIsLeftAlone(t *testing.T) {
	w := newWorld(t, func(w *world) { w.agents[0].Constraints.MaxTurns = 1 })
	w.run("done x")
	if res := w.run("done x"); res.Status != turn.Waiting {
		t.Fatalf("%+v", res)
	}
	w.agents[0].Name = "stranger"
	w.restart()
	if all, err := w.r.Recover(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	open, err := w.r.OpenTurns(t.Context())
	if err != nil || len(open) != 1 {
		t.Fatalf("open: %v, %v", open, err)
	}
	if _, err := w.r.Resume(t.Context(), open[0]); !errors.Is(err, tga.NotFound) {
		t.Errorf("%v", err)
	}
}

// TestRunIsIdempotent: the same turn asked for again is not run again.
func TestRunIsIdempotent(t *testing.T) {
	w := newWorld(t)
	q := turn.Request{Agent: "helper", InteractionID: newID(), Message: []byte("call echo {}")}
	for range 3 {
		if res, err := w.r.Run(t.Context(), q); err != nil || res.InvocationID != q.InteractionID || res.Turns != 2 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if sum(w.out.requests) != 2 || sum(w.out.sends) != 1 {
		t.Errorf("%d questions, %d sends", sum(w.out.requests), sum(w.out.sends))
	}
}

// TestBadInputWritesNothing: refused with a code, and no turn is there.
func TestBadInputWritesNothing(t *testing.T) {
	w := newWorld(t)
	for _, q := range []turn.Request{
		{Agent: "nobody", Message: []byte("x")},
		{Agent: "helper", SessionID: strings.Repeat("s", 256), Message: []byte("x")},
		{Agent: "helper", Message: []byte(`{"role":"user"}`), Format: "openai"},
		{Agent: "helper"},
	} {
		if res, err := w.r.Run(t.Context(), q); tga.CodeOf(err) == "" {
			t.Errorf("%+v: %+v, %v", q, res, err)
		}
	}
	if sum(w.out.requests) != 0 {
		t.Error("the model was asked")
	}
	if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}
