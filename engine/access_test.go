//go:build unix

package engine_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/schemas/tga"
)

// TestStoreIsItsUsersAlone: whatever the umask, every file and directory of a store, of a
// backup and of what was restored from it is for one user. It sets the umask of this
// process, so it runs alone.
func TestStoreIsItsUsersAlone(t *testing.T) {
	serial.Test(t)
	for _, umask := range []int{0, 0o022, 0o277} {
		top := t.TempDir()
		old := syscall.Umask(umask)
		func() {
			defer syscall.Umask(old)
			dir := filepath.Join(top, "above", "store")
			db, err := engine.Open(dir, engine.Options{MemTableBytes: 1 << 20, FirstSegmentBytes: 64 << 10, LowWaterBytes: 1})
			if err != nil {
				t.Fatal(err)
			}
			for i := range uint64(40) { // flushes and rotates: 1 MiB of log is one file
				run(t, db, spec{trace: id(i + 1), args: `{"fill":"` + noise(i, 1000) + `"}`})
			}
			if _, err := db.SealTraces(context.Background(), start+1<<40); err != nil {
				t.Error(err)
			}
			backup := filepath.Join(top, "backup")
			if err := db.Backup(context.Background(), backup); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			if err := engine.Restore(t.Context(), backup, filepath.Join(top, "restored"), engine.Options{}); err != nil {
				t.Error(err)
			}
		}()
		seen := map[string]int{}
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil || path == top {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if info.Mode().Perm() != want {
				t.Errorf("umask %#o: %s has mode %#o, want %#o", umask, path, info.Mode().Perm(), want)
			}
			seen[filepath.Ext(path)]++
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if seen[".log"] == 0 || seen[".sst"] == 0 || seen[".lock"] == 0 {
			t.Errorf("not every kind of file was seen: %v", seen)
		}
	}
}

// TestStoreThatOthersCanWriteIsRefused: a store is refused even if others can write only one of its
// files. For reading it is opened, so that an operator can examine it.
func TestStoreThatOthersCanWriteIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	var log strings.Builder
	o := engine.Options{FirstSegmentBytes: 64 << 10, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	reopen := func() error {
		log.Reset()
		db, err := engine.Open(dir, o)
		if err != nil {
			return err
		}
		return db.Close()
	}
	if err := reopen(); err != nil || strings.Contains(log.String(), "others") {
		t.Fatalf("%v %s", err, log.String())
	}
	mode := func(name string, m fs.FileMode) {
		t.Helper()
		if err := os.Chmod(filepath.Join(dir, name), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".", "WATERMARK"} {
		mode(name, 0o702)
		wantCode(t, reopen(), tga.PermissionDenied)
		db, err := engine.OpenReadOnly(dir, o)
		if err != nil {
			t.Fatalf("to look at it: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		mode(name, 0o770) // the test's own group
		if err := reopen(); err != nil || !strings.Contains(log.String(), "group") {
			t.Errorf("a group of the process's: %v %s", err, log.String())
		}
		mode(name, 0o700)
	}
	if os.Geteuid() == 0 {
		for _, name := range []string{".", "WATERMARK"} {
			path := filepath.Join(dir, name)
			for _, to := range [][2]int{{1, -1}, {-1, 1}} {
				if err := os.Chown(path, to[0], to[1]); err != nil {
					t.Fatal(err)
				}
				mode(name, 0o720)
				wantCode(t, reopen(), tga.PermissionDenied)
				if err := os.Chown(path, 0, 0); err != nil {
					t.Fatal(err)
				}
			}
			mode(name, 0o700)
		}
	}
	if err := reopen(); err != nil {
		t.Error(err)
	}
}
