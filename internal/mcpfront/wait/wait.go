// Package wait is how the goroutines of an MCP front wait for each other: for what happens once, and
// between two tries.
package wait

import (
	"context"
	"sync"
	"time"
)

// Latch is something that happens once. Its channel is closed then.
type Latch struct {
	C    chan struct{}
	once sync.Once
}

// NewLatch makes a latch of what has not happened.
func NewLatch() *Latch { return &Latch{C: make(chan struct{})} }

// Set says that it has happened. It reports whether this is the first to say so.
func (s *Latch) Set() (first bool) {
	s.once.Do(func() {
		close(s.C)
		first = true
	})
	return first
}

// Is reports whether it has happened.
func (s *Latch) Is() bool {
	select {
	case <-s.C:
		return true
	default:
		return false
	}
}

// Ends returns a context that it ends too.
func (s *Latch) Ends(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.C:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Pause doubles from 20 ms to a second.
type Pause struct{ d time.Duration }

// Next is how long the next pause is.
func (p *Pause) Next() time.Duration {
	p.d = min(max(2*p.d, 20*time.Millisecond), time.Second)
	return p.d
}

// Look is how often it is looked whether something is still under way.
const Look = 20 * time.Millisecond

// Rest waits; false when ctx has ended.
func Rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
