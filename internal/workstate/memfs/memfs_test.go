package memfs_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/internal/workstate/memfs"
	"github.com/tgad/tgad/schemas/tga"
)

var bg = context.Background()

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func filled(t testing.TB) *memfs.FS {
	t.Helper()
	f := memfs.New()
	must(t, f.MkdirAll("src/deep/er", 0o755), f.MkdirAll("empty", 0o700),
		f.WriteFile("src/main.go", []byte("package main"), 0o644),
		f.WriteFile("src/deep/er/big", make([]byte, 200<<10), 0o600),
		f.WriteFile("none", nil, 0o644))
	return f
}

func TestFSIsAFileSystem(t *testing.T) {
	if err := fstest.TestFS(filled(t), "src/main.go", "src/deep/er/big", "none", "empty"); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(memfs.New()); err != nil {
		t.Error(err)
	}
}

func branch(f *memfs.FS) *memfs.FS { return f.Branch().(*memfs.FS) }

// TestBranchesConflictByPath walks pairs of changes made side by side: the first
// commits; the second must, or must not.
func TestBranchesConflictByPath(t *testing.T) {
	write := func(name string) func(*memfs.FS) error {
		return func(f *memfs.FS) error { return f.WriteFile(name, []byte("new "+name), 0o644) }
	}
	list := func(name string) func(*memfs.FS) error {
		return func(f *memfs.FS) error {
			_, err := f.ReadDir(name)
			return errors.Join(err, f.WriteFile("seen", nil, 0o644))
		}
	}
	for _, c := range []struct {
		name          string
		first, second func(*memfs.FS) error
		conflict      bool
	}{
		{"other files of one directory", write("src/a"), write("src/b"), false},
		{"the same new file", write("src/a"), write("src/a"), true},
		{"the same old file", write("none"), write("none"), true},
		{"read and write", write("none"), func(f *memfs.FS) error {
			_, err := f.ReadFile("none")
			return errors.Join(err, f.WriteFile("x", nil, 0o644))
		}, true},
		{"an absence that was seen", write("src/a"), func(f *memfs.FS) error { _, err := f.Stat("src/a"); _ = err; return f.WriteFile("x", nil, 0o644) }, true},
		{"listing and new file in it", write("src/a"), list("src"), true},
		{"listing and change of a file in it", write("src/main.go"), list("src"), false},
		{"remove of a directory and new file in it", write("empty/a"), func(f *memfs.FS) error { return f.RemoveAll("empty") }, true},
		{"new file in a directory that was removed", func(f *memfs.FS) error { return f.RemoveAll("empty") }, write("empty/a"), true},
		{"rename of a directory and write in it", write("src/deep/a"), func(f *memfs.FS) error { return f.Rename("src", "lib") }, true},
		{"rename beside", write("none"), func(f *memfs.FS) error { return f.Rename("src", "lib") }, false},
		{"chmod and chmod", func(f *memfs.FS) error { return f.Chmod("none", 0o600) }, func(f *memfs.FS) error { return f.Chmod("none", 0o640) }, true},
		{"the same directory made twice", func(f *memfs.FS) error { return f.MkdirAll("new", 0o755) }, func(f *memfs.FS) error { return f.MkdirAll("new", 0o755) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := filled(t)
			a, b := branch(f), branch(f)
			must(t, c.first(a), c.second(b), a.Check(false))
			a.Merge()
			err := b.Check(false)
			if got := errors.Is(err, tga.StateConflict); got != c.conflict {
				t.Fatalf("conflict: %v (%v), want %v", got, err, c.conflict)
			}
			if c.conflict {
				return
			}
			b.Merge()
			// Both changes, one after the other, in another file system.
			want := filled(t)
			must(t, c.first(want), c.second(want))
			x, err := f.Snapshot(bg)
			must(t, err)
			y, err := want.Snapshot(bg)
			must(t, err)
			if x.Digest() != y.Digest() {
				t.Error("merged side by side is not the same as one after the other")
			}
		})
	}
}

// TestRemovedDirectoryKeepsWhatOthersPutThere: a directory that one branch removes, and into which
// another has put a file, is a conflict although reads are ignored.
func TestRemovedDirectoryKeepsWhatOthersPutThere(t *testing.T) {
	for name, remove := range map[string]func(*memfs.FS) error{
		"remove":              func(f *memfs.FS) error { return f.Remove("empty") },
		"remove all":          func(f *memfs.FS) error { return f.RemoveAll("empty") },
		"rename":              func(f *memfs.FS) error { return f.Rename("empty", "full") },
		"remove and a file":   func(f *memfs.FS) error { return errors.Join(f.Remove("empty"), f.WriteFile("empty", nil, 0o644)) },
		"remove all and anew": func(f *memfs.FS) error { return errors.Join(f.RemoveAll("empty"), f.MkdirAll("empty", 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := filled(t)
			a, b := branch(f), branch(f)
			must(t, remove(a), b.WriteFile("empty/new", []byte("new"), 0o644), b.Check(true))
			b.Merge()
			err := a.Check(true)
			if err == nil {
				a.Merge()
			} else if !errors.Is(err, tga.StateConflict) {
				t.Error(err)
			}
			if got, err := f.ReadFile("empty/new"); string(got) != "new" {
				t.Errorf("the file of the other branch reads %q: %v", got, err)
			}
		})
	}
}

func TestDroppedBranchLeavesNothing(t *testing.T) {
	f := filled(t)
	before, err := f.Snapshot(bg)
	must(t, err)
	b := branch(f)
	must(t, b.RemoveAll("src"), b.WriteFile("empty/x", []byte("x"), 0o644), b.Rename("none", "some"))
	after, err := f.Snapshot(bg)
	must(t, err)
	if before.Digest() != after.Digest() {
		t.Error("a branch changed what it was made from")
	}
}

func TestErrorsAreThoseOfAFileSystem(t *testing.T) {
	f := filled(t)
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"no parent", f.WriteFile("no/such/file", nil, 0o644), fs.ErrNotExist},
		{"path", f.WriteFile("../x", nil, 0o644), fs.ErrInvalid},
		{"root", f.WriteFile(".", nil, 0o644), fs.ErrInvalid},
		{"remove of nothing", f.Remove("x"), fs.ErrNotExist},
		{"rename onto a directory", f.Rename("none", "empty"), fs.ErrExist},
		{"rename into itself", f.Rename("src", "src/deep/src"), fs.ErrExist},
		{"chmod of nothing", f.Chmod("x", 0o644), fs.ErrNotExist},
	} {
		var path *fs.PathError
		if !errors.Is(c.err, c.want) || !errors.As(c.err, &path) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
	for name, err := range map[string]error{
		"write of a directory": f.WriteFile("src", nil, 0o644), "file as directory": f.WriteFile("none/x", nil, 0o644),
		"remove of a full directory": f.Remove("src"), "mkdir over a file": f.MkdirAll("none/x", 0o755),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRestoreRefusesWhatIsNoTree(t *testing.T) {
	f := filled(t)
	before, err := f.Snapshot(bg)
	must(t, err)
	for name, n := range map[string]*workstate.Node{
		"bytes":      workstate.NewNode([]byte("x")),
		"kids":       workstate.NewNode(nil, workstate.NewNode(nil)),
		"other size": workstate.NewNode([]byte{1, 'a', 0, 1, 0xa4, 7}, workstate.NewNode([]byte("123"))),
		"dot-dot":    workstate.NewNode([]byte{2, '.', '.', 0, 1, 0xa4, 0}, workstate.NewNode(nil)),
	} {
		if err := f.Restore(bg, n); !errors.Is(err, tga.StateChecksumMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	after, err := f.Snapshot(bg)
	must(t, err)
	if before.Digest() != after.Digest() {
		t.Error("a refused restore changed the files")
	}
}
