package secretfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/access"
)

func write(t *testing.T, content string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWhoMayHaveAccess walks every mode of a file.
func TestWhoMayHaveAccess(t *testing.T) {
	path := write(t, "s3cret", 0o600)
	for mode := range fs.FileMode(0o1000) {
		if err := os.Chmod(path, mode|0o400); err != nil { // its owner can read it
			t.Fatal(err)
		}
		raw, err := Read(path)
		if good := mode&0o007 == 0 && mode&0o020 == 0; (err == nil) != good || good && string(raw) != "s3cret" {
			t.Errorf("mode %v: %q, %v", mode|0o400, raw, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}

// TestForeignOwner: another user may have written a file that this user owns, whatever its mode. Root gives
// a file away; anybody else looks at an own file as another process would.
func TestForeignOwner(t *testing.T) {
	path := write(t, "s3cret", 0o600)
	if raw, err := Read(path); err != nil || string(raw) != "s3cret" {
		t.Fatalf("its own: %q, %v", raw, err)
	}
	refused := func(_ []byte, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "it belongs to uid") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
	refused(read(path, func(info fs.FileInfo) access.Finding {
		return access.Process{UID: 12345}.Judge(info.Mode(), 23456, 0)
	}))
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 12345, 0); err != nil {
			t.Fatal(err)
		}
		refused(Read(path))
	}
}

func TestLengths(t *testing.T) {
	for n, good := range map[int]bool{0: false, 1: true, MaxBytes: true, MaxBytes + 1: false} {
		if raw, err := Read(write(t, strings.Repeat("x", n), 0o600)); (err == nil) != good || len(raw) != n && good {
			t.Errorf("%d bytes: %d, %v", n, len(raw), err)
		}
	}
	if _, err := Read(write(t, " \n\t\n", 0o600)); err == nil {
		t.Error("a blank file is a secret")
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("a directory is a secret")
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestHeadersAreChecked: an invalid header is refused, and the error does not repeat it.
func TestHeadersAreChecked(t *testing.T) {
	for content, good := range map[string]bool{
		"A: b\n": true, "A: b: c\n# x\n\nB-c:d": true, "a:\tb\tc \n": true,
		"A\n": false, ": b\n": false, "A b: c\n": false, "A : b\n": false, "A: b\na: c\n": false, "A: \n": false,
		"A: b\x00\n": false, "A: é\n": false, "Ä: b\n": false,
	} {
		path := write(t, content, 0o600)
		headers, err := Headers(path)
		if (err == nil) != good || good && headers["A"] == "" || err != nil && strings.Contains(strings.ReplaceAll(err.Error(), path, ""), strings.TrimSpace(content)) {
			t.Errorf("%q: %v, %v", content, headers, err)
		}
	}
	if headers, err := Headers(""); headers != nil || err != nil {
		t.Errorf("no file: %v, %v", headers, err)
	}
	if _, err := Headers(write(t, "A: b\n", 0o604)); err == nil {
		t.Error("headers that everybody can read are taken")
	}
}

func TestVariablesAreChecked(t *testing.T) {
	for content, want := range map[string]string{
		"A=1\n# B=2\n\n_c9 = no\n": "", "A=1\n\n# B=2\n _c9=x=y z \nE=": "[A=1 _c9=x=y z E=]",
		"A=s3cret\nA=2": "", "9A=s3cret": "", "A-B=s3cret": "", "s3cret": "", "=s3cret": "", "A=s3cret\x00": "", "\u017f=s3cret": "",
	} {
		got, err := Env(write(t, content, 0o600))
		if (err == nil) != (want != "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %q, %v", content, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error tells the secret: %v", content, err)
		}
	}
	if got, err := Env(""); err != nil || got != nil {
		t.Errorf("no file: %q, %v", got, err)
	}
	if _, err := Env(write(t, "A=1", 0o644)); err == nil {
		t.Error("a file that others can read was taken")
	}
}
