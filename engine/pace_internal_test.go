package engine

import (
	"context"
	"testing"
	"time"
)

// TestPacerRestsAsLongAsItWorked: at the slice, one short of it, and after a long part.
func TestPacerRestsAsLongAsItWorked(t *testing.T) {
	now := time.Unix(1, 0)
	var slept []time.Duration
	p := &pacer{rest: 1, now: func() time.Time { return now }, sleep: func(_ context.Context, d time.Duration) { slept = append(slept, d); now = now.Add(d) }}
	for _, work := range []time.Duration{0, paceSlice - 1, 1, paceSlice, 3 * paceSlice, paceSlice - 1} {
		now = now.Add(work)
		p.step(t.Context())
	}
	want := []time.Duration{paceSlice, paceSlice, 3 * paceSlice}
	if len(slept) != len(want) {
		t.Fatalf("slept %v, want %v", slept, want)
	}
	for i := range want {
		if slept[i] != want[i] {
			t.Errorf("slept %v, want %v", slept, want)
		}
	}
	var none *pacer
	none.step(t.Context())
}
