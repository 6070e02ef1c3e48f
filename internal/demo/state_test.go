//go:build unix

package demo

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestEveryClaimOfTheStateScenarioIsSo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	o := build()
	failed, err := RunState(ctx, Options{Exe: o.Exe, Lab: o.Lab, Out: &out, Seed: 7, Points: 4})
	if err != nil || failed != 0 {
		t.Fatalf("%d claims failed, %v\n%s", failed, err, out.String())
	}
	for part := '1'; part <= '5'; part++ {
		if !strings.Contains(out.String(), "\n"+string(part)+"  ") {
			t.Errorf("no part %c in\n%s", part, out.String())
		}
	}
	for _, l := range strings.Split(out.String(), "\n") {
		if n := utf8.RuneCountInString(l); n > 82 {
			t.Errorf("a line of %d characters: %q", n, l)
		}
	}
}

// TestWitnessSeesEveryChange: the comparison of workspaces can fail, on each kind of path.
func TestWitnessSeesEveryChange(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		".env":         func(dir string) error { return os.WriteFile(filepath.Join(dir, ".env"), []byte("x"), 0o600) },
		"bin/run":      func(dir string) error { return os.Chmod(filepath.Join(dir, "bin/run"), 0o754) },
		"empty":        func(dir string) error { return os.Remove(filepath.Join(dir, "empty")) },
		"src":          func(dir string) error { return os.Chmod(filepath.Join(dir, "src"), 0o750) },
		"new":          func(dir string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o644) },
		".git/HEAD":    func(dir string) error { return os.Remove(filepath.Join(dir, ".git/HEAD")) },
		"current":      func(dir string) error { return relink(filepath.Join(dir, "current"), "src/part02.go") },
		"src/part.sub": func(dir string) error { return os.Symlink("x", filepath.Join(dir, "src/part.sub")) },
	} {
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			dir := t.TempDir()
			was, err := layOut(dir)
			if err != nil {
				t.Fatal(err)
			}
			again, err := manifestOf(dir)
			if err != nil || len(was) < workspaceFiles || len(was.differs(again)) != 0 {
				t.Fatalf("unchanged: %v %v", was.differs(again), err)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			is, err := manifestOf(dir)
			if err != nil {
				t.Fatal(err)
			}
			if d := was.differs(is); len(d) != 1 || d[0] != name {
				t.Errorf("differs in %v", d)
			}
		})
	}
}

func layOut(dir string) (manifest, error) {
	if err := layWorkspace(dir, 1); err != nil {
		return nil, err
	}
	return manifestOf(dir)
}

func relink(name, to string) error {
	if err := os.Remove(name); err != nil {
		return err
	}
	return os.Symlink(to, name)
}

// TestRefactoringIsDrawnFromItsSeed: one seed, one result, and it stops where it is told.
func TestRefactoringIsDrawnFromItsSeed(t *testing.T) {
	after := func(seed, r uint64) manifest {
		t.Helper()
		dir := t.TempDir()
		if err := layWorkspace(dir, seed); err != nil {
			t.Fatal(err)
		}
		if err := (refactoring{Seed: r}).apply(dir, nil); err != nil {
			t.Fatal(err)
		}
		m, err := manifestOf(dir)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a := after(1, 5)
	if d := a.differs(after(1, 5)); len(d) != 0 {
		t.Errorf("one seed, two results: %v", d)
	}
	if len(a.differs(after(2, 5))) == 0 || len(a.differs(after(1, 6))) == 0 {
		t.Error("another seed, the same result")
	}
	for _, stop := range []int{1, workspaceFiles - 1} { // the first and the last file that the refactoring writes
		dir := t.TempDir()
		if _, err := layOut(dir); err != nil {
			t.Fatal(err)
		}
		if err := (refactoring{Seed: 5, Stop: stop}).apply(dir, func() error { return fs.ErrClosed }); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("stop at file %d: %v", stop, err)
		}
	}
	dir := t.TempDir()
	if _, err := layOut(dir); err != nil {
		t.Fatal(err)
	}
	if err := (refactoring{Seed: 5, Stop: workspaceFiles}).apply(dir, func() error { return fs.ErrClosed }); err != nil {
		t.Errorf("there is no file %d, and it stopped: %v", workspaceFiles, err)
	}
}
