package hostdir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tgad/tgad/runtime/workstate/hostdir"
)

// TestWhatStoodInADirectoryIsGoneUnderALink: in the snapshot a directory was a file, or a link to any
// place. After the restore no name leads to the files that were in the directory.
func TestWhatStoodInADirectoryIsGoneUnderALink(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, at string) error{
		"file":            func(_ *testing.T, at string) error { return os.WriteFile(at, []byte("x"), 0o644) },
		"link to itself":  func(_ *testing.T, at string) error { return os.Symlink(at, at) },
		"link to a file":  func(_ *testing.T, at string) error { return os.Symlink("text", at) },
		"link to nothing": func(_ *testing.T, at string) error { return os.Symlink("nothing", at) },
		"link outside":    func(t *testing.T, at string) error { return os.Symlink(t.TempDir(), at) },
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, hostdir.Options{})
			write(t, d, "text", "text", 0o644)
			at := filepath.Join(d.Path(), "a")
			must(t, make(t, at))
			before, node := tree(t, d.Path()), snapshot(t, d)
			must(t, os.Remove(at))
			write(t, d, "a/x/deep/file", "new", 0o644)
			must(t, d.Restore(bg, node))
			for _, line := range diff(before, tree(t, d.Path())) {
				t.Error(line)
			}
		})
	}
}
