//go:build torture

package interleave

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/crashtest"
)

// TestPlantedBugsAreFound explores the same meetings over sources with a bug in them, each
// bug in turn. A bug that no order of events shows is a fault of this tier.
func TestPlantedBugsAreFound(t *testing.T) {
	// Of each scenario: most bugs are found at once, and a rare one is worth the wait.
	const short, long = "3000", "50000"
	dir, bugs := t.TempDir(), bugs(t)
	program := filepath.Join(dir, "interleave.test")
	if err := crashtest.BuildPlanted(dir, bugs, "test", "-c", "-o", program, "./internal/interleave"); err != nil {
		t.Fatal(err)
	}
	run := func(bug, states string) (string, bool) {
		cmd := exec.Command(program, "-test.run", "^TestSmallScope$", "-test.failfast")
		cmd.Env = append(os.Environ(), "TGAD_PLANTED="+bug, "TGAD_INTERLEAVE="+states)
		out, err := cmd.CombinedOutput()
		return string(out), err == nil
	}
	t.Run("none", func(t *testing.T) {
		if out, sound := run("", short); !sound {
			t.Fatalf("without a bug: %s", out)
		}
	})
	var names []string
	for _, b := range bugs {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			out, sound := run(name, short)
			if sound {
				out, sound = run(name, long)
			}
			if sound {
				t.Fatalf("%s survived", name)
			}
			fmt.Printf("%s found in %v: %s\n", name, time.Since(start).Round(time.Second/10), finding(out))
		})
	}
}

// finding is what was found, without the way there.
func finding(out string) string {
	for line := range strings.Lines(out) {
		if _, what, ok := strings.Cut(line, "found: "); ok {
			return strings.TrimSpace(what)
		}
	}
	return out
}
