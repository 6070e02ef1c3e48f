package interleave

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// outcome is what can be seen of an end: what the logs and the ledger hold, what everybody was
// told and what happened at the tool; without names and times, and in an order of its own.
func (w *world) outcome() string {
	traces := map[tga.ID]bool{}
	for _, a := range w.minted {
		traces[a.TraceID] = true
	}
	var list []string
	for id := range traces {
		t, err := w.store.Load(context.Background(), id)
		if err != nil {
			panic(err)
		}
		line := fmt.Sprintf("a trace of actor %d:", id[14])
		for _, e := range t.Entries {
			line += fmt.Sprint(" ", e.Type)
		}
		for _, n := range t.Notes {
			line += fmt.Sprint(" ", n.Kind)
		}
		line += fmt.Sprint(", ", t.Head.State)
		if t.Effect != nil {
			by, _, ended := runtime.EndedBy(t)
			line += fmt.Sprint(", ", ledger.ClassOf(t.Effect), " by ", by, ended)
		}
		if t.Call != nil {
			r, err := w.store.Record(context.Background(), ledger.KeyOf(t.Namespace, t.Call))
			if err != nil || r == nil {
				panic(fmt.Sprint("no record: ", err))
			}
			line += fmt.Sprint(", ", r.Status, " ", r.TraceID == id, " ", r.Attempts.Count)
		}
		list = append(list, line)
	}
	for _, a := range w.answers {
		list = append(list, fmt.Sprint("told: ", a.state, " ", a.value))
	}
	for key, n := range w.net.effects {
		list = append(list, fmt.Sprint("at the tool: ", w.net.args[key], " ", n))
	}
	for trace, what := range w.shown {
		list = append(list, fmt.Sprintf("shown: %s of actor %d, noted %q", what, trace[14], w.isNoted[trace]))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// TestReductionsSpareNoOutcome: an exploration with the reductions of reduce_test.go comes to the
// same outcomes as one without, and has fewer states.
func TestReductionsSpareNoOutcome(t *testing.T) {
	for _, s := range []scenario{
		{Name: "callers and a crash", Actors: []script{caller("A", "k", one, 1), caller("B", "k", one, 1)}, bounds: bounds{Crashes: 1}},
		{Name: "two requests", Actors: []script{caller("A", "k", one, 1), caller("B", "k", other, 1)}, bounds: bounds{Crashes: 1, Resets: 1}},
		{Name: "a caller twice", Actors: []script{caller("A", "k", one, 2)}, bounds: bounds{Resets: 1, Refusals: 1}},
		{Name: "a caller and a clock that jumps", Actors: []script{caller("A", "k", one, 1)}, bounds: bounds{Crashes: 1, Ticks: 1}},
		{Name: "an executor", Actors: []script{executor("X", "k", one, 2)}, bounds: bounds{Crashes: 1, Resets: 1}},
		{Name: "who gives up", Actors: []script{caller("A", "k", one, 1), abandoner("O", 1)}, bounds: bounds{Crashes: 1, Resets: 1}},
		{Name: "a caller and who looks", Actors: []script{caller("A", "k", one, 1), resolver("R", 1)}, bounds: bounds{Crashes: 1, Resets: 1}},
		{Name: "who looks", Actors: []script{executor("X", "k", one, 1), resolver("R", 1)}, bounds: bounds{Ticks: 1, Resets: 1}},
		{Name: "who lies", Actors: []script{executor("X", "k", one, 1), liar("L", 2)}, bounds: bounds{Crashes: 1}},
		{Name: "a peer", Actors: []script{peer("P", "k", one, 2), liar("L", 1)}, bounds: bounds{Crashes: 1}},
		{Name: "a shim that dies", Actors: []script{shim("S", one, 1, 2)}, bounds: bounds{Deaths: 1, Resets: 1, Crashes: 1}},
		{Name: "shims", Actors: []script{shim("S", one, 1, 1), shim("T", one, 1, 1)}, bounds: bounds{Deaths: 1}},
		{Name: "a note that rides", Actors: []script{rider("S", 2, one, one)}, bounds: bounds{Crashes: 1}},
	} {
		for _, l := range licences {
			s := s
			s.Policy = l.policy
			t.Run(s.Name+"/"+l.name, func(t *testing.T) {
				t.Parallel()
				if s.Name == "a note that rides" && l.name != "dedupe_key" {
					serial.Long(t) // half of all the time, for the licences of which the others tell as much
				}
				all, reduced := explore(t, s, 1<<20, how{whole: true, outcomes: true}), explore(t, s, 1<<20, how{outcomes: true})
				if !all.Complete || !reduced.Complete || all.Found != nil || reduced.Found != nil {
					t.Fatalf("all %v\nreduced %v", all.Found, reduced.Found)
				}
				t.Logf("states %d and %d, outcomes %d", all.States, reduced.States, len(all.Outcomes))
				for _, o := range slices.Sorted(maps.Keys(all.Outcomes)) {
					if !reduced.Outcomes[o] {
						t.Fatalf("%d outcomes of %d; one that is missed:\n%s", len(reduced.Outcomes), len(all.Outcomes), o)
					}
				}
				for _, o := range slices.Sorted(maps.Keys(reduced.Outcomes)) {
					if !all.Outcomes[o] {
						t.Fatalf("an outcome that there is not:\n%s", o)
					}
				}
				if reduced.States > all.States {
					t.Errorf("%d states where %d are", reduced.States, all.States)
				}
			})
		}
	}
}
