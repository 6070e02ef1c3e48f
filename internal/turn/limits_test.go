package turn_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

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

// TestTokensOfTurnsThatOverlapAreCounted: a turn waits while another one begins and ends. The turns
// that follow, in its chain and after it, know the tokens of both.
func TestTokensOfTurnsThatOverlapAreCounted(t *testing.T) {
	var left []int64
	w := newWorld(t, func(w *world) {
		w.supervisor, w.agents[0].Constraints.MaxTokens = asks("echo"), 1000
		w.options = func(o *turn.Options) { o.Tokens = func(message.Message) int { return 0 } }
		w.say = func(q turn.Question) (turn.Answer, error) {
			left = append(left, *q.Parameters.MaxTokens)
			return obedient(q)
		}
	})
	res := w.run("call echo {}")
	w.run("done x")
	if err := approvals["settle"](w, res.Waiting); err != nil {
		t.Fatal(err)
	}
	if res, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || res.Status != turn.Completed {
		t.Fatalf("%+v, %v", res, err)
	}
	w.run("done y")
	if want := []int64{1000, 1000, 970, 955}; !slices.Equal(left, want) {
		t.Errorf("answers may have %v tokens, want %v", left, want)
	}
}

// TestTokensOfAFailedTurnAreCountedAfterACrash, wherever the power is cut.
func TestTokensOfAFailedTurnAreCountedAfterACrash(t *testing.T) {
	var left int64
	set := func(w *world) {
		w.agents[0].Constraints.MaxTokens = 1000
		w.options = func(o *turn.Options) { o.Tokens = func(message.Message) int { return 0 } }
		w.say = func(q turn.Question) (turn.Answer, error) {
			left = *q.Parameters.MaxTokens
			a, err := obedient(q)
			if a.Said.Plain() == "bad" {
				a.Said.Role = message.User
			}
			return a, err
		}
	}
	id := newID()
	bad := turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte("done bad")}
	w := newWorld(t, set, onHooks)
	images := w.crashesAfter(id, func() {
		if res, err := w.r.Run(t.Context(), bad); err != nil || res.Status != turn.Unsuccessful || res.Usage.Total != 60 {
			t.Fatalf("%+v, %v", res, err)
		}
	})
	for _, c := range images {
		w := newWorld(t, set, func(w *world) { w.disk, w.out = c.disk, c.out })
		if res, err := w.r.Run(t.Context(), bad); err != nil || res.Status != turn.Unsuccessful {
			t.Errorf("%s: %+v, %v", c.where, res, err)
		}
		if w.run("done x"); left != 940 {
			t.Errorf("%s: an answer may have %d tokens", c.where, left)
		}
		w.stop()
	}
	t.Logf("%d crash images", len(images))
}

// TestStateOfASessionThatIsTooLongToName: the names of agent and session are refused together
// before anything is asked, in a delegation too.
func TestStateOfASessionThatIsTooLongToName(t *testing.T) {
	long := strings.Repeat("s", 255-len("helper")-1)
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor, OnFailure: turn.Fallback}), func(w *world) {
		w.agents[1].Name = "expert-2" // longer than the helper's
		for i := range w.defs {
			if d := w.defs[i].Delegation; d != nil {
				d.Target = w.agents[1].Name
			}
		}
	})
	run := func(session string) (turn.Result, error) {
		return w.r.Run(t.Context(), turn.Request{Agent: "helper", SessionID: session, Message: []byte(`call ask {"message":"done x"}`)})
	}
	_, err := run(long + "s")
	var e *tga.Error
	if !errors.As(err, &e) || e.Code != tga.LimitExceeded || e.Pointer != "/session_id" || len(w.out.requests) != 0 {
		t.Errorf("%v, asked %v", err, w.out.requests)
	}
	if res, err := run(long); err != nil || res.Status != turn.Completed || !strings.Contains(res.Text, "LIMIT_EXCEEDED") {
		t.Errorf("%+v, %v", res, err)
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
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Turns != 2 || end.Text != "tools said {}, {}" { // the first is that of the turn before
		t.Errorf("%+v, %v", end, err)
	}
}

// TestAnswersTooLargeToRecordFailTheTurn: all calls were made, and the record would be as large
// after a resumption. The turn fails, and says which calls were made.
func TestAnswersTooLargeToRecordFailTheTurn(t *testing.T) {
	turn.LimitRecords(t, 32<<10)
	w := newWorld(t)
	large := strings.Repeat("x", 8<<10)
	w.tool("large", func(context.Context, string) (string, error) { return large, nil })
	res := w.run(strings.Repeat("call large {}\n", 5))
	if res.Status != turn.Unsuccessful || res.Failure.Code != tga.LimitExceeded || len(res.Effects) != 5 || sum(w.out.sends) != 5 {
		t.Errorf("%s, %v, %d effects", res.Status, res.Failure, len(res.Effects))
	}
	if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}
