package crashtest

import (
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
)

// sparse says which places are tested: every nth. make accept tests every one, runs of some minutes fewer.
// make crash tests others.
func sparse(n int) int {
	if serial.Whole() {
		return n
	}
	return 2*n + 1
}

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
		r.Explore(s, 1, Losses, sparse(8), Thoroughness{Depth: 3, Nested: 7, Third: 97, Again: 8, Retry: 8})
	})
}

func TestTornLogIsNotDamage(t *testing.T) {
	slice(t, func(r *Run, s Scenario) { r.Torn(s, 1, 251, Thoroughness{Depth: 1, Retry: 4}) })
}

func TestFailedOperations(t *testing.T) {
	slice(t, func(r *Run, s Scenario) {
		r.Faults(s, 1, whileRun, 3, Thoroughness{Depth: 1, Retry: 8})
		c := &r.Counts
		if c.Injections == 0 || c.InjectedIO+c.InjectedSpace != c.Injections || c.InjectedSticky == 0 || c.InjectedSticky == c.Injections || c.InjectedDone == 0 || c.InjectedDone == c.Injections {
			t.Errorf("injections are not counted by kind: %d, io %d, space %d, sticky %d, done %d", c.Injections, c.InjectedIO, c.InjectedSpace, c.InjectedSticky, c.InjectedDone)
		}
		if c.Injections > c.CrashPoints {
			t.Errorf("%d injections in %d runs", c.Injections, c.CrashPoints)
		}
	})
}

// TestFaultIsOneInjection: a fault counts once, however many operations it lets fail, and not at all if it
// met none.
func TestFaultIsOneInjection(t *testing.T) {
	r := &Run{Seed: 1, SaveDir: t.TempDir()}
	s := Scenario{Name: t.Name(), Licences: []string{"park"}, Steps: func(l string) []Step { return Core(l)[:1] }}
	r.fault(s, NewWorld(1).Crash(100), whileMade, fault{n: 1 << 30, err: ErrIO}, 0, Thoroughness{Depth: 1})
	if err := r.Err(); err != nil || r.Counts.Injections != 0 || r.Counts.CrashPoints != 1 {
		t.Errorf("%d injections of %d runs, %v", r.Counts.Injections, r.Counts.CrashPoints, err)
	}
	r.fault(s, NewWorld(1).Crash(100), whileMade, fault{n: 2, err: ErrSpace, sticky: true}, 0, Thoroughness{Depth: 1})
	if c := &r.Counts; c.Injections != 1 || c.InjectedSpace != 1 || c.InjectedSticky != 1 || c.InjectedIO != 0 || c.InjectedDone != 0 {
		t.Errorf("%d injections: io %d, space %d, sticky %d, done %d", c.Injections, c.InjectedIO, c.InjectedSpace, c.InjectedSticky, c.InjectedDone)
	}
}

func TestConcurrentCallersSeeOneEffect(t *testing.T) {
	slice(t, func(r *Run, _ Scenario) { r.Histories(Config{}, 1, 20) })
}

// TestCrashWhileTheWorldIsAsked crashes around questions to tool servers, confirmations, people's answers,
// new attempts and the undoing of calls.
func TestCrashWhileTheWorldIsAsked(t *testing.T) {
	slice(t, func(r *Run, s Scenario) {
		s.Steps = TrustSteps
		r.Explore(s, 1, Losses, sparse(5), Thoroughness{Depth: 2, Nested: 97, Again: 8, Retry: 4})
	})
}

// TestCrashWhileSegmentsAreRewritten crashes around the rewriting of the log's segments, and asks
// for every key again.
func TestCrashWhileSegmentsAreRewritten(t *testing.T) {
	slice(t, func(r *Run, s Scenario) {
		s.Steps = Rewritten
		r.Explore(s, 1, []int{0, 100}, sparse(5), Thoroughness{Depth: 2, Nested: 311, Again: 8, Retry: 4})
	})
}

// TestRewrittenScenarioRewrites: a workload that rewrites nothing would find nothing.
func TestRewrittenScenarioRewrites(t *testing.T) {
	w := NewWorld(1)
	p, err := w.Start(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range Rewritten("park") {
		before := p.DB.Stats().Rewritten
		step.Do(p, "key")
		n := p.DB.Stats().Rewritten - before
		if rewrites := step.Name == "compress" || step.Name == "archive" || step.Name == "rewrite again"; rewrites != (n > 0) {
			t.Errorf("%s rewrites %d segments", step.Name, n)
		}
	}
	if err := p.DB.Close(); err != nil {
		t.Error(err)
	}
}

// TestCheckBesideARewrite: a rewrite waits for a reader that has read rows and still needs their bodies.
func TestCheckBesideARewrite(t *testing.T) {
	r := &Run{Seed: 1, SaveDir: t.TempDir()}
	r.checked(1)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

// TestFailedSyncLeavesCleanPages: a reader writes the group whose sync failed again.
func TestFailedSyncLeavesCleanPages(t *testing.T) {
	r := &Run{Seed: 1, SaveDir: t.TempDir()}
	r.cleanPages(1)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Counts.Recoveries < 10 {
		t.Errorf("%d recoveries", r.Counts.Recoveries)
	}
}

// TestIndexWithoutALedgerRowIsNotUsed: the keys of an index are counted when it is opened.
func TestIndexWithoutALedgerRowIsNotUsed(t *testing.T) {
	r := &Run{Seed: 1, SaveDir: t.TempDir()}
	r.olderTable(1)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if r.Counts.Corruptions == 0 {
		t.Error("no row was taken away")
	}
}

func TestDamageIsRefusedOrShows(t *testing.T) {
	slice(t, func(r *Run, s Scenario) {
		r.Corrupt(s, 1, 20, func(name string) bool { return !strings.HasPrefix(name, "index/") })
	})
}

// TestBugWithoutTimeHasSurvived: a run that ends before each bug was tried fails, and names the bugs that
// were not tried.
func TestBugWithoutTimeHasSurvived(t *testing.T) {
	names := []string{"one", "two", "three"}
	killed := func(r *Run) func(string) {
		return func(string) { r.Counts.add(&r.Counts.PlantedBugsKilled, 1) }
	}
	r := &Run{}
	if !r.tryAll(names, killed(r)) || r.Err() != nil {
		t.Errorf("all were tried and found: %v", r.Err())
	}
	r = &Run{Deadline: time.Now().Add(-time.Second)}
	if r.tryAll(names, killed(r)) || r.Err() == nil || !strings.Contains(r.Err().Error(), "one, two, three") {
		t.Errorf("none was tried: %v", r.Err())
	}
}

// TestPartThatABugNamesHasHalfOfTheTime: the part that must find a planted bug comes first and has half of
// the time. The last part has some time left.
func TestPartThatABugNamesHasHalfOfTheTime(t *testing.T) {
	bugs, err := PlantedBugs()
	if err != nil {
		t.Fatal(err)
	}
	all := killParts
	defer func() { killParts = all }()
	const whole = time.Hour
	var names []string
	var shares []float64
	killParts = nil
	for _, p := range all {
		killParts = append(killParts, killPart{p.name, func(r *Run, _ uint64) {
			names = append(names, p.name)
			shares = append(shares, time.Until(r.Deadline).Hours()/whole.Hours())
		}})
	}
	Kill(&Run{Deadline: time.Now().Add(whole), Bugs: []string{bugs[0].Name}})
	if len(names) != len(all) || names[0] != bugs[0].FoundBy || shares[0] < 0.49 || shares[0] > 0.51 {
		t.Errorf("%v have the shares %.3f, want first %s with half", names, shares, bugs[0].FoundBy)
	}
	if last := shares[len(shares)-1]; last < 0.5 {
		t.Errorf("the last part has %.3f of the time, and all before it took none", last)
	}
}
