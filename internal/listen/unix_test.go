package listen

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestSocketsAreReplacedWhenNobodyAnswers: nothing else is replaced.
func TestSocketsAreReplacedWhenNobodyAnswers(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-s-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := Unix(path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := Unix(path, 0o600); tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("somebody listens: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // as a kill leaves it
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Unix(path, 0o600); err != nil {
		t.Fatalf("nobody listens any more: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(filepath.Join(dir, "nowhere", "s"), 0o600); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a directory that is not there: %v", err)
	}
	for what, make := range map[string]func() error{
		"a file":      func() error { return os.WriteFile(path, []byte("kept"), 0o600) },
		"a link":      func() error { return os.Symlink(filepath.Join(dir, "x"), path) },
		"a directory": func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if _, err := Unix(path, 0o600); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.Remove(path); err != nil {
			t.Errorf("%s is gone: %v", what, err)
		}
	}
}
