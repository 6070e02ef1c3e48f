// Command mutate reports the changes of the code (mutants) that no test notices.
//
//	go run ./internal/mutate -gremlins PATH [-list FILE] [-only REGEXP] [-every N] [-first K] [-tests REGEXP] [-with PACKAGES] PACKAGE...
//
// Gremlins finds the mutants of each package and of the packages below it. A mutant changes one
// operator, for example < to <=. Mutants are compiled through an overlay, so the source tree is not
// changed. A mutant runs with the tests of its own package and of the packages that -with names. All
// mutants of a package are compiled into one binary for each of these test packages. First each test
// runs by itself on the unchanged code, and records the mutants that it reaches. Then each mutant
// runs with the tests that reach it, the fastest first, until one fails. -only, -every and -tests
// select a sample; -first selects another sample of the same size.
//
// Gremlins itself would count a mutant that does not compile as killed. It would not run mutants of
// case conditions and of constants, for which Go's coverage has no counter. This program runs them.
//
// The list (-list) has the mutants that no test notices, each with the reason why it is equivalent
// to the code. The program exits 1 if such a mutant is not listed, if a listed mutant no longer
// exists or is killed, if no test reaches more than 5 % of the mutants, or if fewer than 97 % of the
// mutants that tests reach are killed.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	tests = flag.String("tests", "", "run the tests whose name matches this `regexp` alone")
	with  = flag.String("with", "", "run the tests of these `directories` too, with blanks between them")
	every = flag.Int("every", 1, "run one mutant of `N`")
	first = flag.Int("first", 0, "of those, begin with number `K` from 0 on")
	jobs  = flag.Int("jobs", 2, "how many processes run at the same time")
)

const (
	least = 97 // how many of 100 mutants that tests reach must be killed
	most  = 5  // how many of 100 mutants no test may reach
)

func main() {
	gremlins := flag.String("gremlins", "gremlins", "the command")
	list := flag.String("list", "internal/mutate/survivors.txt", "the survivors and why")
	only := flag.String("only", "", "run the mutants whose name matches this `regexp`")
	flag.Parse()
	some, err := regexp.Compile(*only)
	if err == nil {
		err = run(*gremlins, *list, some, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(gremlins, list string, only *regexp.Regexp, packages []string) (err error) {
	if len(packages) == 0 {
		return errors.New("name packages, such as ./ledger")
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	known, err := parseList(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	maps.DeleteFunc(known, func(name, _ string) bool { return !only.MatchString(name) })
	dir, err := os.MkdirTemp("", "tgad-mutate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var flaws []string
	for _, p := range packages {
		all, err := find(gremlins, dir, p)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(m mutant) bool { return !only.MatchString(m.name) })
		if *every > 1 {
			all = sample(all, known)
		}
		more, err := tryAll(p, all, known, dir)
		if err != nil {
			return err
		}
		flaws = append(flaws, more...)
	}
	if len(flaws) > 0 {
		return errors.New(strings.Join(flaws, "\n"))
	}
	return nil
}

// sample keeps every N-th mutant in the order of the files, and removes the other mutants from known.
func sample(all []mutant, known map[string]string) (some []mutant) {
	kept := map[string]bool{}
	for i, m := range all {
		if i%*every == *first%*every {
			some, kept[m.name] = append(some, m), true
		}
	}
	maps.DeleteFunc(known, func(name, _ string) bool { return !kept[name] })
	return some
}

// find returns the mutants of a package and of the packages below it, in order.
func find(gremlins, dir, p string) ([]mutant, error) {
	out := filepath.Join(dir, "found.json")
	cmd := exec.Command(gremlins, "unleash", "--dry-run", "--silent", "-o", out, p)
	cmd.Env = append(os.Environ(), "GOFLAGS=-run=^$") // it would run all tests for their coverage, which is not used
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gremlins on %s: %w\n%s", p, err, text)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var report struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type         string `json:"type"`
				Line, Column int
			} `json:"mutations"`
		} `json:"files"`
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		return nil, err
	}
	var all []mutant
	for _, f := range report.Files {
		path := filepath.Join(p, f.Name)
		tests, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*_test.go"))
		if err != nil {
			return nil, err
		}
		if len(tests) == 0 {
			continue // a package for tests, which has none
		}
		if here, err := build.Default.MatchFile(filepath.Dir(path), filepath.Base(path)); err != nil {
			return nil, err
		} else if !here {
			continue // for another system or build tag: no test here compiles it
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var of []mutant
		arithmetic := map[[2]int]bool{}
		for _, m := range f.Mutations {
			arithmetic[[2]int{m.Line, m.Column}] = arithmetic[[2]int{m.Line, m.Column}] || m.Type == "ARITHMETIC_BASE"
		}
		for _, m := range f.Mutations {
			if m.Type == "INVERT_NEGATIVES" && arithmetic[[2]int{m.Line, m.Column}] {
				continue // gremlins finds the same change twice
			}
			of = append(of, mutant{path: path, kind: m.Type, line: m.Line, column: m.Column})
		}
		if of, err = name(src, of); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, of...)
	}
	slices.SortFunc(all, inOrder)
	return all, nil
}

// fate is the result of running a mutant.
type fate string

const (
	killed fate = "killed" // a test failed
	halted fate = "halted" // it used up its CPU time, or its tests waited for too long
	lived  fate = "lived"
	missed fate = "missed" // no test reaches it
	broken fate = "broken" // it does not compile
)

// tryAll runs mutants, and returns the reasons for which the program has to fail.
func tryAll(p string, all []mutant, known map[string]string, temp string) (flaws []string, err error) {
	start := time.Now()
	count, ofFile := map[fate]int{}, map[string]map[fate]int{}
	seen := map[string]bool{}
	for dir, of := range byDir(all) {
		built, err := compile(dir, of, temp)
		if err != nil {
			return nil, err
		}
		ends := make([]fate, len(of))
		if err := each(len(of), func(i int) (err error) {
			if ends[i], err = tryOne(built, of[i], temp); ends[i] != killed && ends[i] != broken {
				fmt.Printf("%s: %s (line %d)\n", ends[i], of[i].name, of[i].line)
			}
			return err
		}); err != nil {
			return nil, err
		}
		for i, m := range of {
			seen[m.name] = true
			if ofFile[m.path] == nil {
				ofFile[m.path] = map[fate]int{}
			}
			count[ends[i]]++
			ofFile[m.path][ends[i]]++
			_, listed := known[m.name]
			if ends[i] == lived && !listed {
				flaws = append(flaws, fmt.Sprintf("not listed: %s (%s:%d:%d)", m.name, m.path, m.line, m.column))
			}
			if listed && ends[i] != lived {
				flaws = append(flaws, fmt.Sprintf("listed, and %s by now: %s", ends[i], m.name))
			}
		}
	}
	for n := range known {
		if path, _, _ := strings.Cut(n, " "); ofFile[path] != nil && !seen[n] {
			flaws = append(flaws, "listed, and gone: "+n)
		}
	}
	slices.Sort(flaws)
	for _, path := range slices.Sorted(maps.Keys(ofFile)) {
		fmt.Printf("%s: %s\n", path, sum(ofFile[path]))
	}
	fmt.Printf("%s: %s, %v\n", p, sum(count), time.Since(start).Round(time.Second))
	return append(flaws, tooFew(p, count)...), nil
}

// sum describes the results of all mutants in a line.
func sum(count map[fate]int) string {
	dead := count[killed] + count[halted]
	return fmt.Sprintf("%d killed of %d that tests reach, %d of them halted, %d lived; %d missed, %d do not compile",
		dead, dead+count[lived], count[halted], count[lived], count[missed], count[broken])
}

// tooFew returns the limits that are not met.
func tooFew(p string, count map[fate]int) (flaws []string) {
	dead := count[killed] + count[halted]
	there := dead + count[lived]
	if dead*100 < least*there {
		flaws = append(flaws, fmt.Sprintf("%s: %d of %d killed, want %d %%", p, dead, there, least))
	}
	if count[missed]*100 > most*(there+count[missed]) {
		flaws = append(flaws, fmt.Sprintf("%s: no test reaches %d of %d, want %d %% at most", p, count[missed], there+count[missed], most))
	}
	return flaws
}

// byDir yields the mutants of each directory, in order.
func byDir(all []mutant) iter.Seq2[string, []mutant] {
	return func(yield func(string, []mutant) bool) {
		of := map[string][]mutant{}
		for _, m := range all {
			of[filepath.Dir(m.path)] = append(of[filepath.Dir(m.path)], m)
		}
		for _, dir := range slices.Sorted(maps.Keys(of)) {
			if !yield(dir, of[dir]) {
				return
			}
		}
	}
}

func tryOne(built *together, m mutant, temp string) (fate, error) {
	if built != nil && built.number[m.name] != 0 {
		return built.try(built.number[m.name])
	}
	own, err := os.MkdirTemp(temp, "alone")
	if err != nil {
		return "", err
	}
	return tryAlone(m, own)
}

// tryAlone builds a mutant and runs it with its package's tests.
func tryAlone(m mutant, temp string) (fate, error) {
	src, err := os.ReadFile(m.path)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(src)
	if err != nil {
		return "", fmt.Errorf("%s:%d:%d: %w", m.path, m.line, m.column, err)
	}
	abs, err := filepath.Abs(m.path)
	if err != nil {
		return "", err
	}
	to := filepath.Join(temp, "mutant.go")
	if err := os.WriteFile(to, changed, 0o600); err != nil {
		return "", err
	}
	overlay, err := writeOverlay(temp, map[string]string{abs: to})
	if err != nil {
		return "", err
	}
	for _, from := range append([]string{filepath.Dir(m.path)}, strings.Fields(*with)...) {
		flags, err := testFlags(from, "")
		if err != nil {
			return "", err
		}
		args := append([]string{"test", "-vet=off", "-failfast", "-timeout=20m", "-overlay", overlay, "./" + from}, flags...)
		out, err := exec.Command("go", args...).CombinedOutput()
		if end, err := fateOf(out, err); err != nil || end != lived {
			return end, err
		}
	}
	return lived, nil
}

func writeOverlay(temp string, replace map[string]string) (string, error) {
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(temp, "overlay.json")
	return path, os.WriteFile(path, raw, 0o600)
}

// fateOf reads the end of a test's process.
func fateOf(out []byte, err error) (fate, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return lived, nil
	case !errors.As(err, &exit):
		return "", err
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return broken, nil
	case exit.ExitCode() < 0, bytes.Contains(out, []byte("panic: test timed out")):
		return halted, nil
	}
	return killed, nil
}
