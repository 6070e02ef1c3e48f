package daemon

import (
	"testing"
	"time"
)

// TestSlowNumbersAreNotAskedForAllTheTime: what takes a second to find is told again for
// twenty; what takes less than a tenth of one is always as it is.
func TestSlowNumbersAreNotAskedForAllTheTime(t *testing.T) {
	now, looks := time.Unix(1_000_000, 0), 0
	clock := func() time.Time { return now }
	slow := func() float64 { now = now.Add(time.Second); looks++; return float64(looks) }
	var p paced
	for _, step := range []struct {
		wait time.Duration
		want float64
	}{{0, 1}, {0, 1}, {19*time.Second + 999*time.Millisecond, 1}, {time.Millisecond, 2}, {0, 2}, {time.Hour, 3}} {
		now = now.Add(step.wait)
		if got := p.get(clock, slow); got != step.want {
			t.Errorf("after %v: %v, want %v", step.wait, got, step.want)
		}
	}
	var quick paced
	for i := range 3 {
		if got := quick.get(clock, func() float64 { now = now.Add(longLook - 1); return float64(i) }); got != float64(i) {
			t.Errorf("look %d: %v", i, got)
		}
	}
}
