package crashtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// killPart is a part of the tier kill. A planted bug names the part that must find it.
type killPart struct {
	name string
	run  func(r *Run, seed uint64)
}

var killParts = []killPart{
	{"single", (*Run).killSingle},
	{"transport", (*Run).transport},
	{"asked", func(r *Run, seed uint64) {
		s := Scenario{Name: "asked", Licences: []string{probed}, Steps: func(l string) []Step { return TrustSteps(l)[:3] }}
		r.Explore(s, seed, []int{0, 100}, 2, Thoroughness{Depth: 1, Again: 4})
	}},
	{"quarantine", (*Run).quarantine},
	{"histories", func(r *Run, seed uint64) { r.Histories(Config{}, seed<<20, 60) }},
	{"watched", (*Run).watched},
	{"corrupt", func(r *Run, seed uint64) {
		r.Corrupt(Scenario{Name: "corrupt", Licences: []string{"park"}, Steps: Core}, seed, 150, nil)
	}},
	{"one log", func(r *Run, seed uint64) {
		s := Scenario{Name: "one log", Conf: Config{MemTable: 4 << 20, Segment: 1 << 20}, Licences: []string{"park"}, Steps: Core}
		r.Corrupt(s, seed, 40, isLog)
	}},
	{"names", (*Run).names},
	{"faults", func(r *Run, seed uint64) {
		s := Scenario{Name: "faults", Licences: []string{"park"}, Steps: func(l string) []Step { return Core(l)[:3] }}
		r.Faults(s, seed, whileRun, 1, Thoroughness{Depth: 1})
	}},
	{"pipelined", (*Run).pipelined},
	{"turns", (*Run).killTurns},
	{"work", func(r *Run, seed uint64) {
		r.Explore(workScenario("dedupe_args"), seed, []int{0, 100}, 1, Thoroughness{Depth: 1, Retry: 4})
	}},
	{"parallel", (*Run).parallel},
	{"rewritten", (*Run).rewritten},
	{"checked", (*Run).checked},
	{"clean pages", (*Run).cleanPages},
	{"older table", (*Run).olderTable},
	{"torn", (*Run).torn},
}

// Kill is the tier that must find planted bugs: small versions of the other in-memory tiers.
// It ends at the first violation. The part that a bug names comes first, to save time. The
// other parts follow, in case another one finds the bug by now.
func Kill(r *Run) {
	r.MaxFound = 1
	parts := slices.Clone(killParts)
	slices.SortStableFunc(parts, func(a, b killPart) int { return cmp.Compare(r.wants(b), r.wants(a)) })
	// The first part gets half of the time. After that, with n parts left, the next one gets
	// 2/(n+1) of the time that is left. So the last parts have time on a slow machine too.
	for i, p := range parts {
		of := len(parts) - i + 1
		if i == 0 {
			of = 4
		}
		if len(r.Violations()) == 0 {
			r.part(2, of, func() { p.run(r, r.Seed) })
		}
	}
}

// wants returns 1 if a bug of this run names the part, or else 0.
func (r *Run) wants(p killPart) int {
	bugs, err := PlantedBugs()
	if err == nil && slices.ContainsFunc(bugs, func(b Bug) bool { return b.FoundBy == p.name && slices.Contains(r.Bugs, b.Name) }) {
		return 1
	}
	return 0 // if the bugs cannot be read, every part runs all the same
}

func (r *Run) killSingle(seed uint64) {
	for i, v := range variants() {
		if !r.Over() && (i < len(allLicences) || i%5 == 4) {
			r.Explore(Scenario{Name: "single " + v.name, Conf: v.conf, Licences: []string{v.licence}, Steps: Steps}, seed, []int{0, 100}, 2, Thoroughness{Depth: 1, Retry: 4})
		}
	}
}

// Planted builds the torture command with every planted bug in it, and runs the tier kill
// with each bug, one for each core. The tier must find nothing without a bug, and something
// with each. A bug that there was no time for counts as survived.
func Planted(r *Run) {
	dir, err := os.MkdirTemp("", "tgad-planted-")
	if err != nil {
		r.plantedFailed("", err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	bugs, err := PlantedBugs()
	if err != nil {
		r.plantedFailed("", err)
		return
	}
	program := filepath.Join(dir, "torture")
	if err := BuildPlanted(dir, bugs, "build", "-o", program, "./internal/crashtest/torture"); err != nil {
		r.plantedFailed("", err)
		return
	}
	var names []string
	for _, b := range bugs {
		if r.Bugs == nil || slices.Contains(r.Bugs, b.Name) {
			names = append(names, b.Name)
		}
	}
	shuffled(r.Seed, names)
	if !r.tryAll(names, func(name string) { r.try(program, name) }) {
		return
	}
	if r.atMost(2*soundTime) > soundTime {
		// In a shorter run the other tiers have shown that the code is sound.
		if out, err := r.kill(program, "", soundTime); err != nil {
			r.plantedFailed("", fmt.Errorf("without a bug: %w: %s", err, out))
		}
	}
}

// tryAll tries each bug, and fails the run if its time does not suffice for all.
func (r *Run) tryAll(names []string, try func(name string)) bool {
	r.Counts.add(&r.Counts.PlantedBugs, int64(len(names)))
	var tried atomic.Int32
	r.each(len(names), func(i int) {
		tried.Add(1)
		try(names[i])
	})
	n := int(tried.Load())
	if n < len(names) && r.context().Err() == nil {
		r.plantedFailed("", fmt.Errorf("the run was over after %d of %d bugs, before %s", n, len(names), strings.Join(names[n:], ", ")))
	}
	return n == len(names)
}

// try runs the tier kill with a bug.
func (r *Run) try(program, name string) {
	begin := time.Now()
	out, err := r.kill(program, name, r.atMost(killTime))
	_, found, _ := strings.Cut(string(out), violationMark)
	found, _, _ = strings.Cut(found, "\n")
	took := time.Since(begin).Seconds()
	if r.context().Err() != nil {
		return // interrupted: it proves nothing
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && found != "" {
		r.Counts.add(&r.Counts.PlantedBugsKilled, 1)
		r.Say("planted %-22s killed after %5.1f s by %.120s", name, took, found)
		return
	}
	r.Say("planted %-22s SURVIVED %.1f s (%v)", name, took, err)
	r.Found(Violation{Property: "planted", Detail: fmt.Sprintf("%s survived %.0f s: %s", name, took, tail(out)), Where: "planted"})
}

// violationMark begins the lines that a run prints about violations.
const violationMark = "VIOLATION "

// Show prints what was found, one line each.
func (r *Run) Show() {
	for _, v := range r.Violations() {
		if r.Out != nil {
			_, _ = fmt.Fprintf(r.Out, "%s%s\n", violationMark, v) // they are in the run's error too
		}
	}
}

func tail(b []byte) string { return string(b[max(0, len(b)-1000):]) }

func (r *Run) plantedFailed(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad++
	r.found = append(r.found, Violation{Property: "planted", Detail: name + ": " + err.Error()})
}

// killTime is how long a bug may survive on a busy machine. soundTime is how long the same
// tier runs without a bug.
const (
	killTime  = 4 * time.Minute
	soundTime = 20 * time.Second
)

func (r *Run) kill(program, bug string, budget time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.context(), budget+2*time.Minute) // the run then fails
	defer cancel()
	args := []string{"-tiers", "kill", "-bugs", bug, "-budget", budget.String(), "-seed", fmt.Sprint(r.Seed % 1000)}
	if bug != "" { // the images of what a planted bug breaks go with the program
		images := filepath.Join(filepath.Dir(program), "images-"+bug)
		if err := os.MkdirAll(images, 0o750); err != nil {
			return nil, err
		}
		args = append(args, "-images", images)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "TGAD_PLANTED="+bug, "GOMAXPROCS=2") // a race needs two
	return cmd.CombinedOutput()
}

// BuildPlanted runs a go command over sources into which the bugs are written. dir is for
// its files. The environment variable TGAD_PLANTED chooses the bug when the program runs.
func BuildPlanted(dir string, bugs []Bug, command string, args ...string) error {
	base, err := moduleDir()
	if err != nil {
		return err
	}
	files, err := plant(base, bugs)
	if err != nil {
		return err
	}
	overlay := map[string]string{}
	for name, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o640); err != nil {
			return err
		}
		overlay[filepath.Join(base, name)] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, b, 0o640); err != nil {
		return err
	}
	cmd := exec.Command("go", append([]string{command, "-tags", "planted", "-overlay", list}, args...)...)
	cmd.Dir = base
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build with planted bugs: %w: %s", err, out)
	}
	return nil
}
