package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRollbackPlanSaysWhatStands: the plan says so in both forms, and no name of a tool moves the cursor.
func TestRollbackPlanSaysWhatStands(t *testing.T) {
	at := time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)
	call := workstate.Checkpoint{ID: "c1", Kind: "call", Server: "bank", Name: "pay\x1b[2J", Success: true, Recorded: at, Elapsed: time.Second}
	plan := &workstate.Plan{
		To: call, Undone: []workstate.Checkpoint{call},
		Restored: []workstate.Change{{Part: "slice plan", To: tga.Sum([]byte("x"))}},
		Standing: []workstate.Standing{{Checkpoint: call, Compensation: "refund"}, {Checkpoint: call}},
	}
	var text bytes.Buffer
	if err := RollbackPlan(&Streams{Out: &text}, plan); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"slice plan", "kept", "refund", "can't be made up for", "2026-01-15T19:00:00Z"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Errorf("an escape reaches the terminal:\n%q", text.String())
	}
	text.Reset()
	if err := RollbackPlan(&Streams{Out: &text, JSON: true}, plan); err != nil {
		t.Fatal(err)
	}
	var got struct {
		To       string `json:"to_before"`
		Restored []string
		Standing []struct{ Compensation string }
		Undone   []struct{ Standing string }
	}
	if err := json.Unmarshal(text.Bytes(), &got); err != nil || got.To != "c1" || len(got.Restored) != 1 || len(got.Standing) != 2 || got.Standing[0].Compensation != "refund" || got.Undone[0].Standing != "kept" {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestStateIsNamedAsItIsPrinted: the other verbs accept the names that ls prints, and no others.
func TestStateIsNamedAsItIsPrinted(t *testing.T) {
	const id = "01936a8b-4c2d-7000-8000-000000000001"
	want, err := tga.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range []uint32{0, 1, 1<<24 - 1} {
		name := stateName(workstate.Stored{ID: want, Number: number})
		got, n, err := ParseState(name)
		if err != nil || got != want || n != number {
			t.Errorf("%s reads as %v, %d, %v", name, got, n, err)
		}
	}
	for _, name := range []string{"", "x", id + "/", id + "/x", id + "/01", id + "/-1", id + "/16777216", id + "/1/2"} {
		if _, _, err := ParseState(name); ExitCode(err) != ExitUsage {
			t.Errorf("%q: %v, want an error of usage", name, err)
		}
	}
}

// TestNamesOfFilesAreHarmless: a path from a workspace moves no cursor of a terminal.
func TestNamesOfFilesAreHarmless(t *testing.T) {
	var out bytes.Buffer
	s := &Streams{Out: &out}
	evil := "x\x1b[2J\ny"
	for _, err := range []error{
		FileChanges(s, []FileChange{{Resource: evil, Status: "M", Path: evil}}),
		Places(s, map[string]workstate.Place{evil: {Kind: "directory", Path: evil, Aside: evil}}),
		Changes(s, []workstate.Change{{Part: "slice " + evil, FromItems: 1, ToItems: 2}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "\ny") || !strings.Contains(out.String(), "1 to 2") {
		t.Errorf("printed\n%q", out.String())
	}
	out.Reset()
	s.JSON = true
	if err := FileChanges(s, []FileChange{{Resource: "r", Status: "M", Path: evil}}); err != nil {
		t.Fatal(err)
	}
	var got FileChange
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Path != evil {
		t.Errorf("%q reads as %+v, %v", out.String(), got, err)
	}
}
