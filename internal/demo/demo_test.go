//go:build unix

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// programs is the directory with the programs that the demo runs.
var programs string

func TestMain(m *testing.M) { os.Exit(withPrograms(m)) }

// withPrograms makes the programs once for all tests, since linking them takes longer than a demo.
func withPrograms(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "tgad-demo-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", programs, "github.com/tgad/tgad/cmd/tgad", "github.com/tgad/tgad/cmd/tgad-lab")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func build() Options {
	return Options{Exe: filepath.Join(programs, "tgad"), Lab: filepath.Join(programs, "tgad-lab")}
}

func TestEveryClaimOfTheDemoIsSo(t *testing.T) {
	o := build()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	t.Run("as text", func(t *testing.T) {
		var out bytes.Buffer
		failed, err := Run(ctx, Options{Exe: o.Exe, Lab: o.Lab, Out: &out, Seed: 7, Points: 10}) // enough for each trigger, people included
		if err != nil || failed != 0 {
			t.Fatalf("%d claims failed, %v\n%s", failed, err, out.String())
		}
		for part := '1'; part <= '6'; part++ {
			if !strings.Contains(out.String(), "\n"+string(part)+"  ") {
				t.Errorf("no part %c in\n%s", part, out.String())
			}
		}
		for _, l := range strings.Split(out.String(), "\n") {
			if n := utf8.RuneCountInString(l); n > 82 {
				t.Errorf("a line of %d characters: %q", n, l)
			}
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Error("escape sequences where no terminal is")
		}
	})

	t.Run("as JSON", func(t *testing.T) {
		var out bytes.Buffer
		failed, err := Run(ctx, Options{Exe: o.Exe, Lab: o.Lab, Out: &out, Seed: 8, Points: 2, JSON: true, Keep: t.TempDir()})
		if err != nil || failed != 0 {
			t.Fatalf("%d claims failed, %v\n%s", failed, err, out.String())
		}
		hits := 0
		for l := range strings.Lines(out.String()) {
			var h hit
			if err := json.Unmarshal([]byte(l), &h); err != nil {
				t.Errorf("%q: %v", l, err)
			}
			if h.TraceID != "" {
				hits++
			}
		}
		if hits != 4 {
			t.Errorf("%d kills are told, want 4:\n%s", hits, out.String())
		}
	})
}

func TestPlanIsDrawnFromItsSeed(t *testing.T) {
	a, b := plan(1, "charge", 20), plan(1, "charge", 20)
	if !slices.Equal(a, b) {
		t.Errorf("one seed, two plans:\n%v\n%v", a, b)
	}
	if slices.Equal(a, plan(2, "charge", 20)) || slices.Equal(a, plan(1, "charge_opaque", 20)) {
		t.Error("another seed or tool, the same plan")
	}
	hit := map[trigger]int{}
	for i, p := range a {
		if p.N != i+1 {
			t.Errorf("point %d has number %d", i+1, p.N)
		}
		hit[p.On]++
	}
	for _, tr := range triggers {
		if hit[tr.on] == 0 {
			t.Errorf("20 points, and none waits for %q", tr.on)
		}
	}
}

// TestAClaimThatIsNotSoIsCounted: a demo with a false claim must not pass.
func TestAClaimThatIsNotSoIsCounted(t *testing.T) {
	var out bytes.Buffer
	s := show{printer: printer{w: &out}}
	s.claim(true, "so", "")
	s.claim(false, "not so", "seen %d", 2)
	s.summary(time.Second)
	if s.failed() != 1 || !strings.Contains(out.String(), "FAIL not so  (seen 2)") || !strings.Contains(out.String(), "1 of 2 claims are not so") {
		t.Errorf("failed() = %d\n%s", s.failed(), out.String())
	}
}

func TestEveryClaimOfTheMCPScenarioIsSo(t *testing.T) {
	o := build()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	failed, err := RunMCP(ctx, Options{Exe: o.Exe, Lab: o.Lab, Out: &out, Seed: 7})
	if err != nil || failed != 0 {
		t.Fatalf("%d claims failed, %v\n%s", failed, err, out.String())
	}
	// Every victim is killed at every point, before and after the charge.
	for _, want := range []string{"kill -9 of tgad mcp, charged", "kill -9 of tgad mcp, received",
		"kill -9 of the tool server, charged", "kill -9 of both, received", "kill -9 of both, charged"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for _, l := range strings.Split(out.String(), "\n") {
		if n := utf8.RuneCountInString(l); n > 82 {
			t.Errorf("a line of %d characters: %q", n, l)
		}
	}
}

func TestEveryClaimOfTheTrustScenarioIsSo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	o := build()
	failed, err := RunTrust(ctx, Options{Exe: o.Exe, Lab: o.Lab, Out: &out, Seed: 7, Points: 4})
	if err != nil || failed != 0 {
		t.Fatalf("%d claims failed, %v\n%s", failed, err, out.String())
	}
	for part := '1'; part <= '4'; part++ {
		if !strings.Contains(out.String(), "\n"+string(part)+"  ") {
			t.Errorf("no part %c in\n%s", part, out.String())
		}
	}
}
