package engine

import (
	"context"
	"time"
)

// A check of a store that serves calls takes at most half of one processor, a slice at a
// time, so that it does not hold the calls up. Of a store that is open for reading it takes
// what there is: nobody else uses it.
const (
	paceSlice    = 5 * time.Millisecond
	progressTime = 5 * time.Second
)

// pacer lets a long piece of work rest for as long as it worked.
type pacer struct {
	now   func() time.Time
	sleep func(context.Context, time.Duration)
	began time.Time // of the slice; zero before the first
}

func newPacer() *pacer {
	return &pacer{now: time.Now, sleep: func(ctx context.Context, d time.Duration) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}}
}

// step is called between small parts of the work.
func (p *pacer) step(ctx context.Context) {
	if p == nil {
		return
	}
	now := p.now()
	if p.began.IsZero() {
		p.began = now
	}
	if worked := now.Sub(p.began); worked >= paceSlice {
		p.sleep(ctx, worked)
		p.began = p.now()
	}
}

// step paces a check and logs how far it is.
func (c *checker) step() {
	c.pace.step(c.ctx)
	if now := time.Now(); now.Sub(c.said) >= progressTime {
		c.said = now
		c.db.log.Info("checking the store", "traces", c.Traces, "entries", c.Entries, "problems", len(c.Problems))
	}
}
