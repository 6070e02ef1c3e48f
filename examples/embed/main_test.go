package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The second run is answered from the ledger: the tool is not called again.
func Example() {
	dir, err := os.MkdirTemp("", "tgad-embed")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for range 2 {
		if err := run(context.Background(), filepath.Join(dir, "store")); err != nil {
			panic(err)
		}
	}
	// Output:
	// charging {"amount":100} under key order-1
	// COMPLETED: {"receipt":17}
	// COMPLETED: {"receipt":17}
}

// TestRunsAsAModuleOfItsOwn copies the program out of the repository, builds it there as a user who requires
// tgad would, and runs it twice without arguments.
func TestRunsAsAModuleOfItsOwn(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for from, to := range map[string]string{"main.go": "main.go", filepath.Join(root, "go.sum"): "go.sum", filepath.Join(root, "go.mod"): "go.mod"} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	temp := t.TempDir() // not above the module: go would not find its go.mod
	do := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOPROXY=off", "GOWORK=off", "TMPDIR="+temp)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	// The module requires what tgad itself requires, so nothing is downloaded here.
	do("go", "mod", "edit", "-module=example.com/embed", "-require=github.com/tgad/tgad@v0.0.0", "-replace=github.com/tgad/tgad="+root)
	do("go", "build", "-o", "embed", ".")
	first, second := do("./embed"), do("./embed")
	if !strings.Contains(first, "charging") || !strings.Contains(first, `COMPLETED: {"receipt":17}`) {
		t.Errorf("the first run says\n%s", first)
	}
	if strings.Contains(second, "charging") || !strings.Contains(second, `COMPLETED: {"receipt":17}`) {
		t.Errorf("the second run says\n%s", second)
	}
}
