package hostdir_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/runtime/workstate/hostdir"
)

// TestChangeThroughAMappingIsSeen: a program that keeps a file mapped changes it without a system call. On a file system
// without a disk (tmpfs) no time of the file says so.
func TestChangeThroughAMappingIsSeen(t *testing.T) {
	for _, at := range []string{"/dev/shm", t.TempDir()} {
		base, err := os.MkdirTemp(at, "tgad-mapped-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(base) })
		dir := filepath.Join(base, "w")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "mapped")
		if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(m) }()
		d, err := hostdir.Open(t.Context(), dir, filepath.Join(base, "s"), hostdir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		m[0] = 'a'
		waitForTick(t, d)
		first, err := d.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waitForTick(t, d)
		if _, err := d.Snapshot(t.Context()); err != nil { // its stamps are settled
			t.Fatal(err)
		}
		m[0] = 'b'
		waitForTick(t, d)
		second, err := d.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if first.Digest() == second.Digest() {
			t.Errorf("%s: the snapshot does not have the change", at)
		}
		if err := d.Restore(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(file); err != nil || b[0] != 'a' {
			t.Errorf("%s: %q, %v", at, b[0], err)
		}
	}
}
