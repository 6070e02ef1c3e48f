//go:build unix

package filelock

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestHeldIsSeenFromOutside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	want := func(at string, wantHeld, wantKnown bool) {
		t.Helper()
		if held, known := Held(at); held != wantHeld || known != wantKnown {
			t.Errorf("%s: held %v, known %v; want %v, %v", at, held, known, wantHeld, wantKnown)
		}
	}
	f, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	want(path, true, true)
	want(path, true, true) // looking does not take the lock
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	want(path, false, true)
	if uid, ok := Owner(path); !ok || int(uid) != os.Getuid() {
		t.Errorf("owner %d, %v", uid, ok)
	}
	want(filepath.Join(dir, "none"), false, true)
	want(filepath.Join(dir, "none", "lock"), false, false)
	want("lock", false, false) // no directory is given
	want(dir, false, false)
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	want(link, false, false)
	want(pipe, false, false)
	for _, path := range []string{link, pipe, dir, filepath.Join(dir, "none")} {
		if _, ok := Owner(path); ok {
			t.Errorf("%s has an owner", path)
		}
	}
}

// TestPipeIsNoLock: to read from a pipe would wait for a writer.
func TestPipeIsNoLock(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "lock")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := LockDir(dir, "lock")
		ended <- err
	}()
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // for both, so that a reader gets what is written
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("1\n"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a pipe is locked")
	}
	if pid := Holder(pipe); pid != 0 {
		t.Errorf("process %d has it", pid)
	}
}
