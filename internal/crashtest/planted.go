package crashtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Kill is the tier that planted bugs are given to: the other in-memory tiers, small, and
// over at the first violation.
func Kill(r *Run) {
	r.MaxFound = 1
	seed := r.Seed
	parts := []func(){
		func() { r.killSingle(seed) },
		func() { r.transport(seed) },
		func() {
			s := Scenario{Name: "asked", Licences: []string{probed}, Steps: func(l string) []Step { return TrustSteps(l)[:3] }}
			r.Explore(s, seed, []int{0, 100}, 2, Thoroughness{Depth: 1, Again: 4})
		},
		func() { r.quarantine(seed) },
		func() { r.Histories(Config{}, seed<<20, 60) },
		func() { r.watched(seed) },
		func() {
			r.Corrupt(Scenario{Name: "corrupt", Licences: []string{"park"}, Steps: Core}, seed, 150, true)
		},
		func() {
			r.Faults(Scenario{Name: "faults", Licences: []string{"park"}, Steps: func(l string) []Step { return Core(l)[:3] }}, seed, whileRun, 1, Thoroughness{Depth: 1})
		},
		func() { r.parallel(seed) },
		func() { r.torn(seed) },
	}
	// A part of the time each: a bug that the last of them finds is found on a slow
	// machine too.
	for i, f := range parts {
		if len(r.Violations()) == 0 {
			r.part(2, len(parts)-i+1, f)
		}
	}
}

func (r *Run) killSingle(seed uint64) {
	for i, v := range variants() {
		if !r.Over() && (i < len(allLicences) || i%5 == 4) {
			r.Explore(Scenario{Name: "single " + v.name, Conf: v.conf, Licences: []string{v.licence}, Steps: Steps}, seed, []int{0, 100}, 2, Thoroughness{Depth: 1, Retry: 4})
		}
	}
}

// Planted builds the torture command with every planted bug in it, and lets the tier
// kill run with each. It must find nothing without a bug, and something with each. A run
// that is short of time tries some of them.
func Planted(r *Run) {
	dir, err := os.MkdirTemp("", "tgad-planted-")
	if err != nil {
		r.plantedFailed("", err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	program, err := buildPlanted(dir)
	if err != nil {
		r.plantedFailed("", err)
		return
	}
	if r.left() > killTime {
		// A short run has shown that with its other tiers.
		if out, err := r.kill(program, "", soundTime); err != nil {
			r.plantedFailed("", fmt.Errorf("without a bug: %w: %s", err, out))
			return
		}
	}
	var names []string
	for _, m := range PlantedBugs {
		if !slices.Contains(names, m.Name) && (r.Bugs == nil || slices.Contains(r.Bugs, m.Name)) {
			names = append(names, m.Name)
		}
	}
	for _, name := range shuffled(r.Seed, names) {
		if r.Over() {
			r.Say("planted: the time is up before %s and those after it", name)
			return
		}
		r.Counts.add(&r.Counts.PlantedBugs, 1)
		begin := time.Now()
		out, err := r.kill(program, name, killTime)
		_, found, _ := strings.Cut(string(out), violationMark)
		found, _, _ = strings.Cut(found, "\n")
		var exit *exec.ExitError
		if errors.As(err, &exit) && found != "" {
			r.Counts.add(&r.Counts.PlantedBugsKilled, 1)
			r.Say("planted %-22s killed after %3.0f s by %.120s", name, time.Since(begin).Seconds(), found)
			continue
		}
		r.Say("planted %-22s SURVIVED (%v)", name, err)
		r.Found(Violation{Property: "planted", Detail: name + " survived: " + tail(out), Where: "planted"})
	}
}

// violationMark begins a line that a run prints for what it finds.
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

// killTime is how long a bug may survive, on a machine that has other things to do too;
// soundTime is how long the same is tried without a bug.
const (
	killTime  = 4 * time.Minute
	soundTime = 20 * time.Second
)

func (r *Run) kill(program, bug string, budget time.Duration) ([]byte, error) {
	cmd := exec.Command(program, "-tiers", "kill", "-budget", budget.String(), "-seed", fmt.Sprint(r.Seed%1000))
	cmd.Env = append(os.Environ(), "TGAD_PLANTED="+bug)
	watchdog := time.AfterFunc(budget+2*time.Minute, func() { _ = cmd.Process.Kill() }) // the run then fails
	defer watchdog.Stop()
	return cmd.CombinedOutput()
}

// buildPlanted builds the torture command from sources into which the bugs are written.
func buildPlanted(dir string) (program string, err error) {
	base, err := moduleDir()
	if err != nil {
		return "", err
	}
	files, err := mutate(base)
	if err != nil {
		return "", err
	}
	overlay := map[string]string{}
	for name, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o640); err != nil {
			return "", err
		}
		overlay[filepath.Join(base, name)] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, b, 0o640); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "torture")
	cmd := exec.Command("go", "build", "-tags", "planted", "-overlay", list, "-o", program, "./internal/crashtest/torture")
	cmd.Dir = base
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build with planted bugs: %w: %s", err, out)
	}
	return program, nil
}

// mutate writes the bugs into the sources. A bug whose place is not there exactly once
// is an error: the code has moved on and the bug must follow it.
func mutate(base string) (map[string]string, error) {
	files := map[string]string{}
	for _, m := range PlantedBugs {
		text, ok := files[m.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(base, m.File))
			if err != nil {
				return nil, err
			}
			text = strings.Replace(string(b), "\nimport ", "\nimport \"github.com/tgad/tgad/internal/planted\"\n\nimport ", 1)
		}
		if n := strings.Count(text, m.Old); n != 1 {
			return nil, fmt.Errorf("planted bug %s: its place is %d times in %s", m.Name, n, m.File)
		}
		files[m.File] = strings.Replace(text, m.Old, m.New, 1)
	}
	return files, nil
}
