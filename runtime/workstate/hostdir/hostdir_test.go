package hostdir_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

var bg = context.Background()

func must(t interface {
	Helper()
	Fatal(...any)
}, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func open(t testing.TB, o hostdir.Options) *hostdir.Dir {
	t.Helper()
	work := filepath.Join(t.TempDir(), "work")
	must(t, os.Mkdir(work, 0o755))
	d, err := hostdir.Open(bg, work, filepath.Join(t.TempDir(), "shadow"), o)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() }) // a test may have closed it
	return d
}

// tree describes everything below a directory: type, mode, content.
func tree(t interface {
	Helper()
	Fatal(...any)
}, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			content, err = os.Readlink(path)
		}
		rel, _ := filepath.Rel(dir, path)
		all[rel] = fmt.Sprintf("%v %q", info.Mode(), content)
		return err
	}))
	return all
}

func diff(a, b map[string]string) (out []string) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if a[name] != b[name] {
			out = append(out, fmt.Sprintf("%q: %s, want %s", name, b[name], a[name]))
		}
	}
	return out
}

func write(t testing.TB, d *hostdir.Dir, name, text string, perm fs.FileMode) {
	t.Helper()
	path := filepath.Join(d.Path(), name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), perm), os.Chmod(path, perm))
}

func snapshot(t interface {
	Helper()
	Fatal(...any)
}, d *hostdir.Dir) *workstate.Node {
	t.Helper()
	n, err := d.Snapshot(bg)
	must(t, err)
	return n
}

func git(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// TestRestoreIsExact: whatever a tool does to a directory with all kinds of unusual files, a restore
// makes it as before, and a second snapshot equals the first.
func TestRestoreIsExact(t *testing.T) {
	d := open(t, hostdir.Options{})
	w := d.Path()
	write(t, d, "src/main.go", "package main\r\n", 0o644)
	write(t, d, "run.sh", "#!/bin/sh\n", 0o755)
	write(t, d, ".env", "SECRET=1\n", 0o600)
	write(t, d, ".gitignore", ".env\nbuild/\n*.log\n", 0o644)
	write(t, d, ".gitattributes", "* text=auto eol=crlf\n*.bin filter=lfs\n", 0o644)
	write(t, d, "build/out.o", "binary\x00\xff", 0o644)
	write(t, d, "read-only", "r", 0o444)
	write(t, d, "sticky", "s", 0o4755)
	write(t, d, "with\nline", "feed", 0o644)
	write(t, d, "\"quoted\"", "q", 0o644)
	write(t, d, "not\xffutf8", "u", 0o644)
	write(t, d, "empty-file", "", 0o644)
	write(t, d, "locked/inside", "i", 0o400)
	write(t, d, "vendor/lib/file", "v", 0o644)
	must(t, os.MkdirAll(filepath.Join(w, "empty/dir"), 0o750), os.Symlink("src/main.go", filepath.Join(w, "link")),
		os.Symlink("/nowhere/at all", filepath.Join(w, "dangling")), os.Symlink("src", filepath.Join(w, "to-dir")))
	git(t, w, "init", "-q")
	git(t, w, "add", ".")
	git(t, w, "commit", "-q", "-m", "one")
	git(t, filepath.Join(w, "vendor/lib"), "init", "-q")
	must(t, os.Chmod(filepath.Join(w, "locked"), 0o555))
	t.Cleanup(func() { must(t, os.Chmod(filepath.Join(w, "locked"), 0o755)) })
	before := tree(t, w)
	n := snapshot(t, d)

	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "main.go"), []byte("outside"), 0o644))
	must(t, os.Chmod(filepath.Join(w, "locked"), 0o755), os.RemoveAll(filepath.Join(w, "locked")),
		os.RemoveAll(filepath.Join(w, "src")), os.Symlink(outside, filepath.Join(w, "src")),
		os.RemoveAll(filepath.Join(w, "empty")), os.WriteFile(filepath.Join(w, "empty"), []byte("a file now"), 0o644),
		os.Remove(filepath.Join(w, "link")), os.MkdirAll(filepath.Join(w, "link/dir"), 0o755),
		os.Remove(filepath.Join(w, ".env")), os.Chmod(filepath.Join(w, "run.sh"), 0o600),
		os.WriteFile(filepath.Join(w, "build/new.log"), []byte("ignored"), 0o644),
		os.MkdirAll(filepath.Join(w, "shut"), 0o755), os.WriteFile(filepath.Join(w, "shut/x"), nil, 0o644), os.Chmod(filepath.Join(w, "shut"), 0),
		os.RemoveAll(filepath.Join(w, ".git/refs")), os.WriteFile(filepath.Join(w, ".git/HEAD"), []byte("broken"), 0o644))
	after := snapshotFails(t, d) // a directory that can't be read can't be kept
	if after && os.Getuid() != 0 {
		t.Error("a snapshot of what can't be read")
	}
	must(t, d.Restore(bg, n))
	for _, line := range diff(before, tree(t, w)) {
		t.Error(line)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "main.go")); err != nil || string(b) != "outside" {
		t.Errorf("a file outside the directory was changed: %q %v", b, err)
	}
	if again := snapshot(t, d); again.Digest() != n.Digest() {
		t.Error("equal content gives another snapshot")
	}
	git(t, w, "status") // it is a repository as before
}

// snapshotFails says whether a snapshot could be taken.
func snapshotFails(t *testing.T, d *hostdir.Dir) bool {
	t.Helper()
	_, err := d.Snapshot(bg)
	if err != nil && !errors.Is(err, tga.GenericStateError) {
		t.Error(err)
	}
	return err == nil
}

// TestUnchangedFilesAreNotTouched: a file whose content is right keeps its inode, so a
// process that has it open does not notice.
func TestUnchangedFilesAreNotTouched(t *testing.T) {
	d := open(t, hostdir.Options{})
	write(t, d, "same", "s", 0o644)
	write(t, d, "other", "o", 0o644)
	inode := func(name string) uint64 {
		info, err := os.Stat(filepath.Join(d.Path(), name))
		must(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	snapshot(t, d)
	// The stamps of files that were only just written are not trusted.
	must(t, os.Chtimes(filepath.Join(d.Path(), "same"), fixed, fixed))
	waitForTick(t, d)
	n := snapshot(t, d)
	was := inode("same")
	write(t, d, "other", "changed", 0o644)
	must(t, d.Restore(bg, n))
	if inode("same") != was {
		t.Error("a file that was right was written")
	}
}

// TestUserConfigurationHasNoSay: no environment variable, no file of the user and no git attribute
// changes the content of a snapshot.
func TestUserConfigurationHasNoSay(t *testing.T) {
	home := t.TempDir()
	must(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[core]\n\tautocrlf = true\n\texcludesFile = /dev/null\n\thooksPath = /nonexistent\n[filter \"lfs\"]\n\tclean = false\n\trequired = true\n"), 0o644))
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", filepath.Join(home, "other"))
	t.Setenv("GIT_INDEX_FILE", filepath.Join(home, "index"))
	t.Setenv("GIT_OBJECT_DIRECTORY", filepath.Join(home, "objects"))
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.autocrlf")
	t.Setenv("GIT_CONFIG_VALUE_0", "true")
	d := open(t, hostdir.Options{})
	write(t, d, "text", "a\nb\r\nc\n", 0o644)
	write(t, d, ".gitattributes", "* text eol=crlf filter=lfs\n", 0o644)
	before := tree(t, d.Path())
	n := snapshot(t, d)
	must(t, os.Remove(filepath.Join(d.Path(), "text")), d.Restore(bg, n))
	for _, line := range diff(before, tree(t, d.Path())) {
		t.Error(line)
	}
	list, err := os.ReadDir(home)
	must(t, err)
	if len(list) != 1 {
		t.Errorf("something was written where the environment points: %v", list)
	}
}

func TestExcludedPathsAreLeftAlone(t *testing.T) {
	d := open(t, hostdir.Options{Exclude: []string{"node_modules", "data/cache/"}})
	write(t, d, "node_modules/a", "a", 0o644)
	write(t, d, "data/cache/b", "b", 0o644)
	n := snapshot(t, d)
	write(t, d, "node_modules/a", "changed", 0o644)
	write(t, d, "node_modules/new", "new", 0o644)
	must(t, os.RemoveAll(filepath.Join(d.Path(), "data/cache")))
	must(t, d.Restore(bg, n))
	got := tree(t, d.Path())
	if !strings.Contains(got["node_modules/a"], "changed") || got["node_modules/new"] == "" || got["data/cache"] != "" {
		t.Errorf("left: %v", got)
	}
}

// TestRandomEditsAreTakenBack runs random programs of edits and restores, and compares with
// snapshots in memory.
func TestRandomEditsAreTakenBack(t *testing.T) {
	d := open(t, hostdir.Options{})
	type kept struct {
		node *workstate.Node
		tree map[string]string
	}
	rapid.Check(t, func(t *rapid.T) {
		var all []kept
		names := []string{"a", "b", "a/x", "a/y", "b/z", "c", "c/.git", ".git/config", "a/x/deep"}
		path := func(label string) string {
			return filepath.Join(d.Path(), rapid.SampledFrom(names).Draw(t, label))
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			// Errors of these are the file system's answers to edits that make no sense.
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0:
				_ = os.MkdirAll(path("dir"), 0o755)
			case 1, 2:
				_ = os.WriteFile(path("file"), []byte(fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "text"))), 0o644)
			case 3:
				_ = os.RemoveAll(path("gone"))
			case 4:
				_ = os.Symlink(path("target"), path("link"))
			case 5:
				_ = os.Rename(path("from"), path("to"))
			case 6:
				p := path("mode")
				if info, err := os.Lstat(p); err == nil && info.Mode()&fs.ModeSymlink == 0 {
					_ = os.Chmod(p, fs.FileMode(0o700|rapid.IntRange(0, 0o77).Draw(t, "perm")))
				}
			case 7:
				all = append(all, kept{snapshot(t, d), tree(t, d.Path())})
				continue
			}
			if len(all) > 0 && rapid.IntRange(0, 3).Draw(t, "restore") == 0 {
				to := rapid.SampledFrom(all).Draw(t, "to")
				must(t, d.Restore(bg, to.node))
				if bad := diff(to.tree, tree(t, d.Path())); len(bad) > 0 {
					t.Fatalf("after a restore:\n%s", strings.Join(bad, "\n"))
				}
			}
		}
	})
}

// TestManyFilesAreKeptLikeFew: at the number that is stored one by one, and past it, with
// everything that has a way of its own among them.
func TestManyFilesAreKeptLikeFew(t *testing.T) {
	var first *workstate.Node
	for _, n := range []int{60, 61, 400} {
		d := open(t, hostdir.Options{})
		for i := range n {
			write(t, d, fmt.Sprintf("d%d/f%d", i%7, i), fmt.Sprint(i, "\ndata 3\n"), 0o644)
		}
		write(t, d, "with\nline", "feed", 0o600)
		write(t, d, "big", strings.Repeat("0123456789", 300_000), 0o644)
		write(t, d, "none", "", 0o644)
		must(t, os.Symlink("big\nand small", filepath.Join(d.Path(), "link")))
		before := tree(t, d.Path())
		node := snapshot(t, d)
		must(t, os.RemoveAll(filepath.Join(d.Path(), "d3")), os.Remove(filepath.Join(d.Path(), "link")), os.WriteFile(filepath.Join(d.Path(), "big"), nil, 0o644))
		must(t, d.Restore(bg, node))
		for _, line := range diff(before, tree(t, d.Path())) {
			t.Errorf("%d files: %s", n, line[:min(len(line), 200)])
		}
		switch n {
		case 60:
			first = node
		case 61:
			must(t, os.Remove(filepath.Join(d.Path(), "d4/f60")))
			if got := snapshot(t, d); got.Digest() != first.Digest() {
				t.Error("what was stored in bulk has another digest than what was not")
			}
		}
	}
}

// TestTornCopiesAreNotKept: a file that changes while git reads it is read again; a file that
// changes all the time makes the snapshot fail.
func TestTornCopiesAreNotKept(t *testing.T) {
	for _, changes := range []int{1, 1000} {
		work, at := t.TempDir(), t.TempDir()
		git, err := exec.LookPath("git")
		must(t, err)
		left, busy, script := filepath.Join(at, "left"), filepath.Join(work, "busy"), filepath.Join(at, "git")
		text := fmt.Sprintf("#!/bin/sh\n%s \"$@\" || exit $?\ncase \" $* \" in *hash-object*) n=$(cat %[2]s); if [ $n -gt 0 ]; then echo $((n-1)) > %[2]s; echo more >> %[3]s; fi;; esac\n", git, left, busy)
		must(t, os.WriteFile(left, []byte(fmt.Sprint(changes)), 0o644), os.WriteFile(busy, []byte("x"), 0o644), os.WriteFile(script, []byte(text), 0o755))
		d, err := hostdir.Open(bg, work, filepath.Join(at, "shadow"), hostdir.Options{Git: script})
		must(t, err)
		n, err := d.Snapshot(bg)
		if changes > 1 {
			if !errors.Is(err, tga.GenericStateError) || !strings.Contains(err.Error(), "busy") {
				t.Errorf("a file that never rests: %v", err)
			}
		} else {
			must(t, err)
			must(t, os.Remove(busy), d.Restore(bg, n))
			if b, err := os.ReadFile(busy); err != nil || string(b) != "xmore\n" {
				t.Errorf("restored %q (%v)", b, err)
			}
		}
		must(t, d.Close())
	}
}

func TestForeignSnapshotsAreRefused(t *testing.T) {
	d := open(t, hostdir.Options{})
	write(t, d, "a", "a", 0o644)
	before := tree(t, d.Path())
	for name, data := range map[string]string{
		"unknown tree": `{"tree":"` + strings.Repeat("ab", 20) + `"}`, "an option": `{"tree":"--output=/tmp/x"}`, "no JSON": `x`,
	} {
		if err := d.Restore(bg, workstate.NewNode([]byte(data))); !errors.Is(err, tga.SnapshotMismatch) {
			t.Errorf("%s: %v, want SNAPSHOT_MISMATCH", name, err)
		}
	}
	for _, line := range diff(before, tree(t, d.Path())) {
		t.Error(line)
	}
}

func TestRepositoryLiesOutside(t *testing.T) {
	work := t.TempDir()
	must(t, os.Mkdir(filepath.Join(work, "in"), 0o755))
	for name, pair := range map[string][2]string{
		"repository inside": {work, filepath.Join(work, "shadow")}, "directory inside": {filepath.Join(work, "in"), work}, "the same": {work, work},
	} {
		if _, err := hostdir.Open(bg, pair[0], pair[1], hostdir.Options{}); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: %v, want VALIDATION_ERROR", name, err)
		}
	}
}

func TestOneDirHasARepository(t *testing.T) {
	work, shadow := t.TempDir(), t.TempDir()
	d, err := hostdir.Open(bg, work, shadow, hostdir.Options{})
	must(t, err)
	if _, err := hostdir.Open(bg, work, shadow, hostdir.Options{}); !errors.Is(err, tga.StateLockAcquireFailed) {
		t.Errorf("a second: %v, want STATE_LOCK_ACQUIRE_FAILED", err)
	}
	must(t, d.Close())
	d, err = hostdir.Open(bg, work, shadow, hostdir.Options{})
	must(t, err, d.Close())
}

// TestCollectKeepsSnapshotsThatAreLive, and no others.
func TestCollectKeepsSnapshotsThatAreLive(t *testing.T) {
	d := open(t, hostdir.Options{})
	var nodes []*workstate.Node
	var trees []map[string]string
	for i := range 3 {
		write(t, d, "file", strings.Repeat(fmt.Sprint(i), 1000), 0o644)
		write(t, d, fmt.Sprint("only-", i), fmt.Sprint(i), 0o644)
		nodes, trees = append(nodes, snapshot(t, d)), append(trees, tree(t, d.Path()))
	}
	must(t, d.Collect(bg, nodes[:1]), d.Collect(bg, nodes[:1]))
	must(t, d.Restore(bg, nodes[0]))
	for _, line := range diff(trees[0], tree(t, d.Path())) {
		t.Error(line)
	}
	if err := d.Restore(bg, nodes[1]); !errors.Is(err, tga.SnapshotMismatch) {
		t.Errorf("a snapshot that nobody refers to: %v, want SNAPSHOT_MISMATCH", err)
	}
	// What was forgotten is kept anew when it stands there again.
	write(t, d, "file", strings.Repeat("1", 1000), 0o644)
	write(t, d, "only-1", "1", 0o644)
	again := snapshot(t, d)
	must(t, d.Restore(bg, nodes[0]), d.Restore(bg, again))
	for _, line := range diff(trees[1], tree(t, d.Path())) {
		t.Error(line)
	}
}

func TestDiffNamesPaths(t *testing.T) {
	d := open(t, hostdir.Options{})
	write(t, d, "changed", "1", 0o644)
	write(t, d, "gone", "1", 0o644)
	a := snapshot(t, d)
	write(t, d, "changed", "2", 0o644)
	write(t, d, ".git/new", "2", 0o644)
	must(t, os.Remove(filepath.Join(d.Path(), "gone")))
	got, err := d.Diff(bg, a, snapshot(t, d))
	must(t, err)
	want := []hostdir.FileChange{{Path: ".git/new", Status: 'A'}, {Path: "changed", Status: 'M'}, {Path: "gone", Status: 'D'}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
