package runtime

import (
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/schemas/tga"
)

// times is the clock, with the questions that the runtime asks about times of the log. The
// log has wall times in milliseconds. Only the clock can say how much time has passed since one
// of them, and whether it is over, because the clock sees when the wall clock is set.
type times struct{ *clock.Clock }

func (t times) now() tga.Millis { return tga.MillisOf(t.Now()) }

func (t times) pastDeadline(l *loop) bool { return t.over(l.request.TS, l.deadline) }

// over reports whether the stored time until, which was set at since, has passed; 0 never passes.
func (t times) over(since, until tga.Millis) bool {
	return until != 0 && t.Over(since.Time(), until.Time())
}

// restsFor returns the rest of a tool server's Retry-After. The next attempt is never too early: of the time
// since the answer only what certainly passed counts.
func (t times) restsFor(asked time.Duration, since tga.Millis) time.Duration {
	if asked == 0 {
		return 0
	}
	return max(asked-t.Certain(since.Time()), 0)
}
