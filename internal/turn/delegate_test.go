package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// delegating is a world in which "helper" delegates to "expert" through the tool "ask".
func delegating(d turn.Delegation) func(*world) {
	return func(w *world) {
		d.Target = "expert"
		w.agents = append(w.agents, &turn.Agent{Name: "expert", Role: "You know.", Model: turn.ModelSpec{Provider: "local", Model: "expert"}})
		w.defs = append(w.defs, turn.Tool{
			Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`), Delegation: &d,
			Source: turn.ToolSource{Type: turn.FromDelegation, AgentID: "expert"},
		})
	}
}

// TestDelegation: an answer that returns to the agent, and an answer that replaces the agent's
// (OSSA 0.2.9 §5).
func TestDelegation(t *testing.T) {
	for _, c := range []struct {
		kind  turn.DelegationType
		text  string
		turns int
	}{
		{turn.Supervisor, "tools said tools said {\"n\":1}", 2},
		{turn.Handoff, "tools said {\"n\":1}", 1},
	} {
		w := newWorld(t, delegating(turn.Delegation{Type: c.kind}))
		res := w.run(`call ask {"message":"call count {}"}`)
		if res.Status != turn.Completed || res.Text != c.text || res.Turns != c.turns {
			t.Errorf("%s: %+v", c.kind, res)
		}
		if res.SessionID != "s" {
			t.Errorf("session %q", res.SessionID)
		}
	}
}

// TestContextGoesWithTheDelegation: which context is propagated, and which is not.
func TestContextGoesWithTheDelegation(t *testing.T) {
	for _, c := range []struct {
		d    turn.Delegation
		want string
	}{
		{turn.Delegation{Type: turn.Supervisor}, "user:hi"},
		{turn.Delegation{Type: turn.Supervisor, WithHistory: true}, `user:done before|assistant:before|user:call ask {"message":"hi"}|user:hi`},
		{turn.Delegation{Type: turn.Supervisor, Context: map[string]json.RawMessage{"tenant": json.RawMessage(`"acme"`)}}, `user:hi|system:Context: {"tenant":"acme"}`},
	} {
		w := newWorld(t, delegating(c.d))
		var got []string
		w.say = func(q turn.Question) (turn.Answer, error) {
			if q.Model == "expert" {
				for _, m := range q.Messages {
					got = append(got, string(m.Role)+":"+m.Plain())
				}
				return turn.Answer{Said: message.TextMessage(message.Assistant, "yes", message.FromModel, 0), Finish: turn.FinishStop}, nil
			}
			return obedient(q)
		}
		w.run("done before")
		w.run(`call ask {"message":"hi"}`)
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("got %q, want %q", s, c.want)
		}
	}
}

// TestArgumentsOfADelegationAreHandedOver: the other agent reads all that the model gave.
func TestArgumentsOfADelegationAreHandedOver(t *testing.T) {
	for args, want := range map[string]string{
		`{"message":"hi"}`:                            "hi",
		`{"message":"hi","context":{"order":7}}`:      "hi\n\n" + `{"context":{"order":7}}`,
		`{"message":"hi","urgent":true,"context":{}}`: "hi\n\n" + `{"context":{},"urgent":true}`,
		`{"message":"","context":{"order":7}}`:        `{"context":{"order":7},"message":""}`,
		`{"message":7}`:                               `{"message":7}`,
		`{"task":"hi"}`:                               `{"task":"hi"}`,
	} {
		w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}))
		var got string
		w.say = func(q turn.Question) (turn.Answer, error) {
			if q.Model == "expert" {
				got = q.Messages[len(q.Messages)-1].Plain()
				return turn.Answer{Said: message.TextMessage(message.Assistant, "yes", message.FromModel, 0), Finish: turn.FinishStop}, nil
			}
			return obedient(q)
		}
		if w.run("call ask " + args); got != want {
			t.Errorf("%s: the other agent reads %q, want %q", args, got, want)
		}
	}
}

// TestDelegateWhoseManifestIsNotLoaded: a delegation that has begun does not fail because the
// process has no manifest of the other agent. The turn stays as it is until a process has it.
func TestDelegateWhoseManifestIsNotLoaded(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}), func(w *world) { w.supervisor = asks("echo") })
	res := w.run(`call ask {"message":"call echo {}"}`)
	all := w.agents
	w.agents = all[:1]
	w.restart()
	if res, err := w.r.Resume(t.Context(), res.InteractionID); !errors.Is(err, tga.NotFound) {
		t.Errorf("%+v, %v", res, err)
	}
	w.agents = all
	w.restart()
	if err := approvals["settle"](w, res.Waiting); err != nil {
		t.Fatal(err)
	}
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Status != turn.Completed || end.Text != "tools said tools said {}" {
		t.Errorf("%+v, %v", end, err)
	}
}

// TestLentStateIsTheLendersOwn: the delegate's changes commit with the lender's turn, and are
// undone if the delegate fails.
func TestLentStateIsTheLendersOwn(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor, WithState: true, OnFailure: turn.Fallback}))
	w.run("call count {\"a\":1}\ncall ask {\"message\":\"call count {}\"}\ncall count {\"b\":1}")
	if got := w.read("n"); string(got["n"]) != "3" {
		t.Errorf("state %s", got)
	}
	w.say = func(q turn.Question) (turn.Answer, error) {
		if last := q.Messages[len(q.Messages)-1]; q.Model == "expert" && last.Role == message.Tool {
			return turn.Answer{}, &turn.Failure{Code: tga.ValidationError, Message: "no"}
		}
		return obedient(q)
	}
	res := w.run("call count {\"a\":1}\ncall ask {\"message\":\"call count {}\"}\ncall count {\"b\":1}")
	if res.Status != turn.Completed {
		t.Fatalf("%+v", res)
	}
	if got := w.read("n"); string(got["n"]) != "5" {
		t.Errorf("state %s, want two more: the other's is rolled back", got)
	}
}

// TestFailedDelegationIsNotTriedAgainWhenItsEffectsStand.
func TestFailedDelegationIsNotTriedAgainWhenItsEffectsStand(t *testing.T) {
	for _, c := range []struct {
		text   string
		status turn.Status
	}{{"done x", turn.Completed}, {"call echo {}", turn.Waiting}} {
		w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor, OnFailure: turn.Retry}))
		n := 0
		w.say = func(q turn.Question) (turn.Answer, error) {
			if last := q.Messages[len(q.Messages)-1]; q.Model == "expert" && (last.Role == message.Tool || c.text == "done x") {
				if n++; n == 1 {
					return turn.Answer{}, &turn.Failure{Code: tga.ContentFiltered, Message: "no"}
				}
			}
			return obedient(q)
		}
		args, err := json.Marshal(map[string]string{"message": c.text})
		if err != nil {
			t.Fatal(err)
		}
		res := w.run("call ask " + string(args))
		if res.Status != c.status || c.status == turn.Waiting && (res.Waiting.Code != tga.DelegationFailed || n != 1) {
			t.Errorf("%s: %+v", c.text, res)
		}
	}
}

// TestDelegatedAgentThatWaits: the person is told of the delegate's turn, and both turns go on.
func TestDelegatedAgentThatWaits(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}))
	w.agents[1].Handlers = []turn.Handler{{Codes: []tga.Code{tga.ToolError}, Strategy: turn.Escalate, Target: "ops"}}
	w.tool("broken", func(context.Context, string) (string, error) { return "", errors.New("no") })
	res := w.run(`call ask {"message":"call broken {}"}`)
	if res.Status != turn.Waiting || res.Waiting.InteractionID == res.InteractionID || res.Waiting.Target != "ops" {
		t.Fatalf("%+v, %+v", res, res.Waiting)
	}
	w.restart()
	if err := w.r.Decide(t.Context(), res.Waiting.InteractionID, turn.Decision{Who: "ann", Action: turn.Fallback, Value: json.RawMessage(`"fixed"`)}); err != nil {
		t.Fatal(err)
	}
	all, err := w.r.Recover(t.Context())
	if err != nil || len(all) != 1 || all[0].Status != turn.Completed || all[0].Text != "tools said tools said fixed" {
		t.Fatalf("%+v, %v", all, err)
	}
}

// TestCrashAnywhereInADelegation: as for a turn of one agent, with state that is lent.
func TestCrashAnywhereInADelegation(t *testing.T) {
	serial.Test(t)
	const text = "call count {\"x\":1}\ncall ask {\"message\":\"call count {}\"}\ncall count {\"x\":3}"
	set := delegating(turn.Delegation{Type: turn.Supervisor, WithState: true})
	images := crashImages(t, text, set)
	for _, c := range images {
		w := newWorld(t, set, func(w *world) { w.disk, w.out = c.disk, c.out })
		if res := w.goOn(c.id, c.where, text); res.Status != turn.Completed || res.Text != `tools said {"n":1}, tools said {"n":2}, {"n":3}` {
			t.Errorf("%s: %+v", c.where, res)
		}
		if got := w.read("n"); string(got["n"]) != "3" {
			t.Errorf("%s: state %s", c.where, got)
		}
		if len(w.out.requests) != 4 || len(w.out.effects) != 3 {
			t.Errorf("%s: %d questions, %d effects", c.where, len(w.out.requests), len(w.out.effects))
		}
		w.stop()
	}
	t.Logf("%d crash images", len(images))
}

// TestWorkForATurnThatIsOverEnds: nothing more is done on behalf of a turn that is over.
func TestWorkForATurnThatIsOverEnds(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}))
	w.agents[1].Handlers = []turn.Handler{{Codes: []tga.Code{tga.ToolError}, Strategy: turn.Escalate}}
	w.tool("broken", func(context.Context, string) (string, error) { return "", errors.New("no") })
	res := w.run(`call ask {"message":"call broken {}"}`)
	if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Abort}); err != nil {
		t.Fatal(err)
	}
	if end, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || end.Status != turn.Unsuccessful {
		t.Fatalf("%+v, %v", end, err)
	}
	asked := sum(w.out.requests)
	if _, err := w.r.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	child, err := w.r.Resume(t.Context(), res.Waiting.InteractionID)
	if err != nil || child.Status != turn.Unsuccessful || child.Failure.Code != tga.DelegationFailed || sum(w.out.requests) != asked {
		t.Errorf("%+v, %v", child, err)
	}
	if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}

// TestParallelDelegation: several agents at once, each with a conversation of its own.
func TestParallelDelegation(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Parallel, NoSession: true}))
	var mu sync.Mutex
	inside := 0
	both := make(chan struct{})
	w.tool("meet", func(context.Context, string) (string, error) {
		mu.Lock()
		if inside++; inside == 2 {
			close(both)
		}
		mu.Unlock()
		<-both
		return "{}", nil
	})
	res := w.run("call ask {\"message\":\"call meet {}\"}\ncall ask {\"message\":\"call meet {}\"}")
	if res.Status != turn.Completed || res.Text != "tools said tools said {}, tools said {}" {
		t.Errorf("%+v", res)
	}
	if len(w.out.effects) != 2 {
		t.Errorf("%d effects", len(w.out.effects))
	}
}

// TestDelegationHasATime: the delegate's turn ends when the time of the delegation is over, and
// the delegating turn is told.
func TestDelegationHasATime(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor, Timeout: time.Second, OnFailure: turn.Fallback}))
	w.defs[len(w.defs)-1].Fallback = json.RawMessage(`"nobody knows"`)
	w.licence = ledger.Park
	w.tool("slow", nil)
	w.slow = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	res := w.run(`call ask {"message":"call slow {}"}`)
	if res.Status != turn.Completed || res.Text != "tools said nobody knows" {
		t.Errorf("%+v", res)
	}
	if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}

// TestAgentsThatAreLentTheStateComeOneAfterTheOther, even if their delegation is parallel: each
// sees the changes of those before it, and one that fails undoes only its own changes.
func TestAgentsThatAreLentTheStateComeOneAfterTheOther(t *testing.T) {
	w := newWorld(t, delegating(turn.Delegation{Type: turn.Parallel, WithState: true, OnFailure: turn.Fallback}))
	w.defs[len(w.defs)-1].Fallback = json.RawMessage(`"failed"`)
	var inside atomic.Int32
	w.tool("alone", func(ctx context.Context, args string) (string, error) {
		defer inside.Add(-1)
		if inside.Add(1) > 1 {
			t.Error("two are at the state at once")
		}
		return count(ctx, args)
	})
	w.say = func(q turn.Question) (turn.Answer, error) {
		if last := q.Messages[len(q.Messages)-1]; q.Model == "expert" && last.Plain() == `{"n":2}` && strings.Contains(q.Messages[len(q.Messages)-3].Plain(), "bad") {
			return turn.Answer{}, &turn.Failure{Code: tga.ValidationError, Message: "no"}
		}
		return obedient(q)
	}
	res := w.run("call ask {\"message\":\"call alone {\\\"x\\\":1}\"}\ncall ask {\"message\":\"call alone {\\\"why\\\":\\\"it goes bad\\\"}\"}\ncall ask {\"message\":\"call alone {\\\"x\\\":3}\"}")
	if res.Status != turn.Completed || res.Text != `tools said tools said {"n":1}, failed, tools said {"n":1}, {"n":2}, {"n":2}` { // the second is of the work that failed
		t.Errorf("%+v", res)
	}
	if got := w.read("n", "log"); string(got["n"]) != "2" || string(got["log"]) != `[{"x":1},{"x":3}]` {
		t.Errorf("state %s", got)
	}
}

// TestStateIsLentWhereItCanBeTakenBack: a manifest may lend state in every pattern, except at a
// level that cannot undo changes.
func TestStateIsLentWhereItCanBeTakenBack(t *testing.T) {
	for _, kind := range []turn.DelegationType{turn.Handoff, turn.Parallel, turn.Supervisor} {
		for level, code := range map[state.Isolation]tga.Code{"": "", state.ReadCommitted: "", state.ReadUncommitted: tga.ValidationError} {
			w := newWorld(t)
			a := *w.agents[0]
			a.State.Isolation = level
			a.Tools = []turn.ToolSpec{{Name: "ask", Delegation: &turn.Delegation{Type: kind, Target: "expert", WithState: true}}}
			_, err := turn.New(w.db, runtime.DispatcherFunc(w.dispatch), w.supervisor, turn.Options{Agents: []*turn.Agent{&a}, Models: map[string]turn.Model{"local": w}})
			if tga.CodeOf(err) != code {
				t.Errorf("%s under %q: %v", kind, level, err)
			}
		}
	}
}
