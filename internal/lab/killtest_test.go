package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRunsHaveAPlaceThatServersPass: for root, PostgreSQL runs as another user in a directory below that of
// the run. It must be able to reach that directory, wherever --data puts it.
func TestRunsHaveAPlaceThatServersPass(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, data := range []string{"", "."} {
		k := &killFlags{data: data}
		dir, err := k.place("tgad-kill-")
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o711 || !filepath.IsAbs(dir) {
			t.Errorf("--data %q: %s has mode %v, %v", data, dir, info.Mode(), err)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
}
