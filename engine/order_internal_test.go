package engine

import (
	"context"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// TestLeavesAreWithoutGaps: a page of the order has every leaf that was asked for, or is refused: where
// the log ends before the last one, and where it is read from behind the first one.
func TestLeavesAreWithoutGaps(t *testing.T) {
	db := inMemory(t)
	for i := range uint64(4) {
		id := numbered(1, i)
		id[6], id[8] = 0x70, 0x80 // version 7
		lease, err := db.Acquire(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		a := requestOf(t, id)
		if _, err := db.Append(context.Background(), lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: a}}}); err != nil {
			t.Fatal(err)
		}
	}
	list, at, err := db.leaves(wal.Position{}, 1, 4)
	if err != nil || len(list) != 4 {
		t.Fatalf("%v, %v", list, err)
	}
	for what, read := range map[string]func() ([]Leaf, wal.Position, error){
		"2 leaves from 3, want 3": func() ([]Leaf, wal.Position, error) { return db.leaves(wal.Position{}, 3, 5) },
		"leaf 4 follows 1":        func() ([]Leaf, wal.Position, error) { return db.leaves(at, 2, 4) },
	} {
		if _, _, err := read(); tga.CodeOf(err) != tga.StateChecksumMismatch || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q: %v", what, err)
		}
	}
}

func requestOf(t *testing.T, trace tga.ID) *tga.Artifact {
	t.Helper()
	a := &tga.Artifact{Type: tga.RequestType, ID: trace, TraceID: trace, PlanID: trace, TS: 1, Meta: tga.Meta{tga.MetaNonce: trace.String()}}
	a.Request = &tga.ActionRequest{
		AgentID: trace, RiskLevel: tga.RiskWrite, Intent: "try the order",
		Resources: []tga.Resource{{Kind: "service", ID: "payments"}}, IdempotencyKey: trace.String(),
		Proposal: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{}`)},
	}
	if err := a.Seal(); err != nil {
		t.Fatal(err)
	}
	return a
}
