package interleave

import (
	"maps"
	"testing"
)

// TestForecastsSpareNoState: an exploration that does not make a move of which it knows where it
// leads enters the same states and comes to the same ends as one that makes every move. The
// scenarios have each kind of move: crashes, deaths, resets, ticks, steps of the clock, waits for
// another actor.
func TestForecastsSpareNoState(t *testing.T) {
	for _, s := range []scenario{
		{Name: "callers and a crash", Actors: []script{caller("A", "k", one, 1), caller("B", "k", one, 1)}, bounds: bounds{Crashes: 1}},
		{Name: "an executor and a clock that jumps", Actors: []script{executor("X", "k", one, 1)}, bounds: bounds{Steps: 1, Ticks: 1}},
		{Name: "a shim that dies", Actors: []script{shim("S", one, 1, 2)}, bounds: bounds{Deaths: 1, Resets: 1, Ticks: 1}},
		{Name: "shims", Actors: []script{shim("S", one, 1, 1), shim("T", one, 1, 1)}, bounds: bounds{Deaths: 1}},
		{Name: "a peer and who lies", Actors: []script{peer("P", "k", one, 2), liar("L", 1)}, bounds: bounds{Crashes: 1}},
	} {
		s.Policy = licences[1].policy
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			all, spared := explore(t, s, 1<<20, how{every: true}), explore(t, s, 1<<20, how{})
			if !all.Complete || !spared.Complete || all.Found != nil || spared.Found != nil {
				t.Fatalf("all %+v\nspared %+v", all, spared)
			}
			t.Logf("states %d, ends %d, runs %d and %d", all.States, len(all.Ends), all.Runs, spared.Runs)
			if spared.States != all.States || !maps.Equal(spared.Ends, all.Ends) {
				t.Errorf("states %d and ends %d of %d and %d", spared.States, len(spared.Ends), all.States, len(all.Ends))
			}
			if spared.Spared == 0 || spared.Runs >= all.Runs {
				t.Errorf("nothing was spared: %d runs of %d", spared.Runs, all.Runs)
			}
		})
	}
}
