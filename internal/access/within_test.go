package access

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestWithinFollowsLinks: a path counts as the place where its file is or would be made, whether what
// a link leads to exists or not.
func TestWithinFollowsLinks(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(names ...string) string { return filepath.Join(append([]string{top}, names...)...) }
	err = errors.Join(os.MkdirAll(at("store", "below"), DirMode), os.MkdirAll(at("elsewhere", "deep"), DirMode))
	for link, target := range map[string]string{
		"to store":         at("store"),
		"to file":          at("store", "missing"),
		"relative":         filepath.Join("..", "store", "missing"),
		"twice":            at("elsewhere", "relative"),
		"to directory":     at("store", "missing", "directory"),
		"outside":          at("elsewhere", "missing"),
		"loop":             at("elsewhere", "loop"),
		"deep/by a link":   "../to store/missing",
		"deep/up and away": "../to store/../missing", // .. is that of the store
	} {
		err = errors.Join(err, os.Symlink(target, at("elsewhere", link)))
	}
	err = errors.Join(err, os.Symlink(at("store"), at("store by another name")), os.Symlink(at("elsewhere", "missing"), at("store", "out")))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"store": true, "store/below": true, "store/missing": true, "store/missing/deeper": true,
		"elsewhere": false, "storey": false, "store/../elsewhere": false, "missing": false, ".": false,
		"elsewhere/to store": true, "elsewhere/to store/below": true, "elsewhere/to store/missing": true,
		"elsewhere/to file": true, "elsewhere/relative": true, "elsewhere/twice": true, "elsewhere/twice/deeper": true,
		"elsewhere/to directory": true, "elsewhere/to directory/file": true, "elsewhere/outside": false, "elsewhere/outside/file": false,
		"elsewhere/loop": false, "elsewhere/loop/file": false, "elsewhere/deep/by a link": true, "elsewhere/deep/up and away": false,
		"store/out": false,
	} {
		for _, store := range []string{"store", "store by another name"} {
			if got := Within(at(path), at(store)); got != want {
				t.Errorf("%s in %s: %v", path, store, got)
			}
		}
	}
}

// TestTargetIsWhereLinksLead: what they lead to need not exist.
func TestTargetIsWhereLinksLead(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(top, name) }
	if err := errors.Join(os.MkdirAll(at("a/b"), DirMode), os.Symlink(at("a/b")+"/", at("deep")), os.Symlink("deep/../file", at("relative")),
		os.Symlink(at("relative"), at("twice")), os.Symlink(at("loop"), at("loop")), os.Symlink(at("none/file"), at("unmounted"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"none": "none", "a": "a", "deep": "a/b", "relative": "a/file", "twice": "a/file"} {
		if to, err := Target(at(path)); err != nil || to != at(want) {
			t.Errorf("%s leads to %s, want %s: %v", path, to, want, err)
		}
	}
	for _, path := range []string{"loop", "unmounted"} {
		if to, err := Target(at(path)); err == nil {
			t.Errorf("%s leads to %s", path, to)
		}
	}
}
