//go:build unix

package mcpfront

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
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
	c, err := s.sit(stdout{frames.NewSink(out)}, whose{})
	if err != nil {
		return err
	}
	defer c.release()
	w := wired{p: c, all: func() []*conv { return []*conv{c.conv} }, appears: func(p *paper.Presence) { c.present = p }, first: c.first, most: s.opts.MaxFrameBytes, grace: s.grace, quit: s.quit, log: s.log}
	err, kept := w.serve(ctx, s.opts.State, in)
	if kept != nil {
		return tga.Errorf(tga.ToolError, "tool server %q: %w", s.opts.Server, kept)
	}
	return err
}

// wired is a client on stdin and stdout.
type wired struct {
	p       party
	all     func() []*conv // its conversations
	appears func(*paper.Presence)
	first   func() // waits until messages can be taken
	busy    func() int
	most    int64
	grace   time.Duration // for calls under way at the end
	quit    time.Duration
	log     *slog.Logger
}

// serve takes the client's messages until they end. kept says why the tool server could not be had
// before that.
func (w *wired) serve(ctx context.Context, state string, in io.Reader) (err, kept error) {
	present, err := paper.Appear(state)
	if err != nil {
		return err, nil
	}
	defer present.Remove()
	w.appears(present)
	defer w.p.end()
	over := make(chan error, 1)
	go func() { over <- w.p.run() }()
	read := make(chan error, 1)
	go func() {
		// What the client says before there is a tool server waits in its pipe, in order.
		w.first()
		read <- readAll(w.p, state, frames.NewFrames(in, w.most))
	}()

	select {
	case kept := <-over:
		return nil, kept // without an error the client is gone
	case err = <-read:
		// The client has closed its end: who repeats a call of its elsewhere goes on with it.
		// First what it was given is noted, so that this is not taken for lost.
		w.noteAll()
		present.Leave()
		w.settle(ctx)
	case <-ctx.Done():
		err = nil
	}
	w.noteAll()
	w.p.end()
	select {
	case keptErr := <-over:
		if err == nil {
			err = keptErr
		}
	case <-time.After(w.quit):
		w.log.Warn("the client takes nothing any more; what was on its way to it is given up")
	}
	return err, nil
}

func (w *wired) noteAll() {
	var all sync.WaitGroup
	for _, c := range w.all() {
		all.Go(func() { c.noteAll(noteGrace) })
	}
	all.Wait()
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
func readAll(p party, state string, in *frames.Frames) error {
	in.Dir = state
	for {
		f, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the client's messages: %w", err)
		}
		p.fromClient(f, nil)
	}
}

// underway is how many of the client's requests have no answer yet, or one that is not noted.
func (c *conv) underway() int {
	c.mu.Lock()
	n := 0
	for _, w := range c.pending {
		if w.sub == nil && !w.late {
			n++
		}
	}
	n += c.owing
	c.mu.Unlock()
	return n + len(c.s.owed(c)) // a delivery that is not noted makes the next such call be served
}

// settle waits until nothing is under way, for a time and until ctx ends.
func (w *wired) settle(ctx context.Context) {
	until := time.After(w.grace)
	for {
		n := 0
		if w.busy != nil {
			n = w.busy()
		}
		for _, c := range w.all() {
			n += c.underway()
		}
		if n == 0 || w.p.over() {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-until:
			return
		case <-ctx.Done():
			return
		}
	}
}

// dialer makes the way to the tool server.
func (s *Shim) dialer(c *conv, lock string) dialer {
	return func(ctx context.Context, deliver func(*frames.Frame)) (frames.Upstream, error) {
		if s.opts.URL != "" {
			return frames.Dial(c.life, frames.Endpoint{
				URL: s.opts.URL, Headers: s.opts.Headers, Forwards: s.opts.ForwardAuth, Auth: c.auth, Most: s.opts.MaxFrameBytes, Spill: s.opts.State, Log: s.log,
			}, deliver), nil
		}
		o := mcpraw.ProcessOptions{
			Command: s.opts.Command, Env: append(os.Environ(), s.opts.Env...), Dir: s.opts.Dir, Stderr: s.opts.Stderr, Lock: lock,
		}
		return frames.Start(ctx, o, s.opts.MaxFrameBytes, filepath.Clean(s.opts.State), deliver)
	}
}
