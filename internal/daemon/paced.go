package daemon

import (
	"sync"
	"time"
)

// paced is a number whose computation takes longer the more traces are open. If it took longLook
// or more, it is not computed again for lookEvery times as long. Only one goroutine at a time computes
// it. So however often the number is asked for, it takes at most 1/lookEvery of one processor.
type paced struct {
	mu    sync.Mutex
	value float64
	until time.Time // until then, get returns value
}

const (
	lookEvery = 20
	longLook  = 100 * time.Millisecond
)

// get returns the current number, or a recent one if look is slow.
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
