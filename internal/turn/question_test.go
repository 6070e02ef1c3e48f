package turn_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// summarizing is a world whose agent has its conversation summarized from the third message on.
// asked gets the kind of each question, which fails with the failure of its kind.
func summarizing(asked *[]string, fail func(kind string) *turn.Failure) func(*world) {
	return func(w *world) {
		w.agents[0].Memory = message.Memory{Window: 4, Tokens: 200, Strategy: message.Summarize}
		w.options = func(o *turn.Options) { o.Tokens = func(message.Message) int { return 1 } }
		w.say = func(q turn.Question) (turn.Answer, error) {
			kind := "question"
			if strings.HasPrefix(q.System, "Summarize") {
				kind = "summary"
			}
			*asked = append(*asked, kind+" "+q.Model)
			if f := fail(kind); f != nil {
				return turn.Answer{}, f
			}
			if kind == "summary" {
				return turn.Answer{Said: message.TextMessage(message.Assistant, "they counted", message.FromModel, 0), Finish: turn.FinishStop, Usage: turn.Usage{Total: 3}}, nil
			}
			return obedient(q)
		}
	}
}

// TestSummaryFollowsTheTable: a summary that fails is asked for again, of the next model too, as
// any question is. If there is none in the end, the turn goes on without a summary, unless a
// handler of the agent says what is done about the failure.
func TestSummaryFollowsTheTable(t *testing.T) {
	for _, c := range []struct {
		name     string
		fail     turn.Failure
		failures int
		handlers []turn.Handler
		fallback []turn.ModelRef
		asked    string
		status   turn.Status
		summary  string
	}{
		{name: "once", fail: turn.Failure{Code: tga.LLMError}, failures: 1, asked: "summary m1, summary m1, question m1", status: turn.Completed, summary: "they counted"},
		{name: "for good", fail: turn.Failure{Code: tga.LLMTimeout}, failures: 9, asked: "summary m1, summary m1, summary m1, question m1", status: turn.Completed},
		{name: "next model", fail: turn.Failure{Code: tga.LLMError, Permanent: true}, failures: 1, fallback: []turn.ModelRef{{Model: "m2"}}, asked: "summary m1, summary m2, question m1", status: turn.Completed, summary: "they counted"},
		{name: "abort", fail: turn.Failure{Code: tga.ContentFiltered}, failures: 1, asked: "summary m1, question m1", status: turn.Completed},
		{name: "handler with a value", fail: turn.Failure{Code: tga.LLMError}, failures: 9, handlers: []turn.Handler{{Codes: []tga.Code{tga.LLMError}, Strategy: turn.Fallback, Fallback: json.RawMessage(`"much was said"`)}}, asked: "summary m1, question m1", status: turn.Completed, summary: "much was said"},
		{name: "handler skips", fail: turn.Failure{Code: tga.LLMError}, failures: 9, handlers: []turn.Handler{{Codes: []tga.Code{tga.LLMError}, Strategy: turn.Skip}}, asked: "summary m1, question m1", status: turn.Completed},
		{name: "handler aborts", fail: turn.Failure{Code: tga.LLMError}, failures: 9, handlers: []turn.Handler{{Codes: []tga.Code{tga.LLMError}, Strategy: turn.Abort}}, asked: "summary m1", status: turn.Unsuccessful},
		{name: "handler escalates", fail: turn.Failure{Code: tga.LLMError}, failures: 1, handlers: []turn.Handler{{Codes: []tga.Code{tga.LLMError}, Strategy: turn.Escalate}}, asked: "summary m1, summary m1, question m1", status: turn.Completed, summary: "they counted"},
	} {
		var asked []string
		failures := 0
		w := newWorld(t, summarizing(&asked, func(kind string) *turn.Failure {
			if kind != "summary" || failures >= c.failures {
				return nil
			}
			failures++
			f := c.fail
			return &f
		}), func(w *world) { w.agents[0].Handlers, w.agents[0].Model.Fallback = c.handlers, c.fallback })
		w.run("done 0")
		w.run("done 1")
		asked = nil
		res := w.run("done 2")
		if c.name == "handler escalates" {
			if res.Status != turn.Waiting || res.Waiting.Phase != turn.Infer {
				t.Fatalf("%s: %+v", c.name, res)
			}
			res = w.retry(res)
		}
		if got := strings.Join(asked, ", "); res.Status != c.status || got != c.asked || res.Status == turn.Completed && res.Text != "2" {
			t.Errorf("%s: asked %s, %+v", c.name, got, res)
		}
		if raw := w.askedLast(res.InteractionID); strings.Contains(raw, "Summary of the conversation") != (c.summary != "") || !strings.Contains(raw, c.summary) {
			t.Errorf("%s: %s", c.name, raw)
		}
	}
}

// askedLast returns the newest question of a turn, as its journal has it.
func (w *world) askedLast(id tga.ID) (text string) {
	w.t.Helper()
	records, err := w.r.Records(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range records {
		if r.Kind == turn.Asked {
			text = string(r.Body)
		}
	}
	return text
}

// TestSummaryIsNotAskedForBeyondTheTokenLimit: a session that has used up its tokens asks nothing
// more, no summary either.
func TestSummaryIsNotAskedForBeyondTheTokenLimit(t *testing.T) {
	var asked []string
	w := newWorld(t, summarizing(&asked, func(string) *turn.Failure { return nil }), func(w *world) { w.agents[0].Constraints.MaxTokens = 50 })
	for range 3 {
		w.run("done x")
	}
	asked = nil
	res := w.run("done x")
	if res.Status != turn.Unsuccessful || res.Failure.Code != tga.MaxTokensExceeded || len(asked) != 0 {
		t.Errorf("asked %v, %+v", asked, res)
	}
}

// TestHandlersOfAQuestionThatWaits: a question needs an approval or is in doubt, and a handler says
// that nobody is asked about that.
func TestHandlersOfAQuestionThatWaits(t *testing.T) {
	for _, code := range []tga.Code{tga.EscalationRequired, tga.EffectInDoubt} {
		for strategy, text := range map[turn.Strategy]string{turn.Skip: "", turn.Fallback: "sorry"} {
			w := newWorld(t, func(w *world) {
				w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{code}, Strategy: strategy, Fallback: json.RawMessage(`"sorry"`)}}
				w.options = func(o *turn.Options) { o.ModelLicence = &ledger.Licence{Kind: ledger.Park} }
				if code == tga.EscalationRequired {
					w.supervisor = asks("generate")
				}
			})
			id := newID()
			if code == tga.EffectInDoubt {
				w.cutOff(id)
			}
			res, err := w.r.Run(t.Context(), turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte("done x")})
			if err != nil || res.Status != turn.Completed || res.Text != text {
				t.Errorf("%s, %s: %+v, %v", code, strategy, res, err)
			}
		}
	}
}

// TestAnswerThatIsNone: a question ended well, and there is no answer to read: it is too long to keep, or a person says
// that the model was asked and does not have the answer, or has something else. The next model is asked, and without
// one the turn fails: it does not stay open for ever.
func TestAnswerThatIsNone(t *testing.T) {
	for name, said := range map[string]json.RawMessage{"too long": nil, "not known": nil, "a text": json.RawMessage(`"by mail"`)} {
		for _, second := range []bool{true, false} {
			w := newWorld(t, func(w *world) {
				w.options = func(o *turn.Options) { o.ModelLicence = &ledger.Licence{Kind: ledger.Park} }
				if name == "too long" {
					w.options = func(o *turn.Options) { o.Runtime.MaxAnswer = 4 << 10 }
					w.say = func(q turn.Question) (turn.Answer, error) {
						a, err := obedient(q)
						if q.Model == "m1" {
							a.Said.Content[0].Text = strings.Repeat("x", 5<<10)
						}
						return a, err
					}
				}
				if second {
					w.agents[0].Model.Fallback = []turn.ModelRef{{Provider: "other", Model: "m2"}}
				}
			})
			id := newID()
			if name != "too long" {
				w.cutOff(id)
				if res, err := w.r.Resume(t.Context(), id); err != nil || res.Status != turn.Waiting {
					t.Fatalf("%s: %+v, %v", name, res, err)
				}
				if _, err := w.r.Settle(t.Context(), id, turn.Settlement{Who: "ann", Action: turn.Ran, Result: said, Note: note}); err != nil {
					t.Fatal(err)
				}
			}
			res, err := w.r.Run(t.Context(), turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte("done x")})
			switch {
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case second && (res.Status != turn.Completed || res.Text != "x"):
				t.Errorf("%s: %+v", name, res)
			case !second && (res.Status != turn.Unsuccessful || res.Failure.Code != tga.LLMError):
				t.Errorf("%s: %+v", name, res)
			}
			if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
				t.Errorf("%s: open %v, %v", name, open, err)
			}
		}
	}
}

// TestModelsRetryAfterBeyondTheTurnsTime: the turn does not wait for a model, or for a tool that
// certainly did nothing, longer than it has time. It goes to the next model, and tells the model
// of the tool.
func TestModelsRetryAfterBeyondTheTurnsTime(t *testing.T) {
	for limit, waits := range map[time.Duration]int{90 * time.Second: 0, 10 * time.Minute: 3} {
		var asked []string
		w := newWorld(t, func(w *world) {
			w.agents[0].Constraints.Timeout, w.agents[0].Model.Fallback = limit, []turn.ModelRef{{Model: "m2"}}
			w.say = func(q turn.Question) (turn.Answer, error) {
				if asked = append(asked, q.Model); q.Model == "m1" {
					return turn.Answer{}, &turn.Failure{Code: tga.RateLimited, RetryAfter: 100 * time.Second}
				}
				return obedient(q)
			}
		})
		res := w.run("done x")
		if res.Status != turn.Completed || res.Text != "x" || len(w.slept) != waits || !slices.Contains(asked, "m2") {
			t.Errorf("%v: waited %v, asked %v, %+v", limit, w.slept, asked, res)
		}
		w.slept, w.say = nil, obedient
		w.fails["echo"] = func(int) (runtime.Reply, error) {
			return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, ErrorCode: "RATE_LIMITED", RetryAfter: 100 * time.Second}, nil
		}
		if res := w.run("call echo {}"); res.Status != turn.Completed || len(w.slept) != waits || res.Effects[0].Failure.Code != tga.RateLimited {
			t.Errorf("%v: waited %v, %+v", limit, w.slept, res)
		}
	}
}
