package crashtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCrashInATurn crashes conversations with agents before operations, questions and
// calls, and inside recovery.
func TestCrashInATurn(t *testing.T) {
	every := sparse(41) // the tier "turn" tests the others
	for _, licence := range []string{"park", "dedupe_args"} {
		t.Run(licence, func(t *testing.T) {
			r := &Run{Seed: 1, SaveDir: t.TempDir()}
			for _, p := range turnParts {
				r.Explore(turnScenario(p.name, p.from, p.to, licence), 1, []int{0, 100}, every, Thoroughness{Depth: 2, Nested: 97, Again: 8, Retry: 3})
			}
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			if r.Counts.Recoveries == 0 || r.Counts.DoubleCrashes == 0 {
				t.Errorf("%d recoveries, %d of them double", r.Counts.Recoveries, r.Counts.DoubleCrashes)
			}
		})
	}
}

// talked returns the journal and the store of a conversation of these steps.
func talked(t *testing.T, licence string, steps ...int) ([]Event, *Observed) {
	t.Helper()
	w := NewWorld(3)
	p, err := w.Start(Config{Turns: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.DB.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, i := range steps {
		TurnSteps(licence)[i].Do(p, fmt.Sprintf("s-%d", i))
	}
	if p.undisturbed, err = p.ends(); err != nil {
		t.Fatal(err)
	}
	o := p.Observe()
	o.Recovered, o.turns.Finished = true, true
	if bad := Judge(w.Journal(), o); len(bad) > 0 {
		t.Fatal(bad)
	}
	return w.Journal(), o
}

// TestConversationsComeToTheirEnds: crashing a step that fails at once would test nothing.
func TestConversationsComeToTheirEnds(t *testing.T) {
	lost := map[string]string{"park": "EFFECT_IN_DOUBT: the server's books do not have it"}
	for _, licence := range turnLicences {
		_, o := talked(t, licence, 0, 1, 2, 3, 4, 5, 6, 7, 8)
		for step, want := range []string{
			`{"amount":3}`,
			`{"amount":4}, {"amount":5}, {"amount":6}, {"amount":7}`,
			`{"amount":8}, tools said {"amount":9}, {"amount":10}`,
			`{"amount":11}, TOOL_ERROR: insufficient funds, POLICY_VIOLATION: call denied: rule for server denied, tool any, risk any, {"amount":14}`,
			`{"amount":15}, {"amount":16}, {"amount":17}`,
			`{"amount":19}`,
			`{"amount":20}, {"amount":21}, {"amount":22}`,
			firstOf(lost[licence], `{"amount":23}`) + `, {"amount":24}`,
		} {
			if got := o.turns.Outcomes[turnID(fmt.Sprintf("s-%d", step))]; got != "completed: tools said "+want {
				t.Errorf("%s, %s: %q", licence, TurnSteps(licence)[step].Name, got)
			}
		}
		if got := string(o.turns.States["clerk\x00s"]["sum"]); got != "147" {
			t.Errorf("%s: the sum is %s", licence, got)
		}
		if n := len(o.turns.Open); n != 1 {
			t.Errorf("%s: %d turns are open, one is left waiting", licence, n)
		}
	}
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// TestTurnPropertiesFindWhatTheyName makes a sound journal or store wrong in one way each. At least the
// property of that name must report it.
func TestTurnPropertiesFindWhatTheyName(t *testing.T) {
	first := turnID("s-0")
	waiting := turnID("s-8")
	find := func(events []Event, kind EventKind) Event {
		return events[slices.IndexFunc(events, func(e Event) bool { return e.Kind == kind })]
	}
	calls := func(o *Observed) *SeenTurn {
		for _, s := range o.turns.Turns {
			if len(s.calls) > 1 && s.ended {
				return s
			}
		}
		return nil
	}
	for _, c := range []struct {
		property, name string
		lie            func(e []Event, o *Observed) []Event
	}{
		{"T1", "asked twice", func(e []Event, _ *Observed) []Event { return append(e, find(e, Questioned)) }},
		{"T1", "asked after its answer", func(e []Event, _ *Observed) []Event {
			return append(e, Event{Kind: Opened}, find(e, Questioned))
		}},
		{"T1", "asked without a record", func(e []Event, o *Observed) []Event { clear(o.turns.Turns[first].asked); return e }},
		{"T2", "nobody asked for the call", func(e []Event, o *Observed) []Event { calls(o).calls = nil; return e }},
		{"T2", "other arguments", func(e []Event, o *Observed) []Event { calls(o).calls[0].Args = `{"amount":99}`; return e }},
		{"S1", "a call sent twice", func(e []Event, _ *Observed) []Event { return append(e, find(e, Sent)) }},
		{"S2", "two effects", func(e []Event, _ *Observed) []Event { return append(e, find(e, Acted)) }},
		{"T3", "a record with another text", func(e []Event, o *Observed) []Event {
			o.turns.Turns[first].Records[2].Body = json.RawMessage(`{}`)
			return e
		}},
		{"T3", "a record is missing", func(e []Event, o *Observed) []Event {
			s := o.turns.Turns[first]
			s.Records = slices.Delete(s.Records, 2, 3)
			return e
		}},
		{"T3", "half a batch", func(e []Event, o *Observed) []Event {
			s := o.turns.Turns[first]
			s.Records = s.Records[:slices.IndexFunc(s.Records, func(r turn.Record) bool { return r.Phase == turn.Execute && r.Kind == turn.Done })+1]
			return e
		}},
		{"T3", "the turn that follows is missing", func(e []Event, o *Observed) []Event {
			delete(o.turns.Turns, *o.turns.Turns[first].next)
			return e
		}},
		{"T3", "left where it was", func(e []Event, o *Observed) []Event { o.turns.Turns[waiting].waits = false; return e }},
		{"T3", "another end", func(e []Event, o *Observed) []Event { o.turns.Outcomes[first] = "failed: "; return e }},
		{"T3", "no end", func(e []Event, o *Observed) []Event { delete(o.turns.Outcomes, first); return e }},
		{"T3", "another state", func(e []Event, o *Observed) []Event {
			o.turns.States["clerk\x00s"] = map[string]json.RawMessage{}
			return e
		}},
		{"T4", "a value that no turn persisted", func(e []Event, o *Observed) []Event {
			o.turns.States["clerk\x00s"]["sum"] = json.RawMessage("29")
			return e
		}},
		{"T4", "a change over another value", func(e []Event, o *Observed) []Event {
			o.turns.Turns[first].change[0].Previous = json.RawMessage("7")
			return e
		}},
		{"T5", "a phase ended twice", func(e []Event, o *Observed) []Event {
			s := o.turns.Turns[first]
			s.Records = append(s.Records, s.Records[len(s.Records)-1])
			return e
		}},
		{"T5", "an open turn is not in the index", func(e []Event, o *Observed) []Event { o.turns.Open = nil; return e }},
		{"T5", "an ended turn is in the index", func(e []Event, o *Observed) []Event {
			o.turns.Open = append(o.turns.Open, turn.OpenTurn{InteractionID: first})
			return e
		}},
		{"T5", "the index names nothing", func(e []Event, o *Observed) []Event {
			o.turns.Open = append(o.turns.Open, turn.OpenTurn{InteractionID: idOf("nobody")})
			return e
		}},
		{"T6", "another answer than told", func(e []Event, o *Observed) []Event {
			i := slices.IndexFunc(e, func(x Event) bool { return x.Kind == Told })
			e[i].Value = []byte("completed: nothing")
			return e
		}},
		{"T6", "an acknowledged record is gone", func(e []Event, o *Observed) []Event {
			s := o.turns.Turns[waiting]
			s.Records = s.Records[:len(s.Records)-1]
			return e
		}},
		{"T6", "an acknowledged record is another", func(e []Event, o *Observed) []Event {
			o.turns.Turns[waiting].Records[1].Digest = tga.Sum(nil)
			return e
		}},
		{"T6", "an acknowledged turn is gone", func(e []Event, o *Observed) []Event { delete(o.turns.Turns, waiting); return e }},
	} {
		t.Run(c.property+" "+c.name, func(t *testing.T) {
			events, o := talked(t, "park", 0, 8)
			events = c.lie(slices.Clone(events), o)
			if bad := Judge(events, o); !slices.ContainsFunc(bad, func(v Violation) bool { return v.Property == c.property }) {
				t.Errorf("%s does not find it: %v", c.property, bad)
			}
		})
	}
}

// TestSecondRecoveryOfTurnsIsCompared: a change of turns or of their state is found.
func TestSecondRecoveryOfTurnsIsCompared(t *testing.T) {
	for name, change := range map[string]func(*turnsSeen){
		"a turn more":    func(s *turnsSeen) { s.Turns[idOf("more")] = &SeenTurn{} },
		"a record less":  func(s *turnsSeen) { s.Turns[turnID("s-0")].Records = nil },
		"another record": func(s *turnsSeen) { s.Turns[turnID("s-0")].Records[0].Digest = tga.Digest{} },
		"another state":  func(s *turnsSeen) { delete(s.States["clerk\x00s"], "sum") },
	} {
		_, a := talked(t, "park", 0)
		_, b := talked(t, "park", 0)
		if bad := sameLog(a, b); len(bad) > 0 {
			t.Fatal(bad)
		}
		change(b.turns)
		if len(sameLog(a, b)) == 0 {
			t.Errorf("%s is not seen", name)
		}
	}
}

// TestTurnsThatAreNotCompared: only a turn of which a busy tool got a second attempt may end otherwise than without a crash.
func TestTurnsThatAreNotCompared(t *testing.T) {
	sent := func(n byte, behaviour string, attempt uint32) Event {
		id := tga.ID{0: n, 6: 0x70, 8: 0x80}
		tool := "read_only." + behaviour
		return Event{Kind: Sent, Tool: tool, Key: "turn/" + id.String() + "/tool/0", Call: runtime.Call{Tool: tool, Attempt: attempt}}
	}
	again := sent(1, Busy, 2)
	again.Key = "k" // of no turn
	h := historyOf([]Event{sent(1, Busy, 1), sent(1, Busy, 1), sent(2, Answers, 2), sent(3, Busy, 1), sent(3, Busy, 2), again})
	if got := h.refusedLater(); len(got) != 1 || !got[tga.ID{0: 3, 6: 0x70, 8: 0x80}] {
		t.Errorf("not compared: %v", got)
	}
}
