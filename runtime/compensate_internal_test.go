package runtime

import (
	"slices"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// TestPlanUndoesTheNewestFirst: also of two effects that were recorded in one millisecond.
func TestPlanUndoesTheNewestFirst(t *testing.T) {
	at := time.UnixMilli(1e12)
	step := func(n byte, settled time.Time) PlanStep { return PlanStep{TraceID: tga.ID{15: n}, Settled: settled} }
	plan := []PlanStep{step(1, at), step(9, time.Time{}), step(3, at), step(4, at.Add(-time.Millisecond)), step(2, at.Add(time.Millisecond))}
	slices.SortFunc(plan, newestFirst)
	var got []byte
	for _, s := range plan {
		got = append(got, s.TraceID[15])
	}
	if want := []byte{2, 3, 1, 4, 9}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}
