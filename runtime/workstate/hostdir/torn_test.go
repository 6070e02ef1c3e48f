package hostdir

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTornCopies: a copy of a file that was written meanwhile fails the snapshot only
// where the file still stands at its path when the copy ends. The file that stands there
// later may have its inode, and says nothing.
func TestTornCopies(t *testing.T) {
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		meanwhile, after func(t *testing.T, path string)
		gone, fails      bool
	}{
		"rests":                     {},
		"removed":                   {meanwhile: func(_ *testing.T, path string) { _ = os.Remove(path) }},
		"written":                   {meanwhile: func(t *testing.T, path string) { write(t, path, "longer") }, fails: true},
		"written, replaced by then": {meanwhile: func(t *testing.T, path string) { write(t, path, "longer"); _ = os.Remove(path); write(t, path, "x") }, gone: true},
		"written, removed by then":  {meanwhile: func(t *testing.T, path string) { write(t, path, "longer"); _ = os.Remove(path) }, gone: true},
		"written, removed later": {
			meanwhile: func(t *testing.T, path string) { write(t, path, "longer") },
			after:     func(_ *testing.T, path string) { _ = os.Remove(path) }, gone: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			write(t, path, "x")
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			d, c := &Dir{path: dir}, &copied{root: root, all: map[string]found{"file": {}}}
			file, err := c.open("file")
			if err != nil {
				t.Fatal(err)
			}
			if tc.meanwhile != nil {
				tc.meanwhile(t, path)
			}
			if err := c.whole("file", file); err != nil {
				t.Fatal(err)
			}
			file.Close()
			if tc.after != nil {
				tc.after(t, path)
			}
			// What stands there now has the inode of the file that was copied.
			if info, err := os.Lstat(path); err == nil {
				f := c.all["file"]
				f.stamp.ino = stampOf(info).ino
				c.all["file"] = f
			}
			if err := d.drop(c); (err != nil) != tc.fails {
				t.Errorf("the snapshot: %v", err)
			}
			if gone := len(c.gone) > 0; gone != tc.gone {
				t.Errorf("gone: %v", c.gone)
			}
		})
	}
}
