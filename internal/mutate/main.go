// Command mutate says which changes of the code no test notices.
//
//	go run ./internal/mutate -gremlins PATH [-list FILE] [-only TEXT] PACKAGE...
//
// Gremlins finds the mutants of each package and of those below it: one operator each,
// such as < for <=. Every mutant is run with its own package's tests, through an overlay,
// so the tree is not touched. Gremlins itself would take one that does not compile for one
// that was killed, and would not run conditions of a case and constants, for which Go's
// coverage has no counter: here all of them are run.
//
// A mutant that no test notices stands in the list, with the reason why it is equivalent to
// the code. The program exits 1 where one is not listed, where a listed one is gone or is
// killed by now, and where fewer than 97 % are killed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// least is how many of 100 mutants must be killed.
const least = 97

func main() {
	gremlins := flag.String("gremlins", "gremlins", "the command")
	list := flag.String("list", "internal/mutate/survivors.txt", "the survivors and why")
	only := flag.String("only", "", "run the mutants of files whose path has this in it")
	flag.Parse()
	if err := run(*gremlins, *list, *only, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(gremlins, list, only string, packages []string) (err error) {
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
		all = slices.DeleteFunc(all, func(m mutant) bool { return !strings.Contains(m.path, only) })
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

// find returns the mutants of a package and of those below it.
func find(gremlins, dir, p string) ([]mutant, error) {
	out := filepath.Join(dir, "found.json")
	cmd := exec.Command(gremlins, "unleash", "--dry-run", "--silent", "-o", out, p)
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
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var of []mutant
		for _, m := range f.Mutations {
			of = append(of, mutant{path: path, kind: m.Type, line: m.Line, column: m.Column})
		}
		if of, err = name(src, of); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, of...)
	}
	return all, nil
}

// tryAll runs mutants, and returns what is wrong with them.
func tryAll(p string, all []mutant, known map[string]string, dir string) (flaws []string, err error) {
	killed, lived, broken, start := 0, 0, 0, time.Now()
	seen := map[string]bool{}
	for _, m := range all {
		seen[m.name] = true
		fate, err := try(m, dir)
		if err != nil {
			return nil, err
		}
		_, listed := known[m.name]
		switch fate {
		case "killed":
			killed++
			if listed {
				flaws = append(flaws, "listed, and killed by now: "+m.name)
			}
		case "lived":
			lived++
			if !listed {
				flaws = append(flaws, fmt.Sprintf("not listed: %s (%s:%d:%d)", m.name, m.path, m.line, m.column))
				fmt.Printf("lived: %s (line %d)\n", m.name, m.line)
			}
		default:
			broken++
		}
	}
	paths := map[string]bool{}
	for _, m := range all {
		paths[m.path] = true
	}
	for n := range known {
		if path, _, _ := strings.Cut(n, " "); paths[path] && !seen[n] {
			flaws = append(flaws, "listed, and gone: "+n)
		}
	}
	slices.Sort(flaws)
	fmt.Printf("%s: %d killed of %d, %d lived, %d do not compile, %v\n", p, killed, killed+lived, lived, broken, time.Since(start).Round(time.Second))
	if killed*100 < least*(killed+lived) {
		flaws = append(flaws, fmt.Sprintf("%s: %d of %d killed, want %d %%", p, killed, killed+lived, least))
	}
	return flaws, nil
}

// try runs a mutant with its package's tests: killed, lived, or broken where it does not
// compile.
func try(m mutant, dir string) (string, error) {
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
	to, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{abs: to}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(to, changed, 0o600), os.WriteFile(overlay, raw, 0o600)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-failfast", "-timeout=2m", "-overlay", overlay, "./"+filepath.Dir(m.path)).CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "lived", nil
	case !errors.As(err, &exit):
		return "", err
	case strings.Contains(string(out), "[build failed]"), strings.Contains(string(out), "[setup failed]"):
		return "broken", nil
	}
	return "killed", nil
}
