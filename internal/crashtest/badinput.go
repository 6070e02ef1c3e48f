package crashtest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// fuzzTarget is a native fuzz function.
type fuzzTarget struct {
	dir, name string
}

var (
	fuzzFunc  = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	fuzzExecs = regexp.MustCompile(`execs: (\d+)`)

	mutatedInputs = regexp.MustCompile(`(?m)^(\w+): (\d+) inputs$`)
)

// fuzzTargets lists the fuzz functions of the module.
func fuzzTargets(base string) (all []fuzzTarget, err error) {
	err = filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || strings.HasPrefix(string(b), "//go:build goexperiment.") {
			return err // not of this build
		}
		for _, m := range fuzzFunc.FindAllSubmatch(b, -1) {
			all = append(all, fuzzTarget{filepath.Dir(path), string(m[1])})
		}
		return nil
	})
	return all, err
}

// leastFuzz is the shortest time for which it is worthwhile to start a target.
const leastFuzz = 3 * time.Second

// BadInput gives decoders and parsers bad input: it runs each of the module's fuzz targets for
// a part of the time, and then those of package fuzz in a plain loop. The targets check the
// results; a panic, a hang or a wrong result ends the target. It needs the sources.
func BadInput(r *Run) {
	base, err := moduleDir()
	if err != nil {
		r.Found(Violation{Property: "setup", Detail: err.Error(), Where: "bad input"})
		return
	}
	targets, err := fuzzTargets(base)
	if err != nil || len(targets) == 0 {
		r.Found(Violation{Property: "setup", Detail: fmt.Sprintf("%d fuzz targets: %v", len(targets), err), Where: "bad input"})
		return
	}
	r.part(1, 3, func() {
		for i, t := range shuffled(r.Seed, targets) {
			if !r.Over() {
				r.fuzz(t, max(leastFuzz, r.left()/time.Duration(len(targets)-i)))
			}
		}
	})
	r.mutated(filepath.Join(base, "fuzz"))
}

// left returns the remaining time of the run; 0 if it has no deadline.
func (r *Run) left() time.Duration {
	if r.Deadline.IsZero() {
		return 0
	}
	return max(0, time.Until(r.Deadline))
}

// atMost returns d, or the remaining time of the run if that is less.
func (r *Run) atMost(d time.Duration) time.Duration {
	if r.Deadline.IsZero() {
		return d
	}
	return min(d, r.left())
}

// mutated runs the bodies of the targets in package fuzz in a plain loop, which is many times
// as fast as the fuzzer but does not use coverage.
func (r *Run) mutated(dir string) {
	targets, err := fuzzTargets(dir)
	if err != nil || len(targets) == 0 {
		r.Found(Violation{Property: "setup", Detail: fmt.Sprintf("%d fuzz targets in %s: %v", len(targets), dir, err), Where: "bad input"})
		return
	}
	each := r.left() / time.Duration(len(targets))
	cmd := exec.CommandContext(r.context(), "go", "test", "-count=1", "-v", "-run", "^TestMutatedInputs$", "-timeout", (r.left() + 10*time.Minute).String(), ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TGAD_INPUT_TIME="+each.String(), fmt.Sprint("TGAD_SEED=", r.Seed))
	out, err := cmd.CombinedOutput()
	for _, m := range mutatedInputs.FindAllSubmatch(out, -1) {
		n, _ := strconv.ParseInt(string(m[2]), 10, 64) // digits
		r.Counts.add(&r.Counts.BadInputs, n)
		r.Say("bad input: %-32s %10d", "mutated "+string(m[1]), n)
	}
	if err != nil && r.context().Err() == nil {
		r.Found(Violation{Property: "bad input", Detail: fmt.Sprintf("%v: %s", err, tail(out)), Where: "TestMutatedInputs"})
	}
}

func (r *Run) fuzz(t fuzzTarget, d time.Duration) {
	cmd := exec.CommandContext(r.context(), "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", d.Round(time.Second).String(), "-fuzzminimizetime", "200x", ".")
	cmd.Dir = t.dir
	out, err := cmd.CombinedOutput()
	var n int64 // the count goes up from line to line
	for _, m := range fuzzExecs.FindAllSubmatch(out, -1) {
		if v, e := strconv.ParseInt(string(m[1]), 10, 64); e == nil {
			n = v
		}
	}
	r.Counts.add(&r.Counts.BadInputs, n)
	switch {
	case r.context().Err() != nil:
	case err != nil:
		r.Found(Violation{Property: "bad input", Detail: fmt.Sprintf("%v: %s", err, tail(out)), Where: t.name})
	default:
		r.Say("bad input: %-32s %10d", t.name, n)
	}
}

// moduleDir returns the directory of the module's sources.
func moduleDir() (string, error) {
	b, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tgad/tgad").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of the module: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
