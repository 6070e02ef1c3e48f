package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// link is one life of the tool server.
type link struct {
	up     frames.Upstream
	useful atomic.Bool // it has answered a request of the client's
	listed atomic.Bool // its tools' definitions were looked at, all of them
}

// gone reports whether no message can come from this life any more. A caller can know of its end before
// the supervisor does: the answer to the call that it died of is the end's own first word.
func (l *link) gone() bool {
	select {
	case <-l.up.Done():
		return true
	default:
		return false
	}
}

// current returns the tool server as it is now, nil where there is none.
func (c *conv) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up == nil || c.up.gone() {
		return nil
	}
	return c.up
}

// await returns a tool server that is there, waiting for a start that is under way or, where one
// has just gone, about to be. It does not wait for a second one: who waits is told why there is none.
func (c *conv) await(ctx context.Context) (*link, error) {
	timeout := time.NewTimer(c.s.opts.StartTimeout)
	defer timeout.Stop()
	c.mu.Lock()
	seen := c.failures
	if c.up == nil {
		c.Nudge()
	}
	for {
		up, changed, failed, why := c.up, c.changed, c.failures != seen, c.failure
		c.mu.Unlock()
		switch {
		case up != nil && !up.gone():
			return up, nil
		case failed:
			return nil, fmt.Errorf("the tool server cannot be started: %w", why)
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, errors.New("the tool server is still being started")
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		c.mu.Lock()
	}
}

// set makes l the tool server, or with nil says why there is none.
func (c *conv) set(l *link, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up = l
	if l == nil && why != nil {
		c.failure = why
		c.failures++
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// dropped answers what a tool server that ended owes. Governed calls see its end
// themselves: what became of them is not for this function to say.
func (c *conv) dropped(l *link, why error) {
	c.mu.Lock()
	var owed []*waiting
	for key, w := range c.pending {
		if w.link == l && w.late {
			c.drop(key) // no answer comes any more
		}
		if w.link != l || w.call != nil || w.own != nil {
			continue
		}
		if w.sub != nil && w.sub.acked && w.sub.life.Err() == nil {
			w.link = nil
			c.subs.resubscribe(w, firstPause)
			continue
		}
		delete(c.pending, key)
		owed = append(owed, w)
	}
	for key, asker := range c.asked {
		if asker == l {
			delete(c.asked, key)
		}
	}
	c.mu.Unlock()
	for _, w := range owed {
		if w.sub != nil {
			w.sub.end()
		}
		gone := fmt.Errorf("the tool server is gone before it answered: %w", why)
		w.lose(c, gone, gone.Error())
	}
}
