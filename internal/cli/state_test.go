package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime/workstate"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRollbackPlanSaysWhatStands: in both forms, and no name of a tool moves the cursor.
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
