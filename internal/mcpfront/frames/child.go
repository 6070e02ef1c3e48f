//go:build unix

package frames

import (
	"context"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/onwire"
)

// Upstream is a way to the tool server. Messages that come from it are handed, one after
// the other, to the function that it was made with.
type Upstream interface {
	// Write gives a message to the tool server. It returns [runtime.ErrNotSent] (wrapped) where it
	// is certain that no byte of it went out.
	Write(m *Message) error
	// Done is closed when no message can come any more, and Why says the reason.
	Done() <-chan struct{}
	Why() error
	// Close asks the tool server to end, then makes it, and returns when it is gone.
	Close()
}

// Message is a message on its way to the tool server.
type Message struct {
	Env   *mcpraw.Envelope
	Name  string // what the request is about, for transports that say it: a tool, …
	Parts []io.WriterTo
	// Agreed is the protocol revision of the handshake, Version the one that the request
	// itself names; transports repeat them.
	Agreed, Version mcpraw.Revision
	// Mirrored are the arguments that a transport over HTTP repeats in headers.
	Mirrored []mcpraw.ParamValue
	Cancels  []byte // id of the request that the message gives up
	// Late is asked immediately before the first byte goes out, when a connection is there and
	// whatever had to be waited for is over: with an error none goes out. nil is never late.
	Late func() error
}

// Stateless reports whether the message is of a revision without a handshake.
func (m *Message) Stateless() bool { return m.Version.Stateless() }

// child is a tool server that is a process: one line a message on its stdin and stdout.
// Its stderr is the shim's own, as the client would have it without the shim.
type child struct {
	p     *mcpraw.Process
	in    *Sink
	gone  chan struct{}
	cause error // set before gone is closed
	over  sync.WaitGroup
}

// Start starts the tool server and hands its messages on, those over what is kept in
// memory by way of files in spill.
func Start(ctx context.Context, o mcpraw.ProcessOptions, most int64, spill string, deliver func(*Frame)) (Upstream, error) {
	p, err := mcpraw.StartProcess(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &child{p: p, in: NewSink(p.Stdin), gone: make(chan struct{})}
	in := NewFrames(p.Stdout, most)
	in.Dir = spill
	c.over.Go(func() { c.read(in, deliver) })
	return c, nil
}

// read hands the tool server's messages on until its stdout ends.
func (c *child) read(in *Frames, deliver func(*Frame)) {
	var err error
	for {
		var f *Frame
		if f, err = in.Next(); err != nil {
			break
		}
		deliver(f)
	}
	c.cause = fmt.Errorf("it closed its stdout (%w)", err)
	select {
	case <-c.p.Exited():
		c.cause = fmt.Errorf("it ended: %w", c.p.Exit())
	case <-time.After(mcpraw.DrainGrace):
		// It is of no use any more, and a call would wait for an answer that cannot come.
		c.p.Kill(syscall.SIGKILL)
	}
	close(c.gone)
}

func (c *child) Done() <-chan struct{} { return c.gone }
func (c *child) Why() error            { return c.cause }

func (c *child) Write(m *Message) error {
	select {
	case <-c.gone:
		return onwire.NotSent(fmt.Errorf("the tool server is gone: %w", c.cause))
	case <-c.p.Exited():
		return onwire.NotSent(fmt.Errorf("the tool server is gone: %w", c.p.Exit()))
	default:
	}
	return c.in.writeUnless(m.Late, m.Parts...)
}

func (c *child) Close() {
	c.p.Stop()
	c.over.Wait()
	c.p.CloseFiles()
}
