// Package clock is the one rule by which tgad tells how much time has passed.
//
// A wall clock can be set and a monotonic clock cannot, but only the wall clock survives a
// restart, and a monotonic clock stands still while the machine sleeps. So neither is
// believed alone:
//
//   - What must not happen too late (a window, a deadline, an expiry) takes the larger of
//     the two: [Clock.Longest], [Clock.Over].
//   - What must not happen too early (that an old attempt can no longer arrive, that its sender
//     is gone) takes the smaller, or what certainly passed: [Clock.Shortest], [Clock.Certain].
//   - What is done again and again counts monotonic time from a moment that this process
//     knows, and begins anew when the wall clock jumps: [Clock.Jumps] says that it did.
//
// A Clock is made when the process begins. It remembers at which monotonic times the wall
// clock was set, so it can tell how long ago a wall time of this process was.
package clock

import (
	"sync"
	"time"
)

// Step is by how much the wall clock must differ from what the monotonic clock says before
// that is a jump. A clock that is slewed drifts by less for hours.
const Step = time.Second

// maxSpans bounds what is remembered of a clock that jumps all the time.
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

// New makes a Clock. mono counts the time that really passes; nil takes the monotonic
// reading of wall's times, and a wall that has none is its own measure.
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

// Read returns the moment, and notices a jump.
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
		c.spans = append(c.spans[:1], c.spans[2:]...) // the first is when the process began
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

// Shortest returns the smaller of the wall and the monotonic time from one moment of this
// process to another. The wall clock may have been set in between: it can be negative.
func Shortest(from, to Reading) time.Duration {
	return min(to.wall.Sub(from.wall), to.mono-from.mono)
}

// Longest returns the most time that can have passed since a wall time that was stored:
// what the wall clock says, or the monotonic time since this process read that time from
// the wall clock. A time that it never read is from before it began.
func (c *Clock) Longest(since time.Time) time.Duration {
	now := c.Read()
	most, _ := c.passed(now, since)
	return max(now.wall.Sub(since), most)
}

// Certain returns the time that has passed since a wall time that was stored, whatever was
// done to the wall clock since this process began: the monotonic time since this process read
// that time, or since it began and what the wall clock said then, for a time that it never
// read. Only a clock that was set while no process looked makes it too much.
func (c *Clock) Certain(since time.Time) time.Duration {
	_, least := c.passed(c.Read(), since)
	return least
}

// passed returns the most and the least monotonic time since the wall clock showed since. It
// showed it more than once where it was set back.
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

// Over reports whether a time that was stored as until, when it was since, is over by the
// wall clock or by the monotonic one.
func (c *Clock) Over(since, until time.Time) bool {
	return !c.Now().Before(until) || c.Longest(since) >= until.Sub(since)
}

// Due returns how long something still waits that was to wait for that long until a stored
// time: never longer than that, wherever the wall clock stands. It is for what is anchored
// anew when a process begins and when the clock jumps.
func (c *Clock) Due(at time.Time, wait time.Duration) time.Duration {
	return max(min(at.Sub(c.Now()), wait), 0)
}
