package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/engine"
)

// TestDirectoryThatCannotBeReadIsAnError: such a directory is not one without a store. Nor is a directory
// that does not exist, which some of the verbs treat as one without a store.
func TestDirectoryThatCannotBeReadIsAnError(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("nowhere", link)); err != nil {
		t.Fatal(err)
	}
	if _, err := HasStore(file); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file: %v", err)
	}
	for _, none := range []string{link, filepath.Join(dir, "none")} {
		if _, err := HasStore(none); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", none, err)
		}
	}
	if has, err := HasStore(t.TempDir()); has || err != nil {
		t.Errorf("an empty directory: %v %v", has, err)
	}
	store := t.TempDir()
	db, err := engine.Open(store, engine.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if has, err := HasStore(store); !has || err != nil {
		t.Errorf("a store: %v %v", has, err)
	}
}

func TestFrozenFor(t *testing.T) {
	for frozen, want := range map[string]string{
		"": "", "PERMISSION_DENIED: opened for reading": "", "STATE_CHECKSUM_MISMATCH: x": "STATE_CHECKSUM_MISMATCH: x",
	} {
		if got := FrozenFor(engine.Stats{Frozen: frozen}); got != want {
			t.Errorf("%q is told as %q", frozen, got)
		}
	}
}
