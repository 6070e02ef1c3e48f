package crashtest

import "slices"

// turnScenario is a part of the conversations of [TurnSteps], with the tools of each of
// the licences: several of them at once.
func turnScenario(name string, from, to int, licences ...string) Scenario {
	return Scenario{
		Name: "turn " + name, Conf: Config{Turns: true}, Licences: licences, Parallel: len(licences) > 1,
		Steps: func(licence string) []Step { return TurnSteps(licence)[from:to] },
	}
}

// turnParts are the parts of the conversations. A store goes through one part in its life,
// so that its recovery is quick. The last step leaves a turn that waits.
var turnParts = []struct {
	name     string
	from, to int
}{
	{"rounds", 0, 2},
	{"handed over, failed", 2, 4},
	{"people", 4, 6},
	{"in doubt", 6, 9},
}

// TurnTier crashes conversations with agents before each operation, question, answer and
// call, and inside each recovery; then several agents at once; then lets operations fail.
func TurnTier(r *Run) {
	for round := uint64(0); ; round++ {
		seed := r.Seed + round
		var list []Scenario
		for _, p := range turnParts {
			for _, licence := range turnLicences {
				list = append(list, turnScenario(p.name+", "+licence, p.from, p.to, licence))
			}
		}
		r.part(3, 5, func() {
			for i, s := range shuffled(seed, list) {
				if !r.Over() {
					r.Explore(s, seed+uint64(i), Losses, 3, Thoroughness{Depth: 3, Nested: 61, Third: 211, Again: 16, Retry: 3})
				}
			}
		})
		r.part(1, 2, func() {
			p := shuffled(seed, slices.Clone(turnParts))[0]
			r.Explore(turnScenario("several, "+p.name, p.from, p.to, turnLicences...), seed, Losses, 11, Thoroughness{Depth: 2, Nested: 101, Again: 16, Retry: 4})
		})
		r.Faults(turnScenario("faults", 0, 1, shuffled(seed, []string{"park", "dedupe_args"})[0]), seed, whileRun, 2, Thoroughness{Depth: 1, Retry: 4})
		r.Say("turn round %d, seed %d: %d crash points, %d recoveries, %d double", round, seed, r.Counts.CrashPoints, r.Counts.Recoveries, r.Counts.DoubleCrashes)
		if r.Deadline.IsZero() || r.Over() {
			return
		}
	}
}

// killTurns is a small version of the tier: one scenario for each part.
func (r *Run) killTurns(seed uint64) {
	for _, p := range turnParts {
		if !r.Over() {
			r.Explore(turnScenario(p.name, p.from, p.to, "dedupe_args"), seed, []int{0, 100}, 2, Thoroughness{Depth: 1, Retry: 4})
		}
	}
}
