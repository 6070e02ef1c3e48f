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

// Pauses between starts of a tool server that ends again and again.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// dialer makes a way to the tool server.
type dialer func(ctx context.Context, deliver func(*frames.Frame)) (frames.Upstream, error)

// supervise keeps a tool server: it starts one, and another when it ends. It returns nil
// when the conversation is over, and an error when the first tool server does not start
// or ends before it said anything: then something is wrong with the command, and the
// client is to see that as it would without the shim.
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
			pause = firstPause // it has served: one that dies of a call is not one that cannot start
		}
		if !wait.Rest(c.life, pause) {
			return nil
		}
		pause = min(2*pause, lastPause)
		if refused {
			// The credentials are those of the conversation, and no others come. Somebody may make them good.
			pause = firstPause
			select {
			case <-c.nudge:
			case <-c.life.Done():
				return nil
			}
		}
	}
}

// Nudge has a tool server asked again that has refused the conversation's credentials.
func (c *conv) Nudge() {
	select {
	case c.nudge <- struct{}{}:
	default: // somebody has
	}
}

// start starts a tool server and brings it to where its predecessor was.
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
