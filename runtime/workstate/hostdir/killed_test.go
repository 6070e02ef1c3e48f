//go:build linux

package hostdir_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
)

// order is the command for a process that will be killed.
type order struct {
	Work, Shadow, Node string
	N                  int // of the operation
	Late               bool
}

const victimEnv = "TGAD_HOSTDIR_VICTIM"

func TestMain(m *testing.M) {
	if text := os.Getenv(victimEnv); text != "" {
		if err := victim(text); err != nil {
			fmt.Fprintln(os.Stderr, "victim:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// victim restores, and kills itself at an operation.
func victim(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	d, err := hostdir.Open(bg, o.Work, o.Shadow, hostdir.Options{Exclude: []string{"web/node_modules"}})
	if err != nil {
		return err
	}
	seen := 0
	d.SetFault(func(_, _ string, done bool) error {
		if done == o.Late {
			if seen++; seen == o.N {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it does not fail on oneself
				select {}
			}
		}
		return nil
	})
	return d.Restore(bg, workstate.NewNode([]byte(o.Node)))
}

// TestKilledRestoreIsBegunAgain kills a restore before and after its operations. A restore by
// another process is then exact, nothing of the first restore is left, and no excluded file is
// lost. With TGAD_KILLS=all it kills at every operation.
func TestKilledRestoreIsBegunAgain(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	for k := 1; ; k += everyPoint(8) {
		for _, late := range []bool{false, true} {
			s := newScene(t)
			s.change(t)
			work, shadow := s.d.Path(), s.d.Place().Aside
			must(t, s.d.Close())
			raw, err := json.Marshal(order{work, shadow, string(s.node.Data()), k, late})
			must(t, err)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), victimEnv+"="+string(raw))
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			ended := err == nil
			if !ended && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
				t.Fatalf("victim %d: %v: %s", k, err, out)
			}
			d, err := hostdir.Open(bg, work, shadow, hostdir.Options{Exclude: []string{"web/node_modules"}})
			must(t, err)
			found := snapshot(t, d) // as [workstate.Open] does, to keep what a crash left
			must(t, d.Restore(bg, s.node))
			for _, line := range diff(s.then, tree(t, work)) {
				t.Errorf("killed at operation %d, late: %v: %s", k, late, line)
			}
			must(t, d.Restore(bg, found), d.Restore(bg, s.node))
			left, err := filepath.Glob(filepath.Join(filepath.Dir(work), ".tgad*"))
			must(t, err, d.Close())
			if len(left) > 0 {
				t.Errorf("left over: %s", strings.Join(left, " "))
			}
			if ended {
				if k < 40 {
					t.Fatalf("only %d operations", k)
				}
				return
			}
		}
	}
}

// scene is a directory to which a tool does everything.
type scene struct {
	d    *hostdir.Dir
	node *workstate.Node
	then map[string]string
}

func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{d: open(t, hostdir.Options{Exclude: []string{"web/node_modules"}})}
	write(t, s.d, "changed", "1", 0o644)
	write(t, s.d, "mode", "m", 0o600)
	write(t, s.d, "gone/deep/file", "g", 0o644)
	write(t, s.d, "web/index", "i", 0o644)
	write(t, s.d, "web/node_modules/lib", "lib", 0o644)
	write(t, s.d, "to-dir", "f", 0o644)
	write(t, s.d, "to-file/f", "f", 0o644)
	write(t, s.d, "shut/f", "f", 0o644)
	w := s.d.Path()
	must(t, os.Symlink("one", filepath.Join(w, "link")), os.Chmod(filepath.Join(w, "shut"), 0o750))
	s.then, s.node = tree(t, w), snapshot(t, s.d)
	return s
}

// change is what the tool does: a change of every kind.
func (s *scene) change(t testing.TB) {
	t.Helper()
	at := func(name string) string { return filepath.Join(s.d.Path(), name) }
	write(t, s.d, "changed", "2", 0o600)
	must(t, os.Chmod(at("mode"), 0o755), os.RemoveAll(at("gone")), os.Rename(at("web"), at("site")),
		os.Remove(at("to-dir")), os.RemoveAll(at("to-file")), os.Remove(at("link")),
		os.Symlink("two", at("link")), os.Chmod(at("shut"), 0o500))
	write(t, s.d, "to-dir/f", "new", 0o644)
	write(t, s.d, "to-file", "new", 0o644)
	write(t, s.d, "made/here/f", "new", 0o644)
}
