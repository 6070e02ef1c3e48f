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

// Upstream is a connection to the tool server. It passes messages of the tool server, one
// after the other, to the function that it was made with.
type Upstream interface {
	// Write writes a message to the tool server. Its error wraps [runtime.ErrNotSent] only if
	// certainly no byte of the message was written.
	Write(m *Message) error
	// Leaves returns a channel that is closed when no message is taken any more. Those that were taken before may still
	// be answered.
	Leaves() <-chan struct{}
	// Done returns a channel that is closed when no message can come any more. Why then says the
	// reason.
	Done() <-chan struct{}
	Why() error
	// Close asks the tool server to end, kills it if it does not, and returns when it has ended.
	Close()
}

// Message is a message on its way to the tool server.
type Message struct {
	Env   *mcpraw.Envelope
	Name  string // value of the header Mcp-Name, for transports that send it: the name of a tool, …
	Parts []io.WriterTo
	// Agreed is the protocol revision of the handshake, Version the revision that the request
	// itself names. HTTP repeats them in headers.
	Agreed, Version mcpraw.Revision
	// Mirrored are the arguments that a transport over HTTP repeats in headers.
	Mirrored []mcpraw.ParamValue
	Cancels  []byte // id of the request that the message cancels
	// Late is called immediately before the first byte is written, when the connection is open
	// and all waiting is over, and again while the tool server's stdin takes no byte. If it returns
	// an error, no byte is written. It may be nil.
	Late func() error
}

// Stateless reports whether the message is of a revision without a handshake.
func (m *Message) Stateless() bool { return m.Version.Stateless() }

// child is a tool server that is a process, with one message a line on its stdin and stdout.
type child struct {
	p     *mcpraw.Process
	in    *Sink
	gone  chan struct{}
	cause error // set before gone is closed
	over  sync.WaitGroup
}

// Start starts the tool server and passes its messages to deliver. Long messages are kept in
// files in the directory spill.
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

// read passes the tool server's messages to deliver until its stdout ends.
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
		// A server without stdout cannot answer, so a call would wait for ever.
		c.p.Kill(syscall.SIGKILL)
	}
	close(c.gone)
}

func (c *child) Leaves() <-chan struct{} { return c.gone }
func (c *child) Done() <-chan struct{}   { return c.gone }
func (c *child) Why() error              { return c.cause }

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
