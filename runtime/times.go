package runtime

import (
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/schemas/tga"
)

// times is the clock, with the questions that the runtime asks about times of the log. The
// log has wall times in milliseconds; how much time passed since one, and whether it is
// over, is the clock's to say, which sees that the wall was set.
type times struct{ *clock.Clock }

func (t times) now() tga.Millis { return tga.MillisOf(t.Now()) }

func (t times) pastDeadline(l *loop) bool { return t.over(l.request.TS, l.deadline) }

// over reports whether a stored time is over, which was set at since; 0 is never.
func (t times) over(since, until tga.Millis) bool {
	return until != 0 && t.Over(since.Time(), until.Time())
}

// restsFor is what is left of the time for which a tool server asked not to be asked again. That is never too
// early for the next attempt: of the time since it answered only what certainly passed counts.
func (t times) restsFor(asked time.Duration, since tga.Millis) time.Duration {
	if asked == 0 {
		return 0
	}
	return max(asked-t.Certain(since.Time()), 0)
}
