package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A check of a store that serves calls takes at most half of one processor, a slice at a time,
// so that it does not delay the calls. A check of a store that is open for reading is not
// limited, because nobody else uses that store.
const (
	paceSlice    = 5 * time.Millisecond
	progressTime = 5 * time.Second
)

// pacer lets a long piece of work rest, by default for as long as it worked.
type pacer struct {
	rest  float64 // rest for each unit of work
	now   func() time.Time
	sleep func(context.Context, time.Duration)
	began time.Time // of the slice; zero before the first
}

func newPacer() *pacer {
	return &pacer{rest: 1, now: time.Now, sleep: func(ctx context.Context, d time.Duration) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}}
}

// step is called between small parts of the work. It reports whether it rested.
func (p *pacer) step(ctx context.Context) (rested bool) {
	if p == nil {
		return false
	}
	now := p.now()
	if p.began.IsZero() {
		p.began = now
	}
	if worked := now.Sub(p.began); worked >= paceSlice {
		p.sleep(ctx, time.Duration(p.rest*float64(worked)))
		p.began = p.now()
		return true
	}
	return false
}

// step paces a check and logs its progress.
func (c *checker) step() {
	c.pace.step(c.ctx)
	c.work.traces.Store(int64(c.Traces))
	c.work.entries.Store(int64(c.Entries))
	if now := time.Now(); now.Sub(c.said) >= progressTime {
		c.said = now
		c.logger.Info("checking the store", "traces", c.Traces, "entries", c.Entries, "problems", len(c.Problems))
	}
}

// Work is a long-running operation on an open store, with its progress.
type Work struct {
	What    string // "verify" or "backup"
	Since   time.Time
	Traces  int64 // checked so far
	Entries int64 // entries of these traces
}

type work struct {
	what            string
	since           time.Time
	traces, entries atomic.Int64
}

// works has the long-running operations that are under way.
type works struct {
	mu  sync.Mutex
	all []*work
}

func (w *works) begin(what string) *work {
	n := &work{what: what, since: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, n)
	return n
}

func (w *works) end(n *work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(other *work) bool { return other == n })
}

// Working returns the long-running operations that are under way, the oldest first.
func (db *DB) Working() []Work {
	db.works.mu.Lock()
	defer db.works.mu.Unlock()
	list := make([]Work, len(db.works.all))
	for i, n := range db.works.all {
		list[i] = Work{What: n.what, Since: n.since, Traces: n.traces.Load(), Entries: n.entries.Load()}
	}
	return list
}
