//go:build unix

package mcpfront

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/paper"
	"github.com/tgad/tgad/internal/mcpfront/subject"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Stdio serves one client on in and out until in ends, ctx ends, or the tool server cannot be
// started. It owns the tool server, and returns once that has ended too.
func (s *Shim) Stdio(ctx context.Context, in io.Reader, out io.Writer) error {
	c, err := s.Sit(entry.NewStdout(out), entry.Whose{})
	if err != nil {
		return err
	}
	defer c.Release()
	err, kept := s.Lines(ctx, in, c, s.Log)
	if kept != nil {
		return tga.Errorf(tga.ToolError, "tool server %q: %w", s.opts.Server, kept)
	}
	return err
}

// Lines serves a client on in, with the shim's settings, until in or ctx ends. kept says why the tool server could
// not be started.
func (s *Shim) Lines(ctx context.Context, in io.Reader, p entry.Line, log *slog.Logger) (err, kept error) {
	w := entry.Wired{P: p, State: s.opts.State, Most: s.opts.MaxFrameBytes, Grace: s.opts.EndGrace, Quit: s.quit, Log: log}
	return w.Serve(ctx, in)
}

// Appears sets the lock that shows that the client lives.
func (a *Conversation) Appears(present *paper.Presence) { a.present = present }

// Note notes at once the delivery of every answer that the client was given.
func (a *Conversation) Note() { a.s.NoteAll(a.to, entry.NoteGrace) }

// Ready waits until the tool server has started for the first time, or has failed to start.
func (c *conv) Ready() {
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

// Underway is the number of the client's requests that have no answer yet, or an answer whose delivery is not noted.
func (c *conv) Underway() int {
	c.mu.Lock()
	n := 0
	for _, w := range c.pending {
		if w.sub == nil && !w.late {
			n++
		}
	}
	n += c.owing
	c.mu.Unlock()
	return n + len(c.s.Owed(c.to)) // until a delivery is noted, the same call again is served that answer
}

// Listen serves streamable HTTP on an address, "unix:PATH" or host:port, until ctx ends.
// A page in a browser could reach a port of this machine, so Listen refuses requests whose
// Origin is not this machine. Everybody who can connect can call tools, so it refuses an
// address that other machines can reach.
func (s *Shim) Listen(ctx context.Context, address string) error {
	l, err := entry.ListenOn(address)
	if err != nil {
		return err
	}
	return entry.Serve(ctx, l, s.Log, func(life context.Context) entry.Lobby { return s.Front(life, nil, nil) })
}

// Front serves the shim's clients over HTTP. meet begins their conversations, and from says where their credentials
// come from. If meet is nil, both are those of this shim.
func (s *Shim) Front(life context.Context, meet entry.Meeting, from func() []subject.Source) *entry.Front {
	if meet == nil {
		meet, from = s.meet, func() []subject.Source { return []subject.Source{s.Credentials()} }
	}
	f := entry.NewFront(entry.FrontOptions{From: from, Log: s.Log}, meet, life)
	s.Reap = f.Reap
	return f
}

// dialer returns a function that starts the tool server or connects to it.
func (s *Shim) dialer(c *conv, lock string) dialer {
	return func(ctx context.Context, deliver func(*frames.Frame)) (frames.Upstream, error) {
		if s.opts.URL != "" {
			return frames.Dial(c.life, frames.Endpoint{
				URL: s.opts.URL, Headers: s.opts.Headers, Forwards: s.opts.ForwardAuth, Auth: c.auth, Most: s.opts.MaxFrameBytes, Spill: s.opts.State, Log: s.Log,
			}, deliver), nil
		}
		o := mcpraw.ProcessOptions{
			Command: s.opts.Command, Env: append(os.Environ(), s.opts.Env...), Dir: s.opts.Dir, Stderr: s.opts.Stderr, Lock: lock,
		}
		return frames.Start(ctx, o, s.opts.MaxFrameBytes, filepath.Clean(s.opts.State), deliver)
	}
}
