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
	for _, f := range []func(){
		func() { r.killSingle(seed) },
		func() { r.Histories(Config{}, seed<<20, 60) },
		func() {
			r.Faults(Scenario{Name: "faults", Licences: []string{"park"}, Steps: func(l string) []Step { return Core(l)[:3] }}, seed, whileRun, 1, Thoroughness{Depth: 1})
		},
		func() {
			r.Corrupt(Scenario{Name: "corrupt", Licences: []string{"park"}, Steps: Core}, seed, 150, false)
		},
		func() { r.parallel(seed) },
		func() { r.torn(seed) },
	} {
		if r.Over() {
			return
		}
		f()
	}
}

func (r *Run) killSingle(seed uint64) {
	n := 0
	variants(func(licence string, conf Config, name string) {
		if n++; !r.Over() && (n <= len(allLicences) || n%5 == 0) {
			r.Explore(Scenario{Name: "single " + name, Conf: conf, Licences: []string{licence}, Steps: Steps}, seed, []int{0, 100}, 2, Thoroughness{Depth: 1, Retry: 4})
		}
	})
}

// Planted builds the torture command with every planted bug in it, and lets the tier
// kill run with each. It must find nothing without a bug, and something with each.
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
	if out, err := r.kill(program, ""); err != nil {
		r.plantedFailed("", fmt.Errorf("without a bug: %w: %s", err, out))
		return
	}
	var names []string
	for _, m := range PlantedBugs {
		if !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	for _, name := range names {
		r.Counts.add(&r.Counts.PlantedBugs, 1)
		out, err := r.kill(program, name)
		_, found, _ := strings.Cut(string(out), violationMark)
		found, _, _ = strings.Cut(found, "\n")
		var exit *exec.ExitError
		if errors.As(err, &exit) && found != "" {
			r.Counts.add(&r.Counts.PlantedBugsKilled, 1)
			r.say("planted %-22s killed by %.120s", name, found)
			continue
		}
		r.say("planted %-22s SURVIVED (%v) %s", name, err, tail(out))
	}
}

// violationMark begins a line that a run prints for what it finds.
const violationMark = "VIOLATION "

// Show prints what was found, one line each.
func (r *Run) Show() {
	for _, v := range r.Violations() {
		r.say(violationMark+"%s", v)
	}
}

func tail(b []byte) string { return string(b[max(0, len(b)-1000):]) }

func (r *Run) plantedFailed(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad++
	r.found = append(r.found, Violation{Property: "planted", Detail: name + ": " + err.Error()})
}

func (r *Run) kill(program, bug string) ([]byte, error) {
	cmd := exec.Command(program, "-tiers", "kill", "-budget", "60s", "-seed", fmt.Sprint(r.Seed%1000))
	cmd.Env = append(os.Environ(), "TGAD_PLANTED="+bug)
	watchdog := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() }) // the run then fails
	defer watchdog.Stop()
	return cmd.CombinedOutput()
}

// buildPlanted builds the torture command from sources into which the bugs are written.
func buildPlanted(dir string) (program string, err error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	base := strings.TrimSpace(string(root))
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
			text = strings.Replace(string(b), "import (\n", "import (\n\t\"github.com/tgad/tgad/internal/planted\"\n", 1)
		}
		if n := strings.Count(text, m.Old); n != 1 {
			return nil, fmt.Errorf("planted bug %s: its place is %d times in %s", m.Name, n, m.File)
		}
		files[m.File] = strings.Replace(text, m.Old, m.New, 1)
	}
	return files, nil
}
