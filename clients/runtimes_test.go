//go:build unix

package clients

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
)

// runtimes are the runtimes that the package supports: the installed Node, and those that
// typescript/test/runtimes/package-lock.json names.
var runtimes = []struct {
	name string
	// binary is a pattern below node_modules; "" is the installed Node.
	binary string
	args   []string
}{
	{"typescript", "", nil},
	{"typescript-node18", "node-linux-*/bin/node", nil}, // the oldest that package.json allows
	{"typescript-bun", "@oven/bun-*/bin/bun", nil},
	{"typescript-deno", "@deno/*/deno", []string{"run", "--no-prompt", "--allow-read", "--allow-write", "--allow-net", "--allow-env", "--node-modules-dir=manual"}},
}

// fetched is the node_modules with those runtimes.
var fetched = sync.OnceValues(func() (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.Join(errFetch, err)
	}
	return modules(npm, "typescript/test/runtimes")
})

// interpreter is the command that runs a script on the runtime with this name.
func interpreter(t *testing.T, name string) []string {
	t.Helper()
	for _, of := range runtimes {
		if of.name != name {
			continue
		}
		if of.binary == "" {
			return []string{serial.Program(t, "node")}
		}
		dir, err := fetched()
		if errors.Is(err, errFetch) {
			serial.Missing(t, name, err)
		}
		if err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(dir, of.binary))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found { // of several for different processors, one starts
			if exec.Command(path, "--version").Run() == nil {
				return append([]string{path}, of.args...)
			}
		}
		serial.Missing(t, name, errors.New("npm has no binary of it that starts here"))
	}
	t.Fatalf("no runtime has the name %s", name)
	return nil
}

// runOn runs a script beside the installed package and returns what it prints.
func runOn(t *testing.T, runtime, name, script string) string {
	t.Helper()
	dir := installed(t)
	path := filepath.Join(dir, runtime+"-"+name)
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	run := append(interpreter(t, runtime), path)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, run[0], run[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(run, " "), err, out)
	}
	return string(out)
}

// driversOnEach are the driver in TypeScript on each runtime.
func driversOnEach() (all []driven) {
	for _, of := range runtimes {
		all = append(all, driven{of.name, func(t *testing.T) []string {
			dir := installed(t)
			if err := copyFiles("typescript/test", dir, "driver.mjs"); err != nil {
				t.Fatal(err)
			}
			return append(interpreter(t, of.name), filepath.Join(dir, "driver.mjs"))
		}})
	}
	return all
}

// onEach runs f for each runtime.
func onEach(t *testing.T, f func(t *testing.T, runtime string)) {
	for _, of := range runtimes {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel()
			f(t, of.name)
		})
	}
}
