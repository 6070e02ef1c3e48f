// Package wait has the waits of an MCP front: for an event that happens once, and between two tries.
package wait

import (
	"context"
	"sync"
	"time"
)

// Latch is an event that happens once. Its channel C is closed when it happens.
type Latch struct {
	C    chan struct{}
	once sync.Once
}

// NewLatch makes a latch that is not set.
func NewLatch() *Latch { return &Latch{C: make(chan struct{})} }

// Set sets the latch. It reports whether the latch was not set before.
func (s *Latch) Set() (first bool) {
	s.once.Do(func() {
		close(s.C)
		first = true
	})
	return first
}

// Is reports whether the latch is set.
func (s *Latch) Is() bool {
	select {
	case <-s.C:
		return true
	default:
		return false
	}
}

// Ends returns a context that also ends when the latch is set.
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

// Look is the pause between two looks at whether something is still under way.
const Look = 20 * time.Millisecond

// Rest waits for d. It returns false as soon as ctx has ended.
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
