package turn_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// further is a world in which "expert" can hand work on to "sage", through the tool "further", and
// "helper" has a failed delegation to "expert" tried again.
func further(w *world) {
	delegating(turn.Delegation{Type: turn.Supervisor, OnFailure: turn.Retry})(w)
	w.agents = append(w.agents, &turn.Agent{Name: "sage", Model: turn.ModelSpec{Provider: "local", Model: "sage"}})
	on := w.defs[len(w.defs)-1]
	on.Name, on.Delegation = "further", &turn.Delegation{Type: turn.Supervisor, Target: "sage", OnFailure: turn.Fallback}
	w.defs = append(w.defs, on)
	w.tool("broken", func(context.Context, string) (string, error) { return "", errors.New("no") })
	w.tool("garbled", func(context.Context, string) (string, error) { return "\xff", nil })
	w.fails["part"] = func(int) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassCompensatable, ErrorCode: "TOOL_ERROR", ErrorMessage: "half of it"}, nil
	}
	w.tool("part", nil)
}

// onceAfterTools makes the model of an agent fail the first time that it has the results of tools.
func onceAfterTools(agents ...string) func(*world) {
	return func(w *world) {
		failed := map[string]bool{}
		w.say = func(q turn.Question) (turn.Answer, error) {
			if q.Messages[len(q.Messages)-1].Role == message.Tool {
				for _, name := range agents {
					if q.Model == name && !failed[name] {
						failed[name] = true
						return turn.Answer{}, &turn.Failure{Code: tga.ContentFiltered, Message: "no"}
					}
				}
			}
			return obedient(q)
		}
	}
}

// TestDelegationIsNotTriedAgainWhateverHidesItsEffects: a call happened on behalf of a delegation
// that fails, and no record of the delegate shows it as a success. The delegation is not tried
// again, also if a person says so.
func TestDelegationIsNotTriedAgainWhateverHidesItsEffects(t *testing.T) {
	for name, c := range map[string]struct {
		text  string // for the expert
		fails []string
		abort bool // the expert's turn fails in EXEC, by the call of "broken"
	}{
		"the agent that it handed work on to has failed":         {`call further {"message":"call echo {}"}`, []string{"sage", "expert"}, false},
		"the agent that it handed work on to, and it fails soon": {`call further {"message":"call echo {}"}` + "\ncall broken {}", nil, true},
		"the answer is no text":                                  {`call garbled {}`, []string{"expert"}, false},
		"a part was done":                                        {`call part {}`, []string{"expert"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, further, onceAfterTools(c.fails...), func(w *world) {
				if c.abort {
					w.agents[1].Handlers = []turn.Handler{{Codes: []tga.Code{tga.ToolError}, Strategy: turn.Abort}}
				}
			})
			args, err := json.Marshal(map[string]string{"message": c.text})
			if err != nil {
				t.Fatal(err)
			}
			res := w.run("call ask " + string(args))
			sent := sum(w.out.effects)
			if res.Status != turn.Waiting || res.Waiting.Code != tga.DelegationFailed {
				t.Errorf("%d effects, %+v", sent, res)
			}
			if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry}); !errors.Is(err, tga.StateInvalidTransition) {
				t.Errorf("a person repeats it: %v", err)
			}
			w.restart()
			if res, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || res.Status != turn.Waiting || sum(w.out.effects) != sent {
				t.Errorf("after a restart: %d effects, %+v, %v", sum(w.out.effects), res, err)
			}
		})
	}
}

// TestDelegationThatDidNothingIsTriedAgain: neither a fallback value nor work handed on to an
// agent that called nothing is an effect.
func TestDelegationThatDidNothingIsTriedAgain(t *testing.T) {
	for _, text := range []string{`call further {"message":"done x"}`, "call broken {}"} {
		w := newWorld(t, further, onceAfterTools("expert"))
		args, err := json.Marshal(map[string]string{"message": text})
		if err != nil {
			t.Fatal(err)
		}
		if res := w.run("call ask " + string(args)); res.Status != turn.Completed {
			t.Errorf("%s: %+v", text, res)
		}
	}
}

// TestFailedTurnListsWhatItHandedOver: the result of a turn that fails names the agents that have
// done something for it, and each call has the times that were recorded.
func TestFailedTurnListsWhatItHandedOver(t *testing.T) {
	w := newWorld(t, further, onceAfterTools("sage"), func(w *world) {
		w.agents[0].Handlers = []turn.Handler{{Codes: []tga.Code{tga.ToolError}, Strategy: turn.Abort}}
	})
	res := w.run(`call ask {"message":"call echo {}"}` + "\n" + `call further {"message":"call echo {}"}` + "\ncall broken {}")
	if res.Status != turn.Unsuccessful || len(res.Effects) != 3 {
		t.Fatalf("%+v", res)
	}
	if e := res.Effects[0]; e.Name != "ask" || e.Status != turn.ToolSucceeded || e.Output != "tools said {}" {
		t.Errorf("%+v", e)
	}
	for _, e := range res.Effects {
		if e.Started.IsZero() || e.Ended.Before(e.Started) || e.DurationMS != e.Ended.Sub(e.Started).Milliseconds() {
			t.Errorf("%s: from %v to %v, %d ms", e.Name, e.Started, e.Ended, e.DurationMS)
		}
	}
	if e := res.Effects[1]; e.Name != "further" || e.Status != turn.ToolFailed || e.Failure.Code != tga.DelegationFailed {
		t.Errorf("%+v", e)
	}
}
