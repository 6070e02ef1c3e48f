package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const note = "seen in the statement, line 7"

// TestSettledCallIsTakenOn: a person settles the call that a turn waits for, and the process is
// restarted. Then Resume brings the turn to its end, and the tool server got no more sends than
// permitted.
func TestSettledCallIsTakenOn(t *testing.T) {
	const text = "call count {\"x\":1}\ncall echo {\"a\":1}\ncall count {\"x\":2}"
	for _, c := range []struct {
		action turn.SettleAction
		doubt  bool // the call is in doubt; otherwise it waits for an approval
		result string
		sends  int // of the call at issue
		answer string
		status turn.ToolStatus
	}{
		{turn.Approve, false, "", 1, `{"a":1}`, turn.ToolSucceeded},
		{turn.Deny, false, "", 0, "POLICY_VIOLATION: call denied: " + note, turn.ToolFailed},
		{turn.Ran, true, `{"b":2}`, 1, `{"b":2}`, turn.ToolSucceeded},
		{turn.RanFailed, true, "", 1, "TOOL_ERROR: no message", turn.ToolFailed},
		{turn.NotRun, true, "", 2, `{"a":1}`, turn.ToolSucceeded},
		{turn.GiveUp, true, "", 1, "EFFECT_IN_DOUBT: " + note, turn.ToolTimedOut},
	} {
		t.Run(string(c.action), func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				if c.doubt {
					w.licence = ledger.Park
				} else {
					w.supervisor = asks("echo")
				}
			})
			if c.doubt {
				w.fails["echo"] = func(n int) (runtime.Reply, error) {
					if n > 1 {
						return runtime.Reply{}, nil // like a tool that works
					}
					return runtime.Reply{}, errors.New("connection reset")
				}
			}
			res := w.run(text)
			if res.Status != turn.Waiting || res.Waiting.TraceID.IsZero() {
				t.Fatalf("%+v", res)
			}
			id := res.Waiting.InteractionID
			w.restart()
			for _, bad := range []turn.Settlement{
				{Who: "ann", Action: c.action}, {Action: c.action, Note: note}, {Who: "ann", Action: "perhaps", Note: note},
				{Who: "ann", Action: c.action, Note: note, Result: json.RawMessage(`{`)},
				{Who: "ann", Action: turn.GiveUp, Note: note, Result: json.RawMessage(`{}`)},
			} {
				if _, err := w.r.Settle(t.Context(), id, bad); tga.CodeOf(err) != tga.ValidationError {
					t.Errorf("%+v: %v", bad, err)
				}
			}
			other := turn.Approve
			if !c.doubt {
				other = turn.Ran
			}
			if _, err := w.r.Settle(t.Context(), id, turn.Settlement{Who: "ann", Action: other, Note: note}); tga.CodeOf(err) != tga.StateInvalidTransition {
				t.Errorf("%s: %v", other, err)
			}
			if again, err := w.r.Resume(t.Context(), id); err != nil || again.Status != turn.Waiting {
				t.Fatalf("nothing is settled yet: %+v, %v", again, err)
			}

			s := turn.Settlement{Who: "ann", Action: c.action, Note: note}
			if c.result != "" {
				s.Result = json.RawMessage(c.result)
			}
			if _, err := w.r.Settle(t.Context(), id, s); err != nil {
				t.Fatal(err)
			}
			w.restart()
			end, err := w.r.Resume(t.Context(), id)
			if err != nil || end.Status != turn.Completed || end.Turns != 2 || len(end.Effects) != 3 {
				t.Fatalf("%+v, %v", end, err)
			}
			if e := end.Effects[1]; e.Status != c.status {
				t.Errorf("%+v", e)
			}
			if want := `tools said {"n":1}, ` + c.answer + `, {"n":2}`; end.Text != want {
				t.Errorf("answer %q, want %q", end.Text, want)
			}
			if got := w.read("n", "log"); string(got["n"]) != "2" || string(got["log"]) != `[{"x":1},{"x":2}]` {
				t.Errorf("state %s", got)
			}
			sends := 0
			for _, n := range w.out.sends {
				sends += n
			}
			if sends != c.sends+2 {
				t.Errorf("sent %v, want the call at issue %d times and the others once", w.out.sends, c.sends)
			}
			if _, err := w.r.Settle(t.Context(), id, s); tga.CodeOf(err) != tga.StateInvalidTransition {
				t.Errorf("settled twice: %v", err)
			}
		})
	}
}

// TestApprovedCallWorksOnTheTurnsState: it sees what its turn has done before it, although the
// turn is not resumed yet.
func TestApprovedCallWorksOnTheTurnsState(t *testing.T) {
	w := newWorld(t, func(w *world) { w.supervisor = asks("late") }, func(w *world) { w.tool("late", count) })
	res := w.run("call count {\"x\":1}\ncall late {\"x\":2}\ncall count {\"x\":3}")
	if res.Status != turn.Waiting || res.Waiting.Code != tga.EscalationRequired {
		t.Fatalf("%+v", res)
	}
	w.restart()
	got, err := w.r.Settle(t.Context(), res.InteractionID, turn.Settlement{Who: "ann", Action: turn.Approve, Note: note})
	if err != nil || string(got.Value) != `{"n":2}` {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := w.read("n"); got["n"] != nil {
		t.Errorf("n is %s before the turn has ended", got["n"])
	}
	w.restart()
	end, err := w.r.Resume(t.Context(), res.InteractionID)
	if err != nil || end.Text != `tools said {"n":1}, {"n":2}, {"n":3}` {
		t.Errorf("%+v, %v", end, err)
	}
	if got := w.read("n", "log"); string(got["n"]) != "3" || string(got["log"]) != `[{"x":1},{"x":2},{"x":3}]` {
		t.Errorf("state %s", got)
	}
}

// cutOff begins a turn and leaves it while its model is asked.
func (w *world) cutOff(id tga.ID) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	say := w.say
	w.say = func(turn.Question) (turn.Answer, error) {
		cancel()
		return turn.Answer{}, errors.New("cut off")
	}
	if _, err := w.r.Run(ctx, turn.Request{Agent: "helper", InteractionID: id, SessionID: "s", Message: []byte("done x")}); err == nil {
		w.t.Fatal("it has ended")
	}
	w.say = say
}

// TestAbandonedQuestionGoesToTheNextModel, and fails the turn if there is no other model: no
// person is asked about it a second time.
func TestAbandonedQuestionGoesToTheNextModel(t *testing.T) {
	for _, second := range []bool{true, false} {
		set := func(w *world) {
			w.options = func(o *turn.Options) { o.ModelLicence = &ledger.Licence{Kind: ledger.Park} }
			if second {
				w.agents[0].Model.Fallback = []turn.ModelRef{{Provider: "other", Model: "m2"}}
			}
		}
		w := newWorld(t, set)
		id := newID()
		w.cutOff(id)
		if res, err := w.r.Resume(t.Context(), id); err != nil || res.Status != turn.Waiting || res.Waiting.Code != tga.EffectInDoubt {
			t.Fatalf("%+v, %v", res, err)
		}
		if _, err := w.r.Settle(t.Context(), id, turn.Settlement{Who: "ann", Action: turn.GiveUp, Note: note}); err != nil {
			t.Fatal(err)
		}
		w.restart()
		res, err := w.r.Resume(t.Context(), id)
		switch {
		case err != nil:
			t.Error(err)
		case second && (res.Status != turn.Completed || res.Text != "x" || len(w.out.requests) != 2):
			t.Errorf("%+v, asked %v", res, w.out.requests)
		case !second && (res.Status != turn.Unsuccessful || res.Failure.Code != tga.LLMError || len(w.out.requests) != 1):
			t.Errorf("%+v, asked %v", res, w.out.requests)
		}
	}
}

// asks is a supervisor that wants a person to approve the calls of one tool.
type asks string

func (s asks) Decide(_ context.Context, request *tga.Artifact) (runtime.Verdict, error) {
	if request.Request.Proposal.ToolName == string(s) {
		return runtime.Verdict{Decision: tga.NeedsApproval, Rationale: "this tool needs a person"}, nil
	}
	return runtime.Verdict{Decision: tga.Approve, Rationale: "the others need none at all"}, nil
}
