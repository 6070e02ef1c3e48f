// Package clock is the one rule by which tgad tells how much time has passed.
//
// A wall clock can be set; a monotonic clock cannot. But only the wall clock survives a restart,
// and a monotonic clock stops while the machine sleeps. So neither is trusted alone:
//
//   - An action that must not happen too late (a window, a deadline, an expiry) uses the larger
//     of the two: [Clock.Longest], [Clock.Left], [Clock.Over].
//   - A conclusion that must not be drawn too early (that an old attempt can no longer arrive,
//     that its sender is gone) uses the smaller, or the time that has certainly passed:
//     [Shortest], [Clock.Certain].
//   - Repeated work counts monotonic time from a moment that this process knows, and begins anew
//     when the wall clock jumps: see [Clock.Jumps].
//
// A Clock is made when the process begins. It remembers at which monotonic times the wall
// clock was set, so it can tell how long ago a wall time was that this process read.
package clock

import (
	"sync"
	"time"
)

// Step is the least difference between wall and monotonic time that counts as a jump. A clock
// that is slewed drifts by less for hours.
const Step = time.Second

// maxSpans bounds how many jumps are remembered, for a clock that jumps all the time.
const maxSpans = 32

// Reading is a moment of this process.
type Reading struct {
	wall time.Time
	mono time.Duration
}

// Clock tells the time and notices jumps. Its methods may be called from any number of
// goroutines.
type Clock struct {
	read func() Reading

	mu    sync.Mutex
	spans []Reading // where the wall clock began to run without a jump, oldest first
	jumps uint64
	last  Jump
}

// Jump is one step of the wall clock.
type Jump struct {
	At time.Time     // by the wall clock after it
	By time.Duration // positive = forward. A machine that slept jumps forward as well
}

// New makes a Clock. mono returns monotonic time. If it is nil, the monotonic reading of wall's
// times is used; if those have none, the wall time itself.
func New(wall func() time.Time, mono func() time.Duration) *Clock {
	c := &Clock{}
	first := wall()
	c.read = func() Reading {
		now := wall()
		if mono == nil {
			return Reading{now.Round(0), now.Sub(first)}
		}
		return Reading{now.Round(0), mono()}
	}
	c.spans = []Reading{c.read()}
	return c
}

// Read returns the present moment, and records a jump if there was one.
func (c *Clock) Read() Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.read()
	began := c.spans[len(c.spans)-1]
	by := now.wall.Sub(began.wall) - (now.mono - began.mono)
	if by.Abs() < Step {
		return now
	}
	if len(c.spans) == maxSpans {
		c.spans = append(c.spans[:1], c.spans[2:]...) // keep the first: it is when the process began
	}
	c.spans = append(c.spans, now)
	c.jumps++
	c.last = Jump{now.wall, by}
	return now
}

// Now returns the wall clock's time.
func (c *Clock) Now() time.Time { return c.Read().wall }

// Jumps returns how often the wall clock was seen to jump, and the newest jump.
func (c *Clock) Jumps() (n uint64, last Jump) {
	c.Read()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jumps, c.last
}

// Since returns the larger of the wall and the monotonic time since a moment of this
// process.
func (c *Clock) Since(r Reading) time.Duration {
	now := c.Read()
	return max(now.wall.Sub(r.wall), now.mono-r.mono)
}

// Passed returns the monotonic time since a moment of this process. No setting of the wall clock changes it.
func (c *Clock) Passed(since Reading) time.Duration { return c.Read().mono - since.mono }

// Shortest returns the smaller of the wall and the monotonic time from one moment of this
// process to another. The wall clock may have been set in between: it can be negative.
func Shortest(from, to Reading) time.Duration {
	return min(to.wall.Sub(from.wall), to.mono-from.mono)
}

// Longest returns the most time that can have passed since a stored wall time: the larger of
// what the wall clock says and the monotonic time since this process read that wall time. For
// a wall time that it never read, it takes the monotonic time since the process began.
func (c *Clock) Longest(since time.Time) time.Duration {
	now := c.Read()
	most, _ := c.passed(now, since)
	return max(now.wall.Sub(since), most)
}

// Certain returns the time that has passed since a stored wall time, whatever was done to the
// wall clock since this process began. It is the monotonic time since this process read that
// wall time. For a wall time that it never read, it is the monotonic time since the process
// began, plus what the wall clock said had passed before. It is too long only if the clock was
// set while no process was running.
func (c *Clock) Certain(since time.Time) time.Duration {
	_, least := c.passed(c.Read(), since)
	return least
}

// passed returns the most and the least monotonic time since the wall clock showed since. A
// clock that was set back showed that time more than once.
func (c *Clock) passed(now Reading, since time.Time) (most, least time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most = now.mono - c.spans[0].mono
	least = most + max(c.spans[0].wall.Sub(since), 0)
	first := true
	for i, s := range c.spans {
		end := now.mono
		if i+1 < len(c.spans) {
			end = c.spans[i+1].mono
		}
		at := s.mono + since.Sub(s.wall)
		if at > s.mono-Step && at < end+Step {
			if least = now.mono - at; first {
				most, first = least, false
			}
		}
	}
	return most, least
}

// Left returns how much time is left until a stored time: the smaller of what the wall clock and
// the monotonic clock say. since is the wall time at which until was stored.
func (c *Clock) Left(since, until time.Time) time.Duration {
	return min(until.Sub(c.Now()), until.Sub(since)-c.Longest(since))
}

// Over reports whether the stored time until has been reached, by the wall clock or by the
// monotonic clock: see [Clock.Left].
func (c *Clock) Over(since, until time.Time) bool { return c.Left(since, until) <= 0 }

// Due returns how much of a wait remains that was to end at a stored time. It is never longer
// than wait, whatever the wall clock says. It is for waits that are computed again when a
// process begins and when the clock jumps.
func (c *Clock) Due(at time.Time, wait time.Duration) time.Duration {
	return max(min(at.Sub(c.Now()), wait), 0)
}
