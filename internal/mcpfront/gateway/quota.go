//go:build unix

package gateway

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tgad/tgad/internal/mcpfront/names"
)

// Quota bounds the calls of some tools: Calls at once, and evenly Calls more in each Per.
type Quota struct {
	Tool  string // a client's name of a tool, or a prefix and "*"; "" is every tool
	Calls int
	Per   time.Duration
}

type quota struct {
	Quota
	left *rate.Limiter
}

// quotas are the quotas of a gate.
type quotas struct {
	all []quota
	// counting is held while a call is counted. Quotas of a later configuration share it.
	counting *sync.Mutex
}

func quotasOf(all []Quota) quotas {
	made := quotas{counting: new(sync.Mutex)}
	for _, q := range all {
		made.all = append(made.all, quota{q, rate.NewLimiter(rate.Limit(float64(q.Calls)/q.Per.Seconds()), q.Calls)})
	}
	return made
}

// wait is the time until there is room for one more call.
func (q quota) wait(now time.Time) time.Duration {
	return max(0, time.Duration((1-q.left.TokensAt(now))/float64(q.left.Limit())*float64(time.Second)))
}

// over counts a call of a tool. If a quota has no room for it, no quota counts it, and over returns the
// time until there is room, and that quota. It checks all quotas before it counts: a reservation that is
// cancelled is not returned in full if another was made meanwhile, so refused callers would use up what
// other callers may have.
func (r *rules) over(tool string, now time.Time) (after time.Duration, of Quota) {
	r.quotas.counting.Lock()
	defer r.quotas.counting.Unlock()
	var counts []quota
	for _, q := range r.quotas.all {
		if q.Tool != "" && !names.Match(q.Tool, tool) {
			continue
		}
		counts = append(counts, q)
		if d := q.wait(now); d > after {
			after, of = d, q.Quota
		}
	}
	if after > 0 {
		return after, of
	}
	for _, q := range counts {
		q.left.ReserveN(now, 1)
	}
	return 0, of
}

// follow makes quotas continue from those of an earlier configuration, so that a client that has used up a quota does
// not get it again. A quota continues the earlier one with the same Tool; several with the same Tool match in order.
func follow(now *quotas, earlier quotas) {
	now.counting = earlier.counting
	taken := make([]bool, len(earlier.all))
	for i := range now.all {
		for j := range earlier.all {
			q := &now.all[i]
			if taken[j] || earlier.all[j].Tool != q.Tool {
				continue
			}
			taken[j] = true
			q.left = earlier.all[j].left
			q.left.SetLimit(rate.Limit(float64(q.Calls) / q.Per.Seconds()))
			q.left.SetBurst(q.Calls)
			break
		}
	}
}
