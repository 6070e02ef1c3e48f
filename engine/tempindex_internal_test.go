package engine

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tgad/tgad/internal/filelock"
)

// TestTemporaryIndexesOutliveSweepers: many make temporary indexes at once, and each sweeps away what
// nobody has locked. Some of what is made is swept before its maker has the lock, and made again. What
// is handed out stays locked and in its place until it is removed.
func TestTemporaryIndexesOutliveSweepers(t *testing.T) {
	above := t.TempDir()
	t.Setenv("TMPDIR", above)
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			for range 40 {
				index, err := makeTempIndex()
				if err != nil {
					t.Error(err)
					return
				}
				index.sweep(slog.New(slog.DiscardHandler))
				if lock, err := filelock.TryDir(index.dir, tempIndexLock); err == nil {
					t.Errorf("another can lock a temporary index that is in use: %v", lock.Close())
				} else if !errors.Is(err, filelock.ErrHeld) {
					t.Error(err)
				}
				if err := index.lock.Check(); err != nil {
					t.Error(err)
				}
				if err := index.remove(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(index.dir); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a removed index: %v", err)
				}
			}
		})
	}
	makers.Wait()
	if left, err := filepath.Glob(filepath.Join(above, "*")); err != nil || len(left) != 0 {
		t.Errorf("%d are left, %v", len(left), err)
	}
}

// TestNoTemporaryIndexWithoutADirectory: where none can be made, the error says so, and nothing is tried
// a hundred times.
func TestNoTemporaryIndexWithoutADirectory(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	if index, err := makeTempIndex(); index != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %v", index, err)
	}
}
