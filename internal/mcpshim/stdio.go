//go:build unix

package mcpshim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/wire"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

const (
	// endGrace is how long calls under way are waited for when the client has closed its end. An
	// answer that comes is recorded, and a call that is given up is in doubt. A client that wants the
	// end sooner sends SIGTERM, as the protocol says.
	endGrace = 30 * time.Second
	// noteGrace is how long it may take to note what the client has got. Clients kill a server that
	// takes much longer to go when it is told to.
	noteGrace = 1500 * time.Millisecond
)

// quitWait is how long the end of the tool server is waited for. It takes longer only where
// a message is on its way to a client that has stopped reading: that would be for ever.
const quitWait = 10 * time.Second

// Stdio serves one client on in and out until in ends, ctx ends, or the tool server
// cannot be had. It owns the tool server and returns when that is gone too.
func (s *Shim) Stdio(ctx context.Context, in io.Reader, out io.Writer) error {
	place, err := paper.TakeSlot(s.opts.State, fileName(s.opts.Server))
	if err != nil {
		return err
	}
	defer place.Release()
	c := s.newConv(stdout{wire.NewSink(out)})
	c.permits.book = place.Permits
	if c.present, err = paper.Appear(s.opts.State); err != nil {
		return err
	}
	defer c.present.Remove()
	defer c.end()
	kept := make(chan error, 1)
	go func() { kept <- c.supervise(s.dialer(c, place.Server)) }()
	read := make(chan error, 1)
	go func() {
		// What the client says before there is a tool server waits in its pipe, in order.
		c.first()
		read <- c.readAll(wire.NewFrames(in, s.opts.MaxFrameBytes))
	}()

	select {
	case err := <-kept:
		if err != nil {
			return tga.Errorf(tga.ToolError, "tool server %q: %w", s.opts.Server, err)
		}
		return nil // the client is gone
	case err = <-read:
		// The client has closed its end: who repeats a call of its elsewhere goes on with it.
		// First what it was given is noted, so that this is not taken for lost.
		c.noteAll(noteGrace)
		c.present.Leave()
		c.settle(ctx, s.grace)
	case <-ctx.Done():
		err = nil
	}
	c.noteAll(noteGrace)
	c.end()
	select {
	case keptErr := <-kept:
		if err == nil {
			err = keptErr
		}
	case <-time.After(s.quit):
		s.log.Warn("the client takes nothing any more; what was on its way to it is given up")
	}
	return err
}

// first waits until there is a tool server for the first time, or none is to be had.
func (c *conv) first() {
	for {
		c.mu.Lock()
		up, failed, changed := c.up, c.failures > 0, c.changed
		c.mu.Unlock()
		if up != nil || failed {
			return
		}
		select {
		case <-changed:
		case <-c.life.Done():
			return
		}
	}
}

// readAll takes the client's messages until there are no more.
func (c *conv) readAll(in *wire.Frames) error {
	in.Dir = c.s.opts.State
	for {
		f, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the client's messages: %w", err)
		}
		c.fromClient(f, nil)
	}
}

// settle waits until nothing is under way, for a time and until ctx ends.
func (c *conv) settle(ctx context.Context, d time.Duration) {
	until := time.After(d)
	for {
		c.mu.Lock()
		n := 0
		for _, w := range c.pending {
			if w.sub == nil && !w.late {
				n++
			}
		}
		n += c.owing
		c.mu.Unlock()
		n += len(c.s.owed(c)) // a delivery that is not noted makes the next such call be served
		if n == 0 {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-until:
			return
		case <-ctx.Done():
			return
		case <-c.life.Done():
			return
		}
	}
}

// dialer makes the way to the tool server.
func (s *Shim) dialer(c *conv, lock string) dialer {
	return func(ctx context.Context, deliver func(*wire.Frame)) (wire.Upstream, error) {
		if s.opts.URL != "" {
			return wire.Dial(c.life, wire.Endpoint{
				URL: s.opts.URL, Headers: s.opts.Headers, Forwards: s.opts.ForwardAuth, Auth: c.auth, Most: s.opts.MaxFrameBytes, Spill: s.opts.State, Log: s.log,
			}, deliver), nil
		}
		o := mcpraw.ProcessOptions{
			Command: s.opts.Command, Env: append(os.Environ(), s.opts.Env...), Dir: s.opts.Dir, Stderr: s.opts.Stderr, Lock: lock,
		}
		return wire.Start(ctx, o, s.opts.MaxFrameBytes, filepath.Clean(s.opts.State), deliver)
	}
}
