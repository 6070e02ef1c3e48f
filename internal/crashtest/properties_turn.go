package crashtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// TurnProperties must hold for every store with turns, before its recovery and after it.
var TurnProperties = []Property{
	{"T1", "a question is asked once by a process, after its record and before its answer", oneQuestion},
	{"T2", "a tool is called on the word of a durable answer, with its arguments", calledOnItsWord},
	{"T3", "journals are legal chains; recovered turns have ended or wait, as without a crash", turnsEnd},
	{"T4", "the state is what the durable PERSIST records say, and nothing of a parked turn", stateIsPersisted},
	{"T5", "no phase ends twice; the index has the turns that have not ended", phasesOnce},
	{"T6", "what was acknowledged of a turn survives, and what its caller was told", turnSurvives},
}

func oneQuestion(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	run, asked := 0, map[string]int{}
	for i, e := range h.events {
		switch e.Kind {
		case Opened:
			run++
		case Questioned:
			id, _, _, ok := keyParts(e.Key)
			if t := o.turns.Turns[id]; !ok || t == nil || !t.asked[e.Key] {
				report(e.Key, id, "a question was asked and has no record")
			}
			if asked[e.Key] == run {
				report(e.Key, id, "one process asked the question twice")
			}
			asked[e.Key] = run
			for _, end := range h.ended[toolKey{generate, e.Key}] {
				if end.at < i {
					report(e.Key, id, "the question was asked when its answer was durable")
				}
			}
		}
	}
}

func calledOnItsWord(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for k, sends := range h.sends {
		id, what, index, ok := keyParts(k.key)
		n, err := strconv.Atoi(index)
		if !ok || what != "tool" || err != nil {
			continue
		}
		t := o.turns.Turns[id]
		if t == nil || n >= len(t.calls) {
			report(k.key, id, "%s was called and no durable answer asks for that", k.tool)
			continue
		}
		want := t.calls[n]
		for _, s := range sends {
			name := s.Call.Tool
			if s.Call.Server != Allowed {
				name = s.Call.Server + "/" + name
			}
			if name != want.Name || string(s.Call.Args) != want.Args {
				report(k.key, s.Trace, "sent was %s(%s), the model asked for %s(%s)", name, s.Call.Args, want.Name, want.Args)
			}
		}
	}
}

func turnsEnd(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for id, t := range o.turns.Turns {
		switch {
		case t.Err != nil:
			report("", id, "the turn's journal: %v", t.Err)
			continue
		case t.next != nil && o.turns.Turns[*t.next] == nil:
			report("", id, "turn %s follows and is not there", *t.next)
		}
		if what := illegalTurn(id, t.Records); what != "" {
			report("", id, "%s", what)
		}
		if o.Recovered && !t.ended && !t.waits {
			report("", id, "recovery left the turn where it was")
		}
	}
	apart := h.refusedLater()
	for _, e := range h.events {
		if e.Kind == Settled {
			apart[e.Trace] = true
		}
	}
	if want := o.turns.Wanted; want != nil {
		endsAsWithout(want, o, apart, report)
	}
}

// refusedLater returns the turns with a second attempt of a call to a busy tool. What the tool answers to it says nothing about the
// first attempt, which a crash has cut off. So the call stays in doubt, and the turn does not try again as it does without a crash.
func (h *history) refusedLater() map[tga.ID]bool {
	turns := map[tga.ID]bool{}
	for k, sends := range h.sends {
		id, _, _, ok := keyParts(k.key)
		if _, behaviour := licenceOf(k.tool); !ok || behaviour != Busy {
			continue
		}
		for _, s := range sends {
			if s.Call.Attempt > 1 {
				turns[id] = true
			}
		}
	}
	return turns
}

// endsAsWithout compares with a run of the same scenario without a crash. If a person
// settled a call of an invocation, or it is apart for another reason, the invocation and its session's state may end
// differently, and are not compared.
func endsAsWithout(want *Ends, o *Observed, apart map[tga.ID]bool, report func(string, tga.ID, string, ...any)) {
	other := map[string]bool{}
	for id, text := range want.Outcomes {
		got, ended := o.turns.Outcomes[id]
		t := o.turns.Turns[id]
		if apart[id] || !ended {
			if t != nil {
				other[t.Scope] = true
			}
			if o.turns.Finished && !ended {
				report("", id, "its caller asked to the end and has no answer; without a crash it is %q", text)
			}
			continue
		}
		if got != text {
			report("", id, "it ended as %q, without a crash as %q", got, text)
		}
	}
	if !o.turns.Finished {
		return
	}
	for scope, values := range want.States {
		got := o.turns.States[scope]
		if !other[scope] && !sameState(got, values) {
			report("", tga.ID{}, "the state of %q is %s, without a crash %s", scope, jsonOf(got), jsonOf(values))
		}
	}
}

func sameState(a, b map[string]json.RawMessage) bool {
	return len(a) == len(b) && !slices.ContainsFunc(slices.Collect(maps.Keys(a)), func(key string) bool { return !sameValue(key, a[key], b[key]) })
}

func jsonOf(values map[string]json.RawMessage) string {
	b, err := json.Marshal(values)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// phaseOrder is the order of OSSA 0.2.9 §1.
var phaseOrder = []turn.Phase{turn.Init, turn.Normalize, turn.Resolve, turn.Infer, turn.Execute, turn.Persist, turn.Emit}

// illegalTurn checks a journal without the fold of package turn: digests, links, numbers, the
// order of phases, and that records that are committed together are there together.
func illegalTurn(id tga.ID, records []turn.Record) string {
	var prev tga.Digest
	next, failed, waits, ended := 0, false, false, false
	for i, r := range records {
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Sprintf("record %d: %v", i+1, err)
		}
		text, err := tga.Canonicalize(raw, tga.Limits{MaxBytes: 1 << 20})
		if err != nil {
			return fmt.Sprintf("record %d: %v", i+1, err)
		}
		expected := turn.Emit
		if !failed && next < len(phaseOrder) {
			expected = phaseOrder[next]
		}
		switch {
		case r.InteractionID != id || r.Number != uint64(i+1):
			return fmt.Sprintf("record %d is record %d of turn %s", i+1, r.Number, r.InteractionID)
		case r.Prev != prev:
			return fmt.Sprintf("record %d follows %s, the one before is %s", i+1, r.Prev, prev)
		case r.Digest != tga.Sum(text):
			return fmt.Sprintf("record %d has another digest than its bytes", i+1)
		case ended:
			return fmt.Sprintf("record %d follows the end", i+1)
		case r.Kind == turn.Done && r.Phase != expected:
			return fmt.Sprintf("record %d: %s is done where %s follows", i+1, r.Phase, expected)
		case failed && r.Kind != turn.Done:
			return fmt.Sprintf("record %d: %s after a failure", i+1, r.Kind)
		case r.Kind == turn.Asked && expected != turn.Infer:
			return fmt.Sprintf("record %d: a question before %s", i+1, expected)
		case r.Kind == turn.Decided && !waits:
			return fmt.Sprintf("record %d decides what did not wait", i+1)
		}
		switch r.Kind {
		case turn.Done:
			next++
			ended = r.Phase == turn.Emit
		case turn.Failed:
			failed = true
		}
		if r.Kind != turn.Asked {
			waits = r.Kind == turn.Parked
		}
		prev = r.Digest
	}
	if n := len(records); n > 0 && records[n-1].Kind == turn.Done {
		switch p := records[n-1].Phase; p {
		case turn.Init, turn.Resolve, turn.Execute:
			return fmt.Sprintf("it stops after %s, which is committed with what follows", p)
		}
	}
	return ""
}

// stateIsPersisted folds the durable changes of each scope, in the order of its turns.
func stateIsPersisted(_ *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	byScope := map[string][]tga.ID{}
	for id, t := range o.turns.Turns {
		if t.Err == nil && !t.Lent {
			byScope[t.Scope] = append(byScope[t.Scope], id)
		}
	}
	for scope, ids := range byScope {
		slices.SortFunc(ids, func(a, b tga.ID) int { return int(o.turns.Turns[a].Number) - int(o.turns.Turns[b].Number) })
		want := map[string]json.RawMessage{}
		for _, id := range ids {
			for _, c := range o.turns.Turns[id].change {
				if !sameJSON(c.Previous, want[c.Key]) {
					report("", id, "it found %s in %q, and %s was persisted before", c.Previous, c.Key, want[c.Key])
				}
				if want[c.Key] = c.New; c.New == nil || string(c.New) == "null" {
					delete(want, c.Key)
				}
			}
		}
		got := o.turns.States[scope]
		if !maps.EqualFunc(got, want, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			report("", tga.ID{}, "the state of %q is %s, its turns persisted %s", scope, jsonOf(got), jsonOf(want))
		}
		if what := sumIsOfLog(got); what != "" {
			report("", tga.ID{}, "the state of %q: %s", scope, what)
		}
	}
}

// sameJSON compares a previous value, where null is absent.
func sameJSON(previous, stored json.RawMessage) bool {
	if len(previous) == 0 || string(previous) == "null" {
		return stored == nil
	}
	return string(previous) == string(stored)
}

// sumIsOfLog compares the two keys that one call changes: the sum must be that of the log.
func sumIsOfLog(values map[string]json.RawMessage) string {
	var sum, total int
	var log []int
	for key, to := range map[string]any{"sum": &sum, "log": &log} {
		if raw := values[key]; raw != nil {
			if err := json.Unmarshal(raw, to); err != nil {
				return err.Error()
			}
		}
	}
	for _, n := range log {
		total += n
	}
	if total != sum {
		return fmt.Sprintf("the sum is %d, what was added is %d", sum, total)
	}
	return ""
}

func phasesOnce(_ *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	open := map[tga.ID]bool{}
	for _, t := range o.turns.Open {
		open[t.InteractionID] = true
	}
	for id, t := range o.turns.Turns {
		done := map[turn.Phase]bool{}
		for _, r := range t.Records {
			if r.Kind != turn.Done {
				continue
			}
			if done[r.Phase] {
				report("", id, "phase %s ended twice", r.Phase)
			}
			done[r.Phase] = true
		}
		if t.Err == nil && open[id] == t.ended {
			report("", id, "the turn has ended: %v, in the index of open turns: %v", t.ended, open[id])
		}
		delete(open, id)
	}
	for id := range open {
		report("", id, "the index names a turn that is not there")
	}
}

func turnSurvives(h *history, o *Observed, report func(string, tga.ID, string, ...any)) {
	for _, e := range h.events {
		switch e.Kind {
		case Told:
			if got, ended := o.turns.Outcomes[e.Trace]; !ended || got != string(e.Value) {
				report("", e.Trace, "its caller was told %q, and it is %q", e.Value, got)
			}
		case Kept:
			for _, id := range recordsOf(e) {
				t := o.turns.Turns[id.turn]
				if t == nil || t.Err == nil && (id.number > uint64(len(t.Records)) || t.Records[id.number-1].Digest != id.digest) {
					report("", id.turn, "record %d was acknowledged and is gone or another", id.number)
				}
			}
		}
	}
}
