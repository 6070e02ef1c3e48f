package access

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestNewDirectoriesAreDurable: the parents of new directories are synced, and for an existing directory the
// one above it. If a sync fails, an error is returned.
func TestNewDirectoriesAreDurable(t *testing.T) {
	defer func() { syncDir = SyncDir }()
	var synced []string
	failing := ""
	syncDir = func(dir string) error {
		synced = append(synced, dir)
		if dir == failing {
			return errors.New("planted")
		}
		return SyncDir(dir)
	}
	top := t.TempDir()
	a, b := filepath.Join(top, "a"), filepath.Join(top, "a", "b")
	c := filepath.Join(b, "c")
	for _, want := range [][]string{{b, a, top}, {b}} {
		synced = nil
		if err := MkdirDurable(c); err != nil || !slices.Equal(synced, want) {
			t.Errorf("synced %q, %v, want %q", synced, err, want)
		}
	}
	if info, err := os.Stat(c); err != nil || info.Mode().Perm() != DirMode {
		t.Errorf("%v %v", info, err)
	}
	failing = top
	if err := MkdirDurable(filepath.Join(top, "d", "e")); err == nil {
		t.Error("a directory whose name is not durable")
	}
	file := filepath.Join(top, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), MkdirDurable(file)); err == nil {
		t.Error("a file is no directory")
	}
}
