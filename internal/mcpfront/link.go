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
	useful atomic.Bool // the tool server has answered a request of the client
	listed atomic.Bool // the definitions of all its tools were read
}

// gone reports whether this life of the tool server takes no message any more. A call that the
// tool server died of can see that before the supervisor does.
func (l *link) gone() bool {
	select {
	case <-l.up.Leaves():
		return true
	default:
		return false
	}
}

// current returns the running tool server, nil if there is none.
func (c *conv) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.up == nil || c.up.gone() {
		return nil
	}
	return c.up
}

// await returns a running tool server. It waits for a start that is under way or about to begin. If
// that start fails, await does not wait for a second one, and returns why it failed.
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

// set makes l the current tool server. With nil, why says why there is none.
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

// dropped answers the requests that a tool server had when it ended. It leaves out governed calls:
// their attempts see the end themselves and decide.
func (c *conv) dropped(l *link, why error) {
	c.mu.Lock()
	var owed []*waiting
	for key, w := range c.pending {
		if w.link == l && w.late {
			c.drop(key) // no late answer can come any more
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
