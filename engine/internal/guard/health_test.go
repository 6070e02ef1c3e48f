package guard

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/diskfs"
)

// TestHealthIsCheckedOnTheSystemsFiles: the health checks of Pebble wrap the operating system's file system
// and no other. If no limit is set, they use a default.
func TestHealthIsCheckedOnTheSystemsFiles(t *testing.T) {
	for _, base := range []vfs.FS{diskfs.OS(), vfs.Default} {
		f := FS(base, FSOptions{})
		if f.FS == base || f.health == nil {
			t.Errorf("%T: its health is not checked", base)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	mem := vfs.NewMem()
	f := FS(mem, FSOptions{})
	if f.FS != vfs.FS(mem) || f.health != nil {
		t.Error("the health of memory is checked")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
