//go:build linux

package hostdir_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// kinds make what can stand at a path. The excluded path is x/excluded.
var kinds = map[string]func(t *testing.T, path string){
	"nothing": func(*testing.T, string) {},
	"file":    func(t *testing.T, p string) { must(t, os.WriteFile(p, []byte("file"), 0o640)) },
	"link":    func(t *testing.T, p string) { must(t, os.Symlink("/nowhere", p)) },
	"empty":   func(t *testing.T, p string) { must(t, os.Mkdir(p, 0o750)) },
	"full": func(t *testing.T, p string) {
		must(t, os.MkdirAll(p+"/deep/er", 0o755), os.WriteFile(p+"/deep/er/file", []byte("deep"), 0o600), os.Symlink("deep", p+"/link"))
	},
	"shut": func(t *testing.T, p string) {
		must(t, os.Mkdir(p, 0o755), os.WriteFile(p+"/file", []byte("in"), 0o400), os.Chmod(p, 0o500))
	},
	"with excluded": func(t *testing.T, p string) {
		must(t, os.MkdirAll(p+"/excluded/deep", 0o755), os.WriteFile(p+"/excluded/deep/kept", []byte("kept"), 0o644), os.WriteFile(p+"/beside", nil, 0o644))
	},
	"with FIFO": func(t *testing.T, p string) {
		must(t, os.Mkdir(p, 0o755), syscall.Mkfifo(p+"/fifo", 0o600), os.WriteFile(p+"/beside", nil, 0o644))
	},
	"FIFO": func(t *testing.T, p string) { must(t, syscall.Mkfifo(p, 0o600)) },
	"socket": func(t *testing.T, p string) {
		l, err := net.Listen("unix", p)
		must(t, err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		must(t, l.Close())
	},
}

// leftAlone are the paths below x that no restore touches, by kind.
var leftAlone = map[string][]string{
	"with excluded": {"x/excluded", "x/excluded/deep", "x/excluded/deep/kept"}, "with FIFO": {"x/fifo"}, "FIFO": {"x"}, "socket": {"x"},
}

// in returns what a tree has at x.
func in(t *testing.T, d *hostdir.Dir) map[string]string { return tree(t, d.Path()) }

// TestRestoreOverAnything tests every pair of what a snapshot can have at a path and what can be
// there at the restore. Afterwards everything is as in the snapshot, except the files that are
// left alone.
func TestRestoreOverAnything(t *testing.T) {
	names := slices.Sorted(maps.Keys(kinds))
	var o hostdir.Options
	for was := range names {
		for now := range names {
			o.Exclude = append(o.Exclude, fmt.Sprintf("%d-%d/x/excluded", was, now))
		}
	}
	d := open(t, o)
	t.Chdir(d.Path()) // the path of a socket is short
	write(t, d, "a", "a", 0o644)
	each := func(f func(at, was, now string)) {
		for i, was := range names {
			for j, now := range names {
				if !refused(was, now) {
					f(fmt.Sprintf("%d-%d", i, j), was, now)
				}
			}
		}
	}
	each(func(at, was, _ string) { must(t, os.Mkdir(at, 0o755)); kinds[was](t, at+"/x") })
	then := in(t, d)
	n := snapshot(t, d)
	write(t, d, "a", "changed", 0o600)
	each(func(at, _, now string) { removeAny(t, at+"/x"); kinds[now](t, at+"/x") })
	t.Cleanup(func() { each(func(at, _, _ string) { _ = os.Chmod(filepath.Join(d.Path(), at, "x"), 0o700) }) }) // where it is a directory
	before := in(t, d)
	must(t, d.Restore(bg, n))
	got := in(t, d)
	each(func(at, was, now string) {
		for _, name := range leftAlone[was] {
			delete(then, at+"/"+name) // it neither was kept nor is brought back
		}
		for _, name := range leftAlone[now] {
			name = at + "/" + name
			if _, wanted := then[name]; wanted {
				continue // a FIFO or socket stood where the snapshot has something
			}
			if before[name] != got[name] {
				t.Errorf("%s then %s: %s is left alone: %q, was %q", was, now, name, got[name], before[name])
			}
			delete(got, name)
			if _, dir := then[at+"/x"]; !dir {
				delete(got, at+"/x") // it holds what is left alone
			}
		}
		for _, m := range []map[string]string{then, got} {
			for name, v := range m {
				if strings.HasPrefix(name, at+"/") {
					m[name] = fmt.Sprintf("%s (%s then %s)", v, was, now)
				}
			}
		}
	})
	for _, line := range diff(then, got) {
		t.Error(line)
	}
}

// refused says that a snapshot with the one can't be restored over the other.
func refused(was, now string) bool {
	return (was == "file" || was == "link") && (now == "with excluded" || now == "with FIFO")
}

func removeAny(t *testing.T, path string) {
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		must(t, os.Chmod(path, 0o700))
	}
	must(t, os.RemoveAll(path))
}

// TestRestoreSaysWhatIsInTheWay: the snapshot has a file at a path, and now there is a directory
// with something that is left alone. The restore says so, and changes nothing.
func TestRestoreSaysWhatIsInTheWay(t *testing.T) {
	for was := range kinds {
		for now := range kinds {
			if !refused(was, now) {
				continue
			}
			d := open(t, hostdir.Options{Exclude: []string{"x/excluded"}})
			x := filepath.Join(d.Path(), "x")
			write(t, d, "a", "a", 0o644)
			write(t, d, "shut/y", "y", 0o644)
			kinds[was](t, x)
			n := snapshot(t, d)
			must(t, os.Chmod(filepath.Join(d.Path(), "shut"), 0o500))
			t.Cleanup(func() { must(t, os.Chmod(filepath.Join(d.Path(), "shut"), 0o755)) })
			write(t, d, "a", "changed", 0o600)
			write(t, d, "new/file", "new", 0o644)
			removeAny(t, x)
			kinds[now](t, x)
			before := in(t, d)
			if err := d.Restore(bg, n); !errors.Is(err, tga.RestoreFailed) || !strings.Contains(err.Error(), "x is in the way") {
				t.Errorf("%s then %s: %v, want RESTORE_FAILED that says what is in the way", was, now, err)
			}
			for _, line := range diff(before, in(t, d)) {
				t.Errorf("%s then %s: refused, and changed: %s", was, now, line)
			}
		}
	}
}

// TestFailedRestoreChangesNothing lets operations of a restore fail, before and after they happen.
// Then everything is as before, or, in the steps that are not undone, all contents are as in the
// snapshot. A second restore always succeeds. With TGAD_KILLS=all it lets every operation
// fail.
func TestFailedRestoreChangesNothing(t *testing.T) {
	s := newScene(t)
	d, failed := s.d, 0
	for k := 1; ; k += everyPoint(5) {
		for _, late := range []bool{false, true} {
			s.change(t)
			before := in(t, d)
			seen, what, dropping := 0, "", false
			d.SetFault(func(op, name string, done bool) error {
				if done != late {
					return nil
				}
				if seen++; seen != k {
					dropping = dropping || op == "remove" && seen < k
					return nil
				}
				what, dropping = fmt.Sprintf("%s %s, done: %v", op, name, done), dropping || op == "remove"
				return &os.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
			})
			err := d.Restore(bg, s.node)
			d.SetFault(nil)
			if what == "" {
				must(t, err)
				if k < 40 || failed == 0 {
					t.Fatalf("only %d operations", k)
				}
				t.Logf("%d of %d operations failed", failed, k)
				return
			}
			now := in(t, d)
			switch {
			case err == nil: // it had another way
				for _, line := range diff(s.then, now) {
					t.Errorf("%s: no error, and not restored: %s", what, line)
				}
			case !errors.Is(err, tga.RestoreFailed):
				t.Errorf("%s: %v, want RESTORE_FAILED", what, err)
			case dropping:
				for _, line := range diff(contents(s.then), contents(now)) {
					t.Errorf("%s: %v: %s", what, err, line)
				}
			default:
				failed++
				for _, line := range diff(before, now) {
					t.Errorf("%s: %v, and changed: %s", what, err, line)
				}
			}
			must(t, d.Restore(bg, s.node))
			for _, line := range diff(s.then, in(t, d)) {
				t.Errorf("%s, then again: %s", what, line)
			}
		}
	}
}

// everyPoint returns how far apart the points are that a test takes.
func everyPoint(n int) int {
	if os.Getenv("TGAD_KILLS") == "all" {
		return 1
	}
	return n
}

// contents leaves modes, and what a restore leaves when it is cut off, out of a tree.
func contents(all map[string]string) map[string]string {
	out := map[string]string{}
	for name, v := range all {
		if _, text, _ := strings.Cut(v, " "); !strings.HasPrefix(filepath.Base(name), ".tgad-restore-") {
			out[name] = v[:1] + text
		}
	}
	return out
}

// fullDisk is set in the process whose files cannot grow.
const fullDisk = "TGAD_TEST_FULL_DISK"

// TestFullDiskEndsARestore: a write that fails in the middle of a file, where git is still
// writing the rest of it into a pipe, ends the restore, and nothing is changed.
func TestFullDiskEndsARestore(t *testing.T) {
	if os.Getenv(fullDisk) == "" {
		// In a process of its own: the limit below is for every file that a process writes,
		// and go test keeps a log of its own of what this one opens.
		cmd := exec.Command(os.Args[0], "-test.run", "^TestFullDiskEndsARestore$")
		cmd.Env = append(os.Environ(), fullDisk+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	d := open(t, hostdir.Options{})
	write(t, d, "big", strings.Repeat("0123456789abcdef", 1<<17), 0o644) // 2 MiB
	write(t, d, "small", "s", 0o644)
	then := in(t, d)
	n := snapshot(t, d)
	write(t, d, "big", "now small", 0o644)
	write(t, d, "small", "changed", 0o644)
	before := in(t, d)

	// The kernel refuses to make a file longer than this limit: it needs neither root nor
	// a disk of its own, and fails as a full one does, after a part was written.
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was), unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: was.Max}))
	ended := make(chan error, 1)
	go func() { ended <- d.Restore(bg, n) }()
	var err error
	select {
	case err = <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the restore hangs")
	}
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	if t.Failed() {
		return
	}
	if !errors.Is(err, tga.RestoreFailed) || !errors.Is(err, syscall.EFBIG) {
		t.Errorf("%v, want RESTORE_FAILED with the cause", err)
	}
	for _, line := range diff(before, in(t, d)) {
		t.Errorf("changed: %s", line[:min(len(line), 200)])
	}
	must(t, d.Restore(bg, n))
	for _, line := range diff(then, in(t, d)) {
		t.Error(line[:min(len(line), 200)])
	}
}

// TestExcludedContentsAreNeverDeleted: however the directories above an excluded path are moved, the
// path and its content still exist after a restore: at the old place if that is free, and
// otherwise where it was moved.
func TestExcludedContentsAreNeverDeleted(t *testing.T) {
	for _, c := range []struct {
		name string
		tool func(t *testing.T, w string)
		at   string
	}{
		{"nothing moved", func(*testing.T, string) {}, "web/node_modules"},
		{"its parent", func(t *testing.T, w string) { must(t, os.Rename(w+"/web", w+"/site")) }, "web/node_modules"},
		{"its parent, deeper", func(t *testing.T, w string) {
			must(t, os.MkdirAll(w+"/a/b", 0o755), os.Rename(w+"/web", w+"/a/b/web"))
		}, "web/node_modules"},
		{"made anew, then its parent", func(t *testing.T, w string) {
			must(t, os.Rename(w+"/web/node_modules", w+"/old"), os.CopyFS(w+"/web/node_modules", os.DirFS(w+"/old")), os.RemoveAll(w+"/old"),
				os.Rename(w+"/web", w+"/site"))
		}, "web/node_modules"},
		{"itself", func(t *testing.T, w string) { must(t, os.Rename(w+"/web/node_modules", w+"/lib")) }, "web/node_modules"},
		{"itself, and its parent removed", func(t *testing.T, w string) {
			must(t, os.Rename(w+"/web/node_modules", w+"/lib"), os.RemoveAll(w+"/web"))
		}, "web/node_modules"},
		{"itself into a directory that is removed by the restore", func(t *testing.T, w string) {
			must(t, os.MkdirAll(w+"/new/in", 0o755), os.Rename(w+"/web/node_modules", w+"/new/in/lib"))
		}, "web/node_modules"},
		{"its parent, and another took its place", func(t *testing.T, w string) {
			must(t, os.Rename(w+"/web", w+"/site"), os.MkdirAll(w+"/web/node_modules", 0o755), os.WriteFile(w+"/web/node_modules/other", nil, 0o644))
		}, "site/node_modules"},
		{"its parent, and a file took its parent's place", func(t *testing.T, w string) {
			must(t, os.Rename(w+"/web", w+"/site"), os.WriteFile(w+"/web", nil, 0o644))
		}, "web/node_modules"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t, hostdir.Options{Exclude: []string{"web/node_modules"}})
			write(t, d, "web/index", "i", 0o644)
			write(t, d, "web/node_modules/deep/lib", "precious", 0o644)
			n := snapshot(t, d)
			c.tool(t, d.Path())
			must(t, d.Restore(bg, n))
			if b, err := os.ReadFile(filepath.Join(d.Path(), c.at, "deep/lib")); err != nil || string(b) != "precious" {
				t.Errorf("the excluded file holds %q (%v); there is %v", b, err, in(t, d))
			}
			if b, err := os.ReadFile(filepath.Join(d.Path(), "web/index")); err != nil || string(b) != "i" {
				t.Errorf("web/index holds %q (%v)", b, err)
			}
			must(t, d.Restore(bg, n))
		})
	}
}

// TestExcludedIsKnownAfterARestart: the identity of an excluded path is kept with the snapshots.
func TestExcludedIsKnownAfterARestart(t *testing.T) {
	work, shadow := filepath.Join(t.TempDir(), "work"), t.TempDir()
	must(t, os.MkdirAll(work+"/web/node_modules", 0o755), os.WriteFile(work+"/web/node_modules/lib", nil, 0o644))
	o := hostdir.Options{Exclude: []string{"web/node_modules"}}
	d, err := hostdir.Open(bg, work, shadow, o)
	must(t, err)
	n := snapshot(t, d)
	must(t, d.Close(), os.Rename(work+"/web", work+"/site"))
	d, err = hostdir.Open(bg, work, shadow, o)
	must(t, err, d.Restore(bg, n), d.Close())
	if _, err := os.Stat(work + "/web/node_modules/lib"); err != nil {
		t.Error(err)
	}
}

// TestUsersNamesAreTheirOwn: no name of a user's file is treated as a temporary name of a restore.
func TestUsersNamesAreTheirOwn(t *testing.T) {
	d := open(t, hostdir.Options{})
	names := []string{".tgad-restore", "dir/.tgad-restore", ".tgad-restore-1", ".tgad-restore-x-1", "tgad.tmp"}
	for _, name := range names {
		write(t, d, name, "the user's", 0o644)
	}
	write(t, d, "beside", "1", 0o644)
	write(t, d, "dir/beside", "1", 0o644)
	then := in(t, d)
	n := snapshot(t, d)
	write(t, d, "beside", "2", 0o644)
	write(t, d, "dir/beside", "2", 0o644)
	must(t, d.Restore(bg, n))
	for _, line := range diff(then, in(t, d)) {
		t.Error(line)
	}
}

// TestDirectoryThatIsGone: the directory itself was removed, or something took its place.
// A snapshot of nothing succeeds, and a restore makes it again, also when it is opened anew.
func TestDirectoryThatIsGone(t *testing.T) {
	for name, put := range kinds {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(name, again), func(t *testing.T) {
				work, shadow := filepath.Join(t.TempDir(), "work"), t.TempDir()
				must(t, os.Mkdir(work, 0o750))
				d, err := hostdir.Open(bg, work, shadow, hostdir.Options{})
				must(t, err)
				defer func() { must(t, d.Close()) }()
				write(t, d, "deep/file", "f", 0o644)
				then := in(t, d)
				n := snapshot(t, d)
				must(t, os.RemoveAll(work))
				put(t, work)
				t.Cleanup(func() { _ = os.Chmod(work, 0o700) })
				if again {
					must(t, d.Close())
					d, err = hostdir.Open(bg, work, shadow, hostdir.Options{})
					must(t, err)
				}
				gone, err := d.Snapshot(bg)
				isDir := slices.Contains([]string{"empty", "full", "shut", "with excluded", "with FIFO"}, name)
				if name == "nothing" || isDir {
					must(t, err)
				} else if !errors.Is(err, tga.GenericStateError) || !strings.Contains(err.Error(), work) {
					t.Errorf("a snapshot where the directory is a %s: %v", name, err)
				}
				must(t, d.Restore(bg, n))
				got := in(t, d)
				delete(got, "fifo") // left alone
				for _, line := range diff(then, got) {
					t.Error(line)
				}
				if info, err := os.Stat(work); err != nil || info.Mode().Perm() != 0o750 {
					t.Errorf("the directory: %v %v", info, err)
				}
				if name == "nothing" {
					must(t, d.Restore(bg, gone))
					if _, err := os.Lstat(work); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("restored to nothing: %v", err)
					}
					must(t, d.Restore(bg, gone), d.Restore(bg, n))
				}
				if list, err := filepath.Glob(filepath.Join(filepath.Dir(work), ".tgad*")); err != nil || len(list) > 0 {
					t.Errorf("left over: %v %v", list, err)
				}
			})
		}
	}
}

// TestFilesThatComeAndGo: others make, replace and remove files, directories and FIFOs
// meanwhile. Snapshots and restores succeed, and files that do not change are kept exactly.
func TestFilesThatComeAndGo(t *testing.T) {
	d := open(t, hostdir.Options{})
	write(t, d, "rests/file", "r", 0o644)
	stop, ended := make(chan struct{}), make(chan struct{})
	at := func(name string) string { return filepath.Join(d.Path(), name) }
	must(t, os.Mkdir(at("busy"), 0o755))
	// Files with content come whole: one that is written at its path while it is copied
	// does not rest, and may fail the snapshot.
	temp := filepath.Join(t.TempDir(), "temp")
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			// Each of these may fail, for a restore takes the names away meanwhile.
			_ = os.MkdirAll(at("busy/dir"), 0o755)
			_ = os.WriteFile(temp, fmt.Append(nil, i), 0o644)
			_ = os.Rename(temp, at("busy/replaced"))
			_ = os.WriteFile(at(fmt.Sprint("busy/dir/", i%5)), nil, 0o644)
			_ = os.Remove(at("busy/swap"))
			if i%2 == 0 {
				_ = syscall.Mkfifo(at("busy/swap"), 0o600)
			} else {
				_ = os.WriteFile(temp, []byte("s"), 0o600)
				_ = os.Rename(temp, at("busy/swap"))
			}
			_ = os.RemoveAll(at("busy/dir"))
		}
	}()
	first, err := d.Snapshot(bg)
	if err != nil {
		t.Error(err)
	}
	for i := range 15 {
		write(t, d, "rests/file", fmt.Sprint(i), 0o644)
		if _, err := d.Snapshot(bg); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-ended
	must(t, d.Restore(bg, first))
	if b, err := os.ReadFile(at("rests/file")); err != nil || string(b) != "r" {
		t.Errorf("%q %v", b, err)
	}
}
