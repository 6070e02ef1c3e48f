package clock_test

import (
	"testing"
	"time"

	"github.com/tgad/tgad/internal/clock"
)

const day = 24 * time.Hour

// hands is a clock whose wall and monotonic time the test sets.
type hands struct {
	at   time.Time
	mono time.Duration
}

func (h *hands) pass(d time.Duration) { h.at, h.mono = h.at.Add(d), h.mono+d }
func (h *hands) set(d time.Duration)  { h.at = h.at.Add(d) }

func start() (*hands, *clock.Clock) {
	h := &hands{at: time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC), mono: 5 * time.Hour}
	return h, clock.New(func() time.Time { return h.at }, func() time.Duration { return h.mono })
}

// TestLongestIsTheLargerOfBoth: whatever is done to the wall clock after a time was stored, its age is at
// least the time that really passed, and the wall clock's difference if that is more.
func TestLongestIsTheLargerOfBoth(t *testing.T) {
	for _, jumps := range [][]time.Duration{{}, {100 * day, -100 * day}, {2 * time.Hour, -2 * time.Hour}, {-day}, {100 * day}, {-day, day}} {
		h, c := start()
		h.pass(time.Minute)
		stored, read := c.Now(), c.Read()
		var ahead time.Duration
		for _, by := range jumps {
			h.pass(time.Minute)
			h.set(by)
			ahead += by
			c.Now()
		}
		h.pass(time.Minute)
		really := time.Duration(len(jumps)+1) * time.Minute
		want := max(really, really+ahead)
		if got := c.Longest(stored); got != want {
			t.Errorf("jumps %v: longest %v, want %v", jumps, got, want)
		}
		if got := c.Since(read); got != want {
			t.Errorf("jumps %v: since %v, want %v", jumps, got, want)
		}
		if got, want := clock.Shortest(read, c.Read()), min(really, really+ahead); got != want {
			t.Errorf("jumps %v: shortest %v, want %v", jumps, got, want)
		}
		if got := c.Certain(stored); got != really {
			t.Errorf("jumps %v: certain %v, want %v", jumps, got, really)
		}
		if c.Left(stored, stored.Add(want+7)) != 7 || c.Over(stored, stored.Add(want+1)) || !c.Over(stored, stored.Add(want)) {
			t.Errorf("jumps %v: over at %v", jumps, want)
		}
		if n, last := c.Jumps(); n != uint64(len(jumps)) || n > 0 && last.By != jumps[n-1] {
			t.Errorf("jumps %v: seen %d, the newest by %v", jumps, n, last.By)
		}
	}
}

// TestTimesOfAnEarlierProcess: the wall clock gives the age of times of an earlier process. They are at
// least as old as this process, even if they are in the future.
func TestTimesOfAnEarlierProcess(t *testing.T) {
	for _, ago := range []time.Duration{time.Hour, 100 * day, -2 * time.Hour, -100 * day} {
		h, c := start()
		stored := h.at.Add(-ago)
		h.pass(time.Minute)
		if got, want := c.Longest(stored), max(time.Minute, ago+time.Minute); got != want {
			t.Errorf("%v before: %v, want %v", ago, got, want)
		}
		h.set(day)
		h.pass(time.Minute)
		if got, want := c.Certain(stored), max(ago, 0)+2*time.Minute; got != want {
			t.Errorf("%v before: certain %v, want %v", ago, got, want)
		}
	}
}

// TestDueIsNeverLaterThanItsWait: at the limits.
func TestDueIsNeverLaterThanItsWait(t *testing.T) {
	h, c := start()
	for _, x := range []struct{ in, wait, want time.Duration }{
		{time.Minute, time.Hour, time.Minute}, {time.Hour, time.Hour, time.Hour}, {time.Hour + 1, time.Hour, time.Hour},
		{100 * day, time.Minute, time.Minute}, {0, time.Minute, 0}, {-day, time.Minute, 0},
	} {
		if got := c.Due(h.at.Add(x.in), x.wait); got != x.want {
			t.Errorf("in %v, wait %v: %v, want %v", x.in, x.wait, got, x.want)
		}
	}
}

// TestDriftIsNoJump: one millisecond less than a step, and exactly a step.
func TestDriftIsNoJump(t *testing.T) {
	for by, want := range map[time.Duration]uint64{clock.Step - time.Millisecond: 0, clock.Step: 1, time.Millisecond - clock.Step: 0, -clock.Step: 1} {
		h, c := start()
		h.pass(time.Hour)
		h.set(by)
		if n, _ := c.Jumps(); n != want {
			t.Errorf("%v: %d jumps", by, n)
		}
	}
}

// TestManyJumpsAreBounded: a time whose jumps were forgotten counts as long ago.
func TestManyJumpsAreBounded(t *testing.T) {
	h, c := start()
	h.set(day)
	stored := c.Now()
	for range 100 {
		h.pass(time.Minute)
		h.set(-time.Hour)
		c.Now()
	}
	if got := c.Longest(stored); got < 100*time.Minute {
		t.Errorf("%v", got)
	}
	if n, _ := c.Jumps(); n != 101 {
		t.Errorf("%d jumps", n)
	}
}
