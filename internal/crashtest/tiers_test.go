package crashtest

import "testing"

// slice is a small part of a tier.
func slice(t *testing.T, f func(r *Run, s Scenario)) {
	t.Helper()
	for _, licence := range []string{"park", "dedupe_key"} {
		t.Run(licence, func(t *testing.T) {
			r := &Run{Seed: 1, SaveDir: t.TempDir()}
			f(r, Scenario{Name: t.Name(), Licences: []string{licence}, Steps: Core})
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			if r.Counts.Recoveries+r.Counts.Histories+r.Counts.Corruptions == 0 {
				t.Error("nothing was tried")
			}
		})
	}
}

func TestCrashBeforeEachOperation(t *testing.T) {
	slice(t, func(r *Run, s Scenario) { r.Explore(s, 1, Losses, 2, Thoroughness{Depth: 1, Again: 8, Retry: 4}) })
}

func TestCrashInsideRecovery(t *testing.T) {
	slice(t, func(r *Run, s Scenario) {
		r.Explore(s, 1, Losses, 8, Thoroughness{Depth: 3, Nested: 7, Third: 97, Again: 8, Retry: 8})
	})
}

func TestTornLogIsNotDamage(t *testing.T) {
	slice(t, func(r *Run, s Scenario) { r.Torn(s, 1, 251, Thoroughness{Depth: 1, Retry: 4}) })
}

func TestFailedOperations(t *testing.T) {
	slice(t, func(r *Run, s Scenario) { r.Faults(s, 1, whileRun, 3, Thoroughness{Depth: 1, Retry: 8}) })
}

func TestConcurrentCallersSeeOneEffect(t *testing.T) {
	slice(t, func(r *Run, _ Scenario) { r.Histories(Config{}, 1, 20) })
}

// TestCrashWhileTheWorldIsAsked crashes around questions to tool servers, confirmations,
// people's answers, new attempts and the undoing of calls.
func TestCrashWhileTheWorldIsAsked(t *testing.T) {
	slice(t, func(r *Run, s Scenario) {
		s.Steps = TrustSteps
		r.Explore(s, 1, Losses, 5, Thoroughness{Depth: 2, Nested: 97, Again: 8, Retry: 4})
	})
}

func TestDamageIsRefusedOrShows(t *testing.T) {
	slice(t, func(r *Run, s Scenario) { r.Corrupt(s, 1, 20, false) })
}

// TestPlantedBugsHaveTheirPlaces: a bug whose place has moved would be planted nowhere.
func TestPlantedBugsHaveTheirPlaces(t *testing.T) {
	if _, err := mutate("../.."); err != nil {
		t.Error(err)
	}
}
