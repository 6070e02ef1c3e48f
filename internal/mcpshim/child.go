//go:build unix

package mcpshim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/tgad/tgad/runtime/mcp/mcpraw"
)

// upstream is a way to the tool server. Messages that come from it are handed, one after
// the other, to the function that it was made with.
type upstream interface {
	// write gives a message to the tool server. It returns errNotSent (wrapped) where it
	// is certain that no byte of it went out.
	write(m *message) error
	// done is closed when no message can come any more, and why says the reason.
	done() <-chan struct{}
	why() error
	// close asks the tool server to end, then makes it, and returns when it is gone.
	close()
}

// message is a message on its way to the tool server.
type message struct {
	env   *mcpraw.Envelope
	name  string // what the request is about, for transports that say it: a tool, …
	parts []io.WriterTo
	// agreed is the protocol revision of the handshake, version the one that the request
	// itself names; transports repeat them.
	agreed, version mcpraw.Revision
	// mirrored are the arguments that a transport over HTTP repeats in headers.
	mirrored []mcpraw.ParamValue
	cancels  []byte // id of the request that the message gives up
	// late is asked immediately before the first byte goes out, when a connection is there and
	// whatever had to be waited for is over: with an error none goes out. nil is never late.
	late func() error
}

// tooLate is the error of a message whose time is over, else nil.
func (m *message) tooLate() error {
	if m.late == nil {
		return nil
	}
	if err := m.late(); err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return nil
}

// stateless reports whether the message is of a revision without a handshake.
func (m *message) stateless() bool { return m.version.Stateless() }

// errNotSent says that no byte of a message went out.
var errNotSent = errors.New("not sent")

// child is a tool server that is a process: one line a message on its stdin and stdout.
// Its stderr is the shim's own, as the client would have it without the shim.
type child struct {
	p     *mcpraw.Process
	in    *sink
	gone  chan struct{}
	cause error // set before gone is closed
	over  sync.WaitGroup
}

// startChild starts the tool server and hands its messages on, those over what is kept in
// memory by way of files in spill.
func startChild(ctx context.Context, o mcpraw.ProcessOptions, most int64, spill string, deliver func(*frame)) (*child, error) {
	p, err := mcpraw.StartProcess(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &child{p: p, in: newSink(p.Stdin), gone: make(chan struct{})}
	in := newFrames(p.Stdout, most)
	in.dir = spill
	c.over.Go(func() { c.read(in, deliver) })
	return c, nil
}

// read hands the tool server's messages on until its stdout ends.
func (c *child) read(in *frames, deliver func(*frame)) {
	var err error
	for {
		var f *frame
		if f, err = in.next(); err != nil {
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

func (c *child) done() <-chan struct{} { return c.gone }
func (c *child) why() error            { return c.cause }

func (c *child) write(m *message) error {
	select {
	case <-c.gone:
		return fmt.Errorf("%w: the tool server is gone: %w", errNotSent, c.cause)
	case <-c.p.Exited():
		return fmt.Errorf("%w: the tool server is gone: %w", errNotSent, c.p.Exit())
	default:
	}
	return c.in.writeUnless(m.tooLate, m.parts...)
}

func (c *child) close() {
	c.p.Stop()
	c.over.Wait()
	c.p.CloseFiles()
}
