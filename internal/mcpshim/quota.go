//go:build unix

package mcpshim

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
func (g *Gate) over(tool string, now time.Time) (after time.Duration, of Quota) {
	var taken []*rate.Reservation
	for _, q := range g.quotas {
		if q.Tool != "" && !names.Match(q.Tool, tool) {
			continue
		}
		r := q.left.ReserveN(now, 1)
		taken = append(taken, r)
		if d := r.DelayFrom(now); d > after {
			after, of = d, q.Quota
		}
	}
	if after > 0 {
		for _, r := range taken {
			r.CancelAt(now)
		}
	}
	return after, of
}
