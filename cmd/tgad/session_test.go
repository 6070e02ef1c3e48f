package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
)

// TestSessionOfThePage types docs/SESSION.md into a shell: from an empty home to calls from Python,
// TypeScript, Go and an MCP client, through a kill, to a receipt. As root it runs in a network namespace of
// its own without any interface: nothing is fetched.
func TestSessionOfThePage(t *testing.T) {
	serial.Long(t) // it builds and installs the packages of the clients
	python := python(t)
	serial.Program(t, "npm")
	home, err := os.MkdirTemp("", "tgad-ses-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	packages(t, python, home)
	s := &transcript{t: t, page: "../../docs/SESSION.md", env: append(emptyHome(home), "PYTHONDONTWRITEBYTECODE=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "NPM_CONFIG_UPDATE_NOTIFIER=false")}
	if os.Geteuid() == 0 {
		s.wrap = []string{"unshare", "--net"}
	}
	s.seconds = func() string {
		rows := []struct {
			who, steps string
			took       time.Duration
		}{
			{"Python", "key, configuration, daemon; virtual environment, package; call", s.took[1] + s.took[2]},
			{"TypeScript", "key, configuration, daemon; package; call", s.took[1] + s.took[3]},
			{"Go", "a module that requires tgad; build, with what was compiled before; call of an embedded store", 0},
			{"MCP client", "`tgad mcp --` before the tool server; call", s.took[6]},
		}
		if *update || serial.Whole() { // otherwise examples/embed runs the same code
			rows[2].took = ofGo(t, home)
		}
		var b strings.Builder
		b.WriteString("\n| from | steps | time |\n|---|---|---:|\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %s | %.1f s |\n", r.who, r.steps, r.took.Seconds())
			if r.took > 5*time.Minute {
				t.Errorf("%s: the first governed call took %s", r.who, r.took)
			}
		}
		return b.String() + "\n"
	}
	s.replay(home)
}

// packages builds the packages of both clients as the checkout does, and puts them into a home.
func packages(t *testing.T, python, home string) {
	t.Helper()
	build := t.TempDir()
	for _, name := range []string{"python", "typescript"} {
		if err := os.CopyFS(filepath.Join(build, name), os.DirFS("../../clients/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	wheel := exec.Command(python, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--wheel-dir", home, filepath.Join(build, "python"))
	if out, err := wheel.CombinedOutput(); err != nil {
		serial.Missing(t, "a wheel of the client", fmt.Errorf("%w\n%s", err, out))
	}
	// The compiler that another test has fetched, as its lock file says, is used here too.
	modules := filepath.Join(build, "typescript", "node_modules")
	if cache, err := os.UserCacheDir(); err == nil {
		kept, err := filepath.Glob(filepath.Join(cache, "tgad-node", "*", "node_modules", ".bin", "tsc"))
		if _, here := os.Stat(modules); err == nil && len(kept) > 0 && errors.Is(here, os.ErrNotExist) {
			if err := os.Symlink(filepath.Dir(filepath.Dir(kept[0])), modules); err != nil {
				t.Fatal(err)
			}
		}
	}
	pack := exec.Command("sh", filepath.Join(build, "typescript", "pack.sh"))
	if out, err := pack.CombinedOutput(); err != nil {
		serial.Missing(t, "the compiler from npm", fmt.Errorf("%w\n%s", err, out))
	}
	made, err := os.ReadFile(filepath.Join(build, "typescript", "tgad-0.1.0.tgz"))
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "tgad-0.1.0.tgz"), made, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ofGo makes a module of its own that embeds tgad as README shows, and returns the time to its first call.
// In make accept nothing is compiled before.
func ofGo(t *testing.T, home string) time.Duration {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	dir := filepath.Join(home, "embed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{"main.go": "examples/embed/main.go", "go.sum": "go.sum", "go.mod": "go.mod"} {
		raw, err := os.ReadFile(filepath.Join(root, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOPROXY=off", "GOWORK=off", "GOTMPDIR="+t.TempDir())
	if serial.Whole() {
		env = append(env, "GOCACHE="+t.TempDir())
	}
	for _, line := range [][]string{
		{"go", "mod", "edit", "-module=example.com/embed", "-require=github.com/tgad/tgad@v0.0.0", "-replace=github.com/tgad/tgad=" + root},
		{"go", "build", "-o", "embed", "."},
		{"./embed"},
	} {
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Dir, cmd.Env = dir, env
		if out, err := cmd.CombinedOutput(); err != nil || line[0] == "./embed" && !strings.Contains(string(out), "COMPLETED") {
			t.Fatalf("%v: %v\n%s", line, err, out)
		}
	}
	return time.Since(began)
}
