package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/wait"
)

// Pauses between the starts of a tool server that keeps ending.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// dialer starts the tool server or connects to it.
type dialer func(ctx context.Context, deliver func(*frames.Frame)) (frames.Upstream, error)

// supervise starts the tool server, and starts it again when it ends. It returns nil when the
// conversation is over. It returns an error if the tool server does not start, or ends, before
// any valid message came from one: then the command is wrong, and the client must see that as
// it would without the shim.
func (c *conv) supervise(dial dialer) error {
	pause := firstPause
	for first := true; ; first = false {
		l, err := c.start(dial)
		if err == nil {
			c.set(l, nil)
			if c.rose != nil {
				c.rose()
			}
			select {
			case <-l.up.Done():
			case <-c.life.Done():
			}
			if c.life.Err() != nil {
				l.up.Close()
				c.set(nil, attempt.ErrOver)
				return nil
			}
			err = fmt.Errorf("the tool server is gone: %w", l.up.Why())
			c.set(nil, nil)
			l.up.Close()
			c.dropped(l, l.up.Why())
		}
		if c.life.Err() != nil {
			return nil
		}
		if !c.answered.Load() && !c.lasting {
			c.set(nil, err)
			return err
		}
		var ch *frames.Challenge
		refused := errors.As(err, &ch)
		if refused {
			c.s.Log.Info("the tool server refuses the credentials of a conversation", "error", err)
		} else if first {
			c.s.Log.Warn("the tool server ended and is started again", "error", err)
		}
		if l == nil {
			c.set(nil, err)
		} else if l.useful.Load() {
			pause = firstPause // it answered requests: it can start, and probably died of a call
		}
		if !wait.Rest(c.life, pause) {
			return nil
		}
		pause = min(2*pause, lastPause)
		if refused {
			// The conversation has these credentials for its whole life, but they may become valid. So the next
			// start waits until a request needs the tool server.
			pause = firstPause
			select {
			case <-c.nudge:
			case <-c.life.Done():
				return nil
			}
		}
	}
}

// Nudge makes [conv.supervise] try again a tool server that refused the conversation's credentials.
func (c *conv) Nudge() {
	select {
	case c.nudge <- struct{}{}:
	default: // a nudge is pending already
	}
}

// start starts a tool server and repeats the client's handshake to it.
func (c *conv) start(dial dialer) (*link, error) {
	ctx, cancel := context.WithTimeout(c.life, c.s.opts.StartTimeout)
	defer cancel()
	l := &link{}
	ready := make(chan struct{})
	up, err := dial(ctx, func(f *frames.Frame) {
		<-ready
		c.fromServer(l, f)
	})
	if err != nil {
		return nil, err
	}
	l.up = up
	close(ready)
	if err := c.opening.Replay(ctx, func(ctx context.Context, method string, params []byte) (*frames.Frame, error) {
		return c.request(ctx, l, method, params)
	}, up.Write); err != nil {
		up.Close()
		return nil, fmt.Errorf("handshake with the tool server: %w", err)
	}
	c.permits.TakeOver()
	return l, nil
}
