package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// reached is the environment variable with the path of the file into which a test writes the
// mutants that it reaches.
const reached = "TGAD_REACHED"

// suite is the test binary of a package.
type suite struct {
	dir, binary string
	flags       []string // of each run: see [testFlags]
}

// test is a top-level test of a suite, a fuzz target with its seeds, or an example.
type test struct {
	suite     int
	name      string
	wall, cpu time.Duration
}

// measure runs each test by itself on the unchanged code, and records the mutants that it
// reaches and the time that it takes.
func (t *together) measure(temp string) error {
	t.reaches = map[int][]test{}
	var all []test
	for i, s := range t.suites {
		cmd := exec.Command(s.binary, "-test.list", cmp.Or(*tests, "."))
		cmd.Dir = s.dir
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", s.dir, err)
		}
		for name := range strings.Lines(string(out)) {
			if name = strings.TrimSpace(name); !strings.HasPrefix(name, "Benchmark") {
				all = append(all, test{suite: i, name: name, wall: 15 * time.Second, cpu: 15 * time.Second})
			}
		}
	}
	var mu sync.Mutex
	err := each(len(all), func(i int) error {
		one, to := all[i], filepath.Join(temp, fmt.Sprintf("reached%d", i))
		numbers, err := t.reach(&one, to)
		mu.Lock()
		defer mu.Unlock()
		for _, n := range numbers {
			t.reaches[n] = append(t.reaches[n], one)
		}
		return err
	})
	for _, of := range t.reaches {
		slices.SortFunc(of, func(a, b test) int {
			return cmp.Or(cmp.Compare(a.wall, b.wall), strings.Compare(a.name, b.name))
		})
	}
	return err
}

// reach runs a test on the unchanged code, sets its times, and returns the mutants that it reaches.
func (t *together) reach(one *test, to string) (numbers []int, err error) {
	if err := os.WriteFile(to, nil, 0o600); err != nil {
		return nil, err
	}
	cmd, start := t.run(-1, one.suite, []test{*one}), time.Now()
	cmd.Env = append(cmd.Env, reached+"="+to)
	if out, err := output(cmd); err != nil {
		return nil, fmt.Errorf("%s: %s fails without a mutant: %w\n%s", t.suites[one.suite].dir, one.name, err, out)
	}
	one.wall, one.cpu = time.Since(start), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	text, err := os.ReadFile(to)
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), os.Remove(to)
}

// run returns a process that runs some tests of a suite with mutant n. It may use four times the
// CPU time and ten times the elapsed time that the tests took without a mutant, so that a busy
// machine does not make a mutant look killed. It may use 8 GB of address space, because a mutant
// may loop and allocate.
func (t *together) run(n, of int, some []test) *exec.Cmd {
	wall, cpu := t.least, t.least
	var names []string
	for _, one := range some {
		wall, cpu, names = wall+10*one.wall, cpu+4*one.cpu, append(names, one.name)
	}
	script := fmt.Sprintf(`ulimit -t %d && ulimit -v 8000000 && exec "$0" -test.failfast -test.timeout=%v "$@"`, int(cpu.Seconds())+1, wall)
	s := t.suites[of]
	cmd := exec.Command("sh", slices.Concat([]string{"-c", script, s.binary}, s.flags, []string{"-test.run", "^(" + strings.Join(names, "|") + ")$"})...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), which+"="+strconv.Itoa(n))
	cmd.WaitDelay = time.Second // a child of a test may outlive it, and hold its output open
	return cmd
}

// output runs cmd with a directory for its temporary files, which output removes afterwards. A
// killed test leaves its temporary files, and a run kills hundreds of tests.
func output(cmd *exec.Cmd) (out []byte, err error) {
	dir, err := os.MkdirTemp("", "tgad-mutant-")
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	out, err = cmd.CombinedOutput()
	// A child of a test may still write there, so an error here does not fail the run.
	if left := os.RemoveAll(dir); left != nil {
		fmt.Fprintln(os.Stderr, "mutate:", left)
	}
	return out, err
}

// try runs the tests that reach mutant n, the fastest first, so that a mutant that a fast test
// kills costs little time.
func (t *together) try(n int) (fate, error) {
	left := t.reaches[n]
	if len(left) == 0 {
		return missed, nil
	}
	for most := 300 * time.Millisecond; len(left) > 0; most *= 4 {
		took, some := time.Duration(0), make([][]test, len(t.suites))
		for len(left) > 0 && took < most {
			some[left[0].suite] = append(some[left[0].suite], left[0])
			took, left = took+left[0].wall, left[1:]
		}
		for of := range some {
			if len(some[of]) == 0 {
				continue
			}
			out, err := output(t.run(n, of, some[of]))
			if end, err := fateOf(out, err); err != nil || end != lived {
				return end, err
			}
		}
	}
	return lived, nil
}

// each calls f for 0 to n-1, several at the same time, because many tests mostly wait.
func each(n int, f func(int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	free := make(chan struct{}, *jobs)
	for i := range n {
		free <- struct{}{}
		all.Go(func() { errs[i] = f(i); <-free })
	}
	all.Wait()
	return errors.Join(errs...)
}

// testFlags returns the flags for each run of a package's tests. prefix is put before the names of
// package testing's flags.
func testFlags(dir, prefix string) (flags []string, err error) {
	if *tests != "" && prefix == "" {
		flags = append(flags, "-run="+*tests)
	}
	p, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	if slices.Contains(slices.Concat(p.TestImports, p.XTestImports), "pgregory.net/rapid") {
		flags = append(flags, "-rapid.nofailfile") // a mutant's failure would be tried again by every later test
	}
	return flags, nil
}
