package mcpfront

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/attempt"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/wait"
	"github.com/tgad/tgad/internal/mcpraw"
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
		if first {
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
	if err := c.opening.replay(ctx, c, l); err != nil {
		up.Close()
		return nil, fmt.Errorf("handshake with the tool server: %w", err)
	}
	c.permits.TakeOver()
	return l, nil
}

// opening is what a client said to its tool server to set it up, so that a tool server
// that is started again can be told.
type opening struct {
	mu         sync.Mutex
	initialize []byte          // params
	done       bool            // initialized was said
	agreed     mcpraw.Revision // protocol revision of the handshake
	changes    bool            // the tool server tells when its list of tools changes
	level      []byte          // params of the newest logging/setLevel
	greeting   []byte          // what the tool server said in the handshake, where the shim made it
	greets     bool            // the shim makes the handshake
	subscribed map[string][]byte
}

const maxSubscriptions = 1000

// saw looks at a request or notification of the client's.
func (o *opening) saw(f *frames.Frame) {
	switch f.Method {
	case "initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
	default:
		return
	}
	var params []byte
	if f.Params.Present() {
		p, err := f.Bytes(f.Params, frames.SpillBytes)
		if err != nil {
			return
		}
		params = append(params, p...)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch f.Method {
	case "initialize":
		o.initialize, o.done, o.agreed = params, false, ""
	case "notifications/initialized":
		o.done = true
	case "logging/setLevel":
		o.level = params
	case "resources/subscribe":
		if o.subscribed == nil {
			o.subscribed = map[string][]byte{}
		}
		if uri := mcpraw.Text(mcpraw.At(params, "/uri")); uri != "" && len(o.subscribed) < maxSubscriptions {
			o.subscribed[uri] = params
		}
	case "resources/unsubscribe":
		delete(o.subscribed, mcpraw.Text(mcpraw.At(params, "/uri")))
	}
}

// answered looks at the answer to a request of the client's.
func (o *opening) answered(method string, f *frames.Frame) {
	if method != "initialize" || !f.Result.Present() {
		return
	}
	result, err := f.Bytes(f.Result, frames.SpillBytes)
	if err != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.agreed = mcpraw.Revision(mcpraw.ScalarText(mcpraw.At(result, "/protocolVersion")))
	o.changes = string(mcpraw.At(result, "/capabilities/tools/listChanged")) == "true"
}

// listChanged reports whether the client was told in the handshake that it will hear of a change
// of the list of tools.
func (o *opening) listChanged() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.done && o.changes
}

func (o *opening) version() mcpraw.Revision {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.agreed
}

// replay says to a new tool server what was said to the one before. The client sees
// nothing of it.
func (o *opening) replay(ctx context.Context, c *conv, l *link) error {
	o.mu.Lock()
	initialize, done, agreed, level, greets := o.initialize, o.done, o.agreed, o.level, o.greets
	var subscribed [][]byte
	for _, p := range o.subscribed {
		subscribed = append(subscribed, p)
	}
	o.mu.Unlock()
	if !done || agreed == "" && !greets {
		return nil // nothing was agreed that could be gone back on
	}
	f, err := c.request(ctx, l, "initialize", initialize)
	if err != nil {
		return err
	}
	defer f.Close()
	if !f.Result.Present() {
		fault, _ := f.Bytes(f.Fault, 1000)
		return fmt.Errorf("it refuses: %s", fault)
	}
	result, err := f.Bytes(f.Result, frames.SpillBytes)
	if err != nil {
		return err
	}
	switch v := mcpraw.Revision(mcpraw.ScalarText(mcpraw.At(result, "/protocolVersion"))); {
	case greets && agreed == "":
		agreed = v
		o.met(v, result)
	case v != agreed:
		return fmt.Errorf("it speaks revision %q, and the client was told %q", v, agreed)
	}
	n := frames.NewFrame([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err := l.up.Write(&frames.Message{Env: &n.Envelope, Parts: parts(n), Agreed: agreed}); err != nil {
		return err
	}
	if level != nil {
		if err := c.again(ctx, l, "logging/setLevel", level); err != nil {
			return err
		}
	}
	for _, p := range subscribed {
		if err := c.again(ctx, l, "resources/subscribe", p); err != nil {
			return err
		}
	}
	return nil
}

// greet makes the handshake the shim's own: a tool server is told what the client said to all.
func (o *opening) greet(params []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.initialize, o.done, o.greets, o.changes = params, true, true, true
}

// goesOn takes over what was said to a tool server before this one.
func (o *opening) goesOn(level []byte, subscribed map[string][]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.level, o.subscribed = level, subscribed
}

// asks are the subscriptions of resources, as a tool server that follows is told them.
func (o *opening) asks() map[string][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.subscribed)
}

// met notes what a tool server has said in the shim's handshake.
func (o *opening) met(v mcpraw.Revision, result []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.agreed, o.greeting = v, bytes.Clone(result)
}

// said is what a tool server has said in the shim's handshake; nil where it has not yet.
func (o *opening) said() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.greeting
}

// again repeats a request whose answer is of no interest.
func (c *conv) again(ctx context.Context, l *link, method string, params []byte) error {
	if !json.Valid(params) {
		params = []byte("{}")
	}
	f, err := c.request(ctx, l, method, params)
	if err != nil {
		return err
	}
	f.Close()
	return nil
}
