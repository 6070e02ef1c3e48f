package adapters

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/killtest"
)

// TestEnginesRun: every engine finishes a run in both worlds. If the service knows its keys, no engine has a
// fault. In the plain world neither tgad nor an engine whose steps charge through tgad has a fault, and an
// engine that sends again has doubled the call that was killed after its charge.
func TestEnginesRun(t *testing.T) {
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		adapter, argument string
		doubles           bool
	}{
		{"postgres", "", false},
		{"dbos", "", true},
		{"dbos", "once", true}, // at least one recovery
		{"dbos", "tgad", false},
		{"river", "", true},
		{"river", "once", false},
		{"river", "tgad", false},
		{"temporal", "", true}, // the one of bench/temporal
		{"temporal", "once", false},
		{"temporal", "tgad", false},
		{"restate", "", true},
		{"restate", "once", false},
		{"restate", "tgad", false},
	} {
		t.Run(c.adapter+c.argument, func(t *testing.T) {
			program, err := exec.LookPath(filepath.Join(bin, "tgad-adapter-"+c.adapter))
			if err != nil {
				t.Fatalf("make adapters builds it: %v", err)
			}
			for _, dedupes := range []bool{false, true} {
				command := []string{program}
				if c.argument != "" {
					command = append(command, c.argument)
				}
				res, err := killtest.Run(context.Background(), killtest.Options{
					Command: command, Dedupes: dedupes, Calls: 6, Seed: 5, Dir: t.TempDir(), Patience: 2 * time.Minute,
				})
				if err != nil {
					t.Fatal(err)
				}
				doubled := res.Points[killtest.Done].Became[killtest.Doubled.String()] == 1
				if doubled != (c.doubles && !dedupes) || res.All.Faults() > 0 && !doubled {
					t.Errorf("dedupes %v: %v, at %s %v", dedupes, res.All.Became, killtest.Done, res.Points[killtest.Done].Became)
				}
			}
		})
	}
}
