package interleave

import (
	goflag "flag"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

const (
	one   = `{"amount":1}`
	other = `{"amount":2}`
)

// window is how long the tool honours a key. A call may be sent again in the first 20 s of
// it, for a send may take 30 s and 10 are the margin: so not once a tick has passed.
const (
	window = time.Minute
	margin = 10 * time.Second
	tick   = 41 * time.Second
)

// licences are what the operator attests in turn.
var licences = []struct {
	name   string
	policy runtime.Policy
}{
	{"park", runtime.Policy{Licence: ledger.Licence{Kind: ledger.Park}}},
	{"dedupe_key", runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeKey, Window: window, Margin: margin}}},
	{"dedupe_args", runtime.Policy{Licence: ledger.Licence{Kind: ledger.DedupeArgs}}},
	{"probe", runtime.Policy{Licence: ledger.Licence{Kind: ledger.Probe, MaxInFlight: 30 * time.Second}}},
	{"read_only", runtime.Policy{Class: tga.ClassRead, Licence: ledger.Licence{Kind: ledger.ReadOnly}}},
}

// relying is a policy under which people say whether a record that no longer stands may be relied on.
func relying(p runtime.Policy) runtime.Policy {
	p.Replay = runtime.ReplayHuman
	return p
}

// meetings are who meets whom, and how much may go wrong. docs/CRASH.md says which of them are
// explored completely, and with how many states.
var meetings = []struct {
	name   string
	actors []script
	bounds bounds
	rules  []rule
}{
	{"two callers, one request", []script{caller("A", "k", one, 1), caller("B", "k", one, 1)}, bounds{Crashes: 1}, nil},
	{"two callers, two requests", []script{caller("A", "k", one, 1), caller("B", "k", other, 1)}, bounds{Crashes: 1, Resets: 1}, nil},
	{"a caller, refused and reset", []script{caller("A", "k", one, 3)}, bounds{Crashes: 3, Resets: 1, Refusals: 1}, nil},
	{"an executor", []script{executor("X", "k", one, 3)}, bounds{Crashes: 3, Resets: 1, Refusals: 1}, nil},
	{"a caller and an executor, no tick", []script{caller("A", "k", one, 1), executor("X", "k", one, 1)}, bounds{Crashes: 1}, nil},
	{"a caller and an executor", []script{caller("A", "k", one, 1), executor("X", "k", one, 2)}, bounds{Crashes: 1, Ticks: 1}, nil},
	{"a caller and who gives up", []script{caller("A", "k", one, 2), abandoner("O", 2)}, bounds{Crashes: 1, Resets: 1}, nil},
	{"a caller and who gives up, once", []script{caller("A", "k", one, 1), abandoner("O", 1)}, bounds{Crashes: 2, Resets: 1}, nil},
	{"a caller and who looks, once", []script{caller("A", "k", one, 1), resolver("R", 1)}, bounds{Crashes: 2, Resets: 1}, nil},
	{"a caller and who looks", []script{caller("A", "k", one, 2), resolver("R", 2)}, bounds{Crashes: 1, Resets: 1}, nil},
	{"an executor and who looks, once", []script{executor("X", "k", one, 1), resolver("R", 1)}, bounds{Crashes: 2, Resets: 1}, nil},
	{"an executor and who looks", []script{executor("X", "k", one, 2), resolver("R", 2)}, bounds{Crashes: 1, Resets: 1, Ticks: 1}, nil},
	{"a caller and who lies", []script{caller("A", "k", one, 2), liar("L", 2)}, bounds{Crashes: 1, Resets: 1}, nil},
	{"an executor and who lies", []script{executor("X", "k", one, 2), liar("L", 2)}, bounds{Crashes: 1}, nil},
	{"a peer with a log of its own", []script{peer("P", "k", one, 2)}, bounds{Crashes: 3, Resets: 1}, nil},
	{"such a peer and a caller", []script{peer("P", "k", one, 2), caller("A", "k", one, 1)}, bounds{Crashes: 1}, nil},
	{"such a peer and who lies", []script{peer("P", "k", one, 2), liar("L", 1)}, bounds{Crashes: 1}, nil},
	{"such a peer and who looks", []script{peer("P", "k", one, 2), resolver("R", 2)}, bounds{Crashes: 1, Resets: 1}, nil},
	{"a shim that dies", []script{shim("S", one, 2, 4)}, bounds{Deaths: 2, Resets: 1}, nil},
	{"a shim, twice the same", []script{shim("S", one, 2, 3)}, bounds{Crashes: 2, Resets: 1}, nil},
	{"a shim and a crash", []script{shim("S", one, 1, 2)}, bounds{Crashes: 1, Deaths: 1, Resets: 1}, nil},
	{"two shims, a try each", []script{shim("S", one, 1, 1), shim("T", one, 1, 1)}, bounds{Crashes: 1, Deaths: 1}, nil},
	{"two shims", []script{shim("S", one, 1, 3), shim("T", one, 1, 3)}, bounds{Crashes: 1}, nil},
	{"two shims that die", []script{shim("S", one, 1, 3), shim("T", one, 1, 3)}, bounds{Deaths: 2}, nil},
	{"a note that rides", []script{rider("S", 3, one, other, one)}, bounds{Crashes: 1}, nil},
	{"a note that rides with the same call", []script{rider("S", 3, one, one)}, bounds{Crashes: 1}, nil},
	{"a note that rides, and dies", []script{rider("S", 3, one, one)}, bounds{Deaths: 2}, nil},
	{"a note that comes too early", []script{hasty("S", 3, one, one)}, bounds{Resets: 1}, nil},
	{"a note that rides, beside a shim", []script{rider("S", 1, one, other), shim("T", one, 1, 1)}, bounds{Deaths: 1}, nil},
	{"a note that rides where nothing is appended", []script{rider("S", 1, one, other, one), shim("T", other, 1, 1)}, bounds{Deaths: 1}, nil},
	{"two executors, once each", []script{executor("X", "k", one, 1), executor("Y", "k", one, 1)}, bounds{Crashes: 1}, nil},
	{"two executors, no crash", []script{executor("X", "k", one, 2), executor("Y", "k", one, 1)}, bounds{Ticks: 1}, nil},
	{"two executors", []script{executor("X", "k", one, 2), executor("Y", "k", one, 1)}, bounds{Crashes: 1, Ticks: 1}, nil},
	{"a caller whose process stands still", []script{caller("A", "k", one, 1)}, bounds{Crashes: 1, Ticks: 2}, nil},
	{"a caller whose clock jumps, once", []script{caller("A", "k", one, 1)}, bounds{Crashes: 1, Steps: 1}, nil},
	{"a caller whose clock jumps", []script{caller("A", "k", one, 2)}, bounds{Crashes: 1, Steps: 1}, nil},
	{"a caller that stands still while its clock jumps", []script{caller("A", "k", one, 1)}, bounds{Crashes: 1, Ticks: 1, Steps: 1}, nil},
	{"an executor and a clock that jumps", []script{executor("X", "k", one, 2)}, bounds{Crashes: 1, Ticks: 1, Steps: 1}, nil},
	{"an executor, who looks and a clock that jumps", []script{executor("X", "k", one, 1), resolver("R", 1)}, bounds{Ticks: 1, Steps: 1}, nil},
	{"a shim that dies and a clock that jumps", []script{shim("S", one, 1, 3)}, bounds{Deaths: 1, Ticks: 1, Steps: 1}, nil},
	{"a caller and a model that settles", []script{caller("A", "k", one, 2), model("M", 1, false)}, bounds{Resets: 1}, nil},
	{"a caller and a model that gives up", []script{caller("A", "k", one, 1), model("M", 1, true)}, bounds{Crashes: 1, Resets: 1}, nil},
	{"a shim and a model that settles", []script{shim("S", one, 2, 3), model("M", 1, false)}, bounds{Resets: 1}, nil},
	{"a shim that dies and a model that gives up", []script{shim("S", one, 1, 3), model("M", 1, true)}, bounds{Deaths: 1, Resets: 1}, nil},
	{"two callers and who gives up", []script{caller("A", "k", one, 2), caller("B", "k", one, 2), abandoner("O", 1)}, bounds{Crashes: 1, Resets: 1}, nil},
	{"a caller and a vote", []script{caller("A", "k", one, 1), voter("V", true, 2)}, bounds{Crashes: 1, Resets: 1}, []rule{asks1}},
	{"a caller and two votes", []script{caller("A", "k", one, 1), voter("V", true, 1), voter("W", true, 1)}, bounds{Crashes: 1}, []rule{asks2}},
	{"a caller and votes for and against", []script{caller("A", "k", one, 1), voter("V", true, 1), voter("W", false, 1)}, bounds{Crashes: 1}, []rule{asks1}},
	{"a caller that votes for itself", []script{caller("A", "k", one, 1), voter("A", true, 2)}, bounds{Crashes: 1}, []rule{asks1}},
	{"a caller, a vote and a stricter rule", []script{caller("A", "k", one, 1), voter("V", true, 2)}, bounds{Crashes: 1, Rules: 1}, []rule{asks1, asks2}},
	{"a caller, a vote and a rule that denies", []script{caller("A", "k", one, 1), voter("V", true, 2)}, bounds{Crashes: 1, Rules: 1}, []rule{asks1, denies}},
	{"a caller, two votes and a laxer rule", []script{caller("A", "k", one, 1), voter("V", true, 1), voter("W", true, 1)}, bounds{Rules: 1}, []rule{asks2, allows}},
	{"a caller, a vote, a rule and back", []script{caller("A", "k", one, 1), voter("V", true, 1)}, bounds{Rules: 3}, []rule{allows, asks1, denies, allows}},
	{"a caller, a vote and a tool that changes", []script{caller("A", "k", one, 1), voter("V", true, 2)}, bounds{Crashes: 1, Changes: 1}, []rule{asks1}},
	{"a caller, two votes and a tool that changes", []script{caller("A", "k", one, 1), voter("V", true, 1), voter("W", true, 2)}, bounds{Changes: 1}, []rule{asks2}},
	{"a caller, either vote and a tool that changes", []script{caller("A", "k", one, 1), voter("V", true, 1), voter("W", true, 1)}, bounds{Changes: 1}, []rule{asks1}},
	{"an executor and a vote", []script{executor("X", "k", one, 2), voter("V", true, 1)}, bounds{Crashes: 1}, []rule{asks1}},
	{"an executor, a vote and a rule that denies", []script{executor("X", "k", one, 3), voter("V", true, 1)}, bounds{Rules: 1}, []rule{asks1, denies}},
	{"an executor, a vote and a tool that changes", []script{executor("X", "k", one, 3), voter("V", true, 2)}, bounds{Changes: 1}, []rule{asks1}},
	{"a caller, a vote and a forged decision", []script{caller("A", "k", one, 1), voter("V", true, 1), forger("F", 1)}, bounds{Crashes: 1}, []rule{asks2}},
	{"a record that is lost", []script{caller("A", "k", one, 1), replayer("B", "k", one, 2), voter("V", true, 2)}, bounds{Losses: 1}, nil},
	{"a record that is lost twice", []script{caller("A", "k", one, 1), replayer("B", "k", one, 2), voter("V", true, 1)}, bounds{Losses: 2}, nil},
	{"a lost record and who wants it", []script{caller("A", "k", one, 1), replayer("B", "k", one, 2), voter("B", true, 2)}, bounds{Losses: 1}, nil},
	{"a lost record and who made it", []script{caller("A", "k", one, 1), replayer("B", "k", one, 2), voter("A", true, 2)}, bounds{Losses: 1}, nil},
	{"a lost record and two who want it", []script{caller("A", "k", one, 1), replayer("B", "k", one, 1), replayer("C", "k", one, 1), voter("C", true, 1)}, bounds{Losses: 1}, nil},
	{"two callers of two daemons", []script{caller("A", "k", one, 1), caller("B", "k", one, 1)}, bounds{Daemons: 2, Crashes: 1}, nil},
	{"a caller and an executor of two daemons", []script{caller("A", "k", one, 1), executor("X", "k", one, 1)}, bounds{Daemons: 2, Crashes: 1}, nil},
	{"two executors of two daemons", []script{executor("X", "k", one, 1), executor("Y", "k", one, 1)}, bounds{Daemons: 2, Crashes: 1, Ticks: 1}, nil},
	{"an executor and who looks, of two daemons", []script{executor("X", "k", one, 2), resolver("R", 1)}, bounds{Daemons: 2, Crashes: 1, Resets: 1}, nil},
	{"a caller and who gives up, of two daemons", []script{caller("A", "k", one, 2), abandoner("O", 1)}, bounds{Daemons: 2, Crashes: 1, Resets: 1}, nil},
	{"two shims of two daemons, a try each", []script{shim("S", one, 1, 1), shim("T", one, 1, 1)}, bounds{Daemons: 2, Crashes: 1, Deaths: 1}, nil},
	{"two shims of two daemons", []script{shim("S", one, 1, 2), shim("T", one, 1, 2)}, bounds{Daemons: 2, Deaths: 1}, nil},
	{"a note that rides, beside a shim of another daemon", []script{rider("S", 1, one, other), shim("T", one, 1, 1)}, bounds{Daemons: 2, Deaths: 1}, nil},
	{"everybody", []script{caller("A", "k", one, 1), caller("B", "k", other, 1), executor("X", "k", one, 1), abandoner("O", 1), liar("L", 1)}, bounds{Crashes: 3, Resets: 1, Ticks: 1, Steps: 1}, nil},
}

// usual is how many states of a scenario a run of the tests enters: half a minute for all.
const usual = 1000

// TestSmallScope explores the meetings under each licence. TGAD_INTERLEAVE is how many states of
// each it enters; one that has no more is explored completely.
func TestSmallScope(t *testing.T) {
	limit := usual
	if n := os.Getenv("TGAD_INTERLEAVE"); n != "" {
		var err error
		if limit, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	// That one fails does not keep the parallel ones from running on.
	failFast := goflag.Lookup("test.failfast").Value.String() == "true"
	var found atomic.Bool
	var mu sync.Mutex
	var scenarios, complete, states, schedules int
	said := documented(t)
	// Sources with bugs in them have other steps, also where no bug is chosen; and a bug is found
	// by what it does, not by how many states it has.
	_, changed := os.LookupEnv("TGAD_PLANTED")
	t.Cleanup(func() {
		t.Logf("%d of %d scenarios are complete; %d states, %d schedules", complete, scenarios, states, schedules)
	})
	for _, m := range meetings {
		for _, l := range licences {
			t.Run(m.name+"/"+l.name, func(t *testing.T) {
				t.Parallel()
				if failFast && found.Load() {
					return
				}
				r := explore(t, scenario{Name: m.name, Policy: relying(l.policy), Actors: m.actors, Rules: m.rules, bounds: m.bounds}, limit, how{})
				far := "cut off"
				if r.Complete {
					far = "complete"
				}
				t.Logf("%s: %d states, %d schedules, the longest of %d moves, %s (%d executions, %d spared, %d moves)",
					m.bounds, r.States, r.Schedules, r.Longest, far, r.Runs, r.Spared, r.Steps)
				if r.Found != nil {
					found.Store(true)
					t.Errorf("found: %v", r.Found)
				}
				if r.Found == nil && !changed {
					if err := agrees(r, said[m.name][l.name], limit); err != nil {
						t.Error(err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if scenarios++; r.Complete {
					complete++
				}
				states, schedules = states+r.States, schedules+r.Schedules
			})
		}
	}
}
