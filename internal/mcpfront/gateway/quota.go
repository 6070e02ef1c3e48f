//go:build unix

package gateway

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/tgad/tgad/internal/mcpfront/names"
)

// Quota bounds the calls of some tools: so many at once, and so many more, evenly, in each time.
type Quota struct {
	Tool  string // the client's name, or the beginning of one and "*"; "" is every tool
	Calls int
	Per   time.Duration
}

type quota struct {
	Quota
	left *rate.Limiter
}

func quotasOf(all []Quota) (made []quota) {
	for _, q := range all {
		made = append(made, quota{q, rate.NewLimiter(rate.Limit(float64(q.Calls)/q.Per.Seconds()), q.Calls)})
	}
	return made
}

// over counts a call of a tool. Where a quota has no room for it, no quota counts it, and over says
// when there is room.
func (r *rules) over(tool string, now time.Time) (after time.Duration, of Quota) {
	var taken []*rate.Reservation
	for _, q := range r.quotas {
		if q.Tool != "" && !names.Match(q.Tool, tool) {
			continue
		}
		room := q.left.ReserveN(now, 1)
		taken = append(taken, room)
		if d := room.DelayFrom(now); d > after {
			after, of = d, q.Quota
		}
	}
	if after > 0 {
		for _, room := range taken {
			room.CancelAt(now)
		}
	}
	return after, of
}

// follow has the quotas go on where those of an earlier configuration are: a client that has used what it may is not
// given it once more. Which quota is which its tools say, and its place among those of the same tools.
func follow(now, earlier []quota) {
	taken := make([]bool, len(earlier))
	for i := range now {
		for j := range earlier {
			if taken[j] || earlier[j].Tool != now[i].Tool {
				continue
			}
			taken[j] = true
			now[i].left = earlier[j].left
			now[i].left.SetLimit(rate.Limit(float64(now[i].Calls) / now[i].Per.Seconds()))
			now[i].left.SetBurst(now[i].Calls)
			break
		}
	}
}
