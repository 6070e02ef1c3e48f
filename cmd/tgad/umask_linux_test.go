package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shell runs a line of sh in a directory. tgad in it is this program.
func shell(t *testing.T, dir, line string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", line)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

// TestWhatVerbsMakeIsTheirOwnersWhateverTheUmask: no verb makes a file or directory that its maker could not
// open again, whichever package makes it. Root can open everything, so root's files are checked by their
// mode.
func TestWhatVerbsMakeIsTheirOwnersWhateverTheUmask(t *testing.T) {
	t.Setenv("TGAD_SOCKET", "")
	for _, umask := range []string{"0277", "0777"} {
		dir := t.TempDir()
		for _, verb := range []string{
			"tgad init --data data --config tgad.toml",
			"tgad config check tgad.toml",
			"tgad evidence keygen a/b -o evidence.key",
			"tgad export --data data -o export",
			"tgad backup --data data --to backup",
			"tgad restore backup --data restored",
			"tgad verify restored",
		} {
			if said := shell(t, dir, "umask "+umask+"; "+verb); strings.Contains(said, "exit status") {
				t.Errorf("umask %s: %s: %s", umask, verb, said)
			}
		}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == dir {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			want := fs.FileMode(0o600)
			if d.IsDir() {
				want = 0o700
			}
			if info.Mode().Perm()&0o700 != want {
				t.Errorf("umask %s: %s has mode %v", umask, path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestKeyThatCouldNotBeWrittenIsNotThere: an incomplete key file would prevent the next attempt to make one.
func TestKeyThatCouldNotBeWrittenIsNotThere(t *testing.T) {
	dir := t.TempDir()
	if said := shell(t, dir, "ulimit -f 0; tgad evidence keygen a/b -o evidence.key"); !strings.Contains(said, "file too large") {
		t.Errorf("said %q", said)
	}
	if _, err := os.Lstat(filepath.Join(dir, "evidence.key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
	if said := shell(t, dir, "tgad evidence keygen a/b -o evidence.key"); !strings.HasPrefix(said, "a/b+") {
		t.Errorf("said %q", said)
	}
}

// TestVerifierThatCouldNotBeWrittenIsNotThere: half of a program that checks evidence checks half of it.
func TestVerifierThatCouldNotBeWrittenIsNotThere(t *testing.T) {
	dir := t.TempDir()
	if said := shell(t, dir, "ulimit -f 1; tgad evidence verifiers -o ."); !strings.Contains(said, "file too large") {
		t.Errorf("said %q", said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if said := shell(t, dir, "tgad evidence verifiers -o ."); said != "" {
		t.Errorf("said %q", said)
	}
}
