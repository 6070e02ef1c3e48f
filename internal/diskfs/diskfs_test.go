package diskfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestSystemsFilesAreTheUsersAlone: each way to make a file makes it for this user alone. Create takes the
// place of a file that is there, whose other links keep what they have; the others open it as it is.
func TestSystemsFilesAreTheUsersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	o := OS()
	if err := o.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	name := func(n string) string { return filepath.Join(dir, n) }
	mode := func(path string, want fs.FileMode) {
		t.Helper()
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	write := func(f vfs.File, err error, text string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write([]byte(text))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	is := func(path, want string) {
		t.Helper()
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%s has %q, want %q: %v", path, b, want, err)
		}
	}
	mode(dir, 0o700)
	f, err := o.Create(name("x"), vfs.WriteCategoryUnspecified)
	write(f, err, "first")
	mode(name("x"), 0o600)
	if err := os.Link(name("x"), name("link")); err != nil {
		t.Fatal(err)
	}
	f, err = o.Create(name("x"), vfs.WriteCategoryUnspecified)
	write(f, err, "new")
	is(name("x"), "new")
	is(name("link"), "first")
	mode(name("x"), 0o600)

	f, err = o.OpenReadWrite(name("y"), vfs.WriteCategoryUnspecified)
	write(f, err, "second")
	mode(name("y"), 0o600)
	f, err = o.OpenReadWrite(name("y"), vfs.WriteCategoryUnspecified)
	write(f, err, "SEC")
	is(name("y"), "SECond")

	for range 2 { // the file of a lock stays
		l, err := o.Lock(name("lock"))
		if err != nil {
			t.Fatal(err)
		}
		mode(name("lock"), 0o600)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	missing := filepath.Join(dir, "none", "x")
	if _, err := o.Create(missing, vfs.WriteCategoryUnspecified); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("create: %v", err)
	}
	if _, err := o.OpenReadWrite(missing, vfs.WriteCategoryUnspecified); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	if _, err := o.Lock(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock: %v", err)
	}
	if err := os.Mkdir(name("full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(name("full"), "z"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Create(name("full"), vfs.WriteCategoryUnspecified); err == nil {
		t.Error("a directory that is not empty makes way for a file")
	}
}

// TestSymbolicLinkGetsNoHardLink: a backup that is made of hard links would have the symbolic link in place of the file.
func TestSymbolicLinkGetsNoHardLink(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), nil, 0o600), os.Symlink(at("file"), at("symbolic"))); err != nil {
		t.Fatal(err)
	}
	if err := OS().Link(at("symbolic"), at("2")); err == nil {
		t.Error("a symbolic link has another link")
	}
	if err := OS().Link(at("file"), at("2")); err != nil {
		t.Error(err)
	}
}
