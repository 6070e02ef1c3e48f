//go:build unix

package gateway

import (
	"sync"
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

// quotas are counted together.
type quotas struct {
	all []quota
	// counting is held while a call is counted, by those of a later configuration too.
	counting *sync.Mutex
}

func quotasOf(all []Quota) quotas {
	made := quotas{counting: new(sync.Mutex)}
	for _, q := range all {
		made.all = append(made.all, quota{q, rate.NewLimiter(rate.Limit(float64(q.Calls)/q.Per.Seconds()), q.Calls)})
	}
	return made
}

// wait is for how long there is no room for one more call.
func (q quota) wait(now time.Time) time.Duration {
	return max(0, time.Duration((1-q.left.TokensAt(now))/float64(q.left.Limit())*float64(time.Second)))
}

// over counts a call of a tool. Where a quota has no room for it, no quota counts it, and over says
// when there is room. It looks first and counts then: what is counted and given back is not given back
// whole while another is counted, and callers that are refused would use up what is there for all.
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

// follow has the quotas go on where those of an earlier configuration are: a client that has used what it may is not
// given it once more. Which quota is which its tools say, and its place among those of the same tools.
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
