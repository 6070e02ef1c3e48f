package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/cli"
)

// TestVerbOfAProgramThatIsNotThere: tgad itself says which program is missing, and what installs it.
func TestVerbOfAProgramThatIsNotThere(t *testing.T) {
	tgad, err := exec.LookPath("tgad")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(tgad)
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(t.TempDir(), "tgad")
	if err := os.WriteFile(alone, raw, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"demo", "torture"} {
		cmd := exec.Command(alone, verb, "--json")
		cmd.Env = []string{"PATH=" + filepath.Dir(alone)}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitError || !strings.Contains(string(out), "go install github.com/tgad/tgad/cmd/tgad-lab@latest") {
			t.Errorf("tgad %s: %v, %s", verb, err, out)
		}
	}
}
