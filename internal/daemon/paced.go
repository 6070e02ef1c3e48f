package daemon

import (
	"sync"
	"time"
)

// paced is a number that takes the longer to find the more is open. Where that is long, it
// is not looked for again for lookEvery times as long, and by one at a time: however often
// it is asked for, looking takes one in so many parts of one processor.
type paced struct {
	mu    sync.Mutex
	value float64
	until time.Time // value is told till then
}

const (
	lookEvery = 20
	longLook  = 100 * time.Millisecond
)

// get returns the number as it is, or as it was a moment ago.
func (p *paced) get(clock func() time.Time, look func() float64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := clock()
	if began.Before(p.until) {
		return p.value
	}
	p.value = look()
	if ended := clock(); ended.Sub(began) >= longLook {
		p.until = ended.Add(lookEvery * ended.Sub(began))
	}
	return p.value
}
