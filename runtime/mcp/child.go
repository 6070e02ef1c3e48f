//go:build unix

package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/onwire"
)

// commandsRun says that this platform supports a command as tool server.
const commandsRun = true

// child is a link to a process: one message a line on its stdin and stdout.
type child struct {
	log   *slog.Logger
	limit int64
	heard func(method string) // called for each notification of the server

	p    *mcpraw.Process
	gone chan struct{} // closed when no answer can come any more

	writing chan struct{} // held while a line is written
	replies chan []byte   // answers to the server's own requests

	mu      sync.Mutex
	next    int64
	pending map[int64]chan *answer // nil when no answer can come any more
	broken  bool                   // no further line may be written

	wg sync.WaitGroup
}

// startChild waits for the lock and starts the process, which then holds the lock alone.
func startChild(ctx context.Context, opts Options, log *slog.Logger, heard func(method string)) (link, error) {
	p, err := mcpraw.StartProcess(ctx, mcpraw.ProcessOptions{
		Command: opts.Command, Env: childEnv(opts.Env), Dir: opts.Dir, PipeStderr: true, Lock: opts.LockFile,
	})
	if err != nil {
		return nil, err
	}
	c := &child{
		log: log, limit: opts.MaxAnswerBytes, heard: heard, p: p, gone: make(chan struct{}),
		writing: make(chan struct{}, 1), replies: make(chan []byte, 64),
		pending: make(map[int64]chan *answer),
	}
	c.wg.Go(c.read)
	c.wg.Go(c.answerRequests)
	c.wg.Go(c.logStderr)
	return c, nil
}

func (c *child) alive() bool {
	select {
	case <-c.gone:
		return false
	case <-c.p.Exited():
		return false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.broken
}

func (c *child) agreed(mcpraw.Revision) {}

func (c *child) exchange(ctx context.Context, req *jsonrpc.Request, _ ...mcpraw.ParamValue) (*answer, error) {
	ready := make(chan *answer, 1)
	c.mu.Lock()
	if c.pending == nil {
		c.mu.Unlock()
		return nil, notSent("%v", errGone)
	}
	c.next++
	id := c.next
	c.pending[id] = ready
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}()

	line, err := frame(req, id)
	if err != nil {
		return nil, notSent("%v", err)
	}
	n, err := c.writeLine(ctx, line)
	if err := onwire.Wrote(int64(n), err); err != nil {
		return nil, fmt.Errorf("write %d bytes: %w", len(line)+1, err)
	}
	select {
	case a := <-ready:
		return c.received(a)
	case <-ctx.Done():
		select {
		case a := <-ready: // both happened: the answer counts
			return c.received(a)
		default:
		}
		cause := context.Cause(ctx)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeGrace)
		defer cancel()
		if err := c.notify(bounded, cancelled(id)); err != nil {
			return nil, fmt.Errorf("no answer: %w (cancellation not sent: %v)", cause, err)
		}
		return nil, fmt.Errorf("no answer: %w", cause)
	}
}

// received returns the answer, or an error that says why none can come any more.
func (c *child) received(a *answer) (*answer, error) {
	if a != nil {
		return a, nil
	}
	select {
	case <-c.p.Exited():
		return nil, fmt.Errorf("%w: %v", errGone, c.p.Exit())
	case <-time.After(mcpraw.DrainGrace):
		return nil, fmt.Errorf("%w: the server closed its stdout", errGone)
	}
}

func (c *child) notify(ctx context.Context, n *jsonrpc.Request) error {
	line, err := frame(n, 0)
	if err != nil {
		return err
	}
	_, err = c.writeLine(ctx, line)
	return err
}

// writeLine writes line and a newline. After an error n is the number of bytes that were
// written. A line that was written in part would merge with the next one, so it ends the link.
func (c *child) writeLine(ctx context.Context, line []byte) (n int, err error) {
	select {
	case c.writing <- struct{}{}:
	case <-c.gone:
		return 0, errGone
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { <-c.writing }()
	if !c.alive() {
		return 0, errGone
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	// The server may not be reading, which blocks the write. When ctx ends, a deadline in the
	// past ends the write. The deadline must be cleared before the next line.
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.p.Stdin.SetWriteDeadline(time.Unix(1, 0))
		close(ended)
	})
	n, err = c.p.Stdin.Write(append(line, '\n'))
	if !stop() {
		<-ended
		if clear := c.p.Stdin.SetWriteDeadline(time.Time{}); clear != nil {
			err = errors.Join(err, clear)
		}
	}
	if err == nil || (n == 0 && errors.Is(err, os.ErrDeadlineExceeded)) {
		return n, err
	}
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	c.p.Kill(syscall.SIGKILL)
	return n, err
}

// read handles the server's lines until its stdout ends.
func (c *child) read() {
	defer func() {
		c.mu.Lock()
		for _, ready := range c.pending {
			close(ready)
		}
		c.pending = nil
		c.mu.Unlock()
		close(c.gone)
	}()
	in := bufio.NewReaderSize(c.p.Stdout, 64<<10)
	for {
		m := newMessage(c.limit)
		err := readLine(in, m)
		if blank := m.Blank(); m.done() {
			c.deliver(m)
		} else if !blank {
			c.log.Warn("tool server wrote a line that is no JSON-RPC message; ignored", "error", err)
		}
		if err != nil {
			if err != io.EOF {
				c.log.Debug("tool server's stdout", "error", err)
			}
			return
		}
	}
}

// readLine passes one line of any length to m.
func readLine(in *bufio.Reader, m *message) error {
	for {
		part, err := in.ReadSlice('\n')
		_ = m.add(part) // never fails
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func (c *child) deliver(m *message) {
	if m.env.Method != "" {
		if m.env.IsNotification() {
			c.heard(m.env.Method)
			return
		}
		// Not written here: a server that does not read its stdin would block this loop, and
		// the server may itself be blocked until this loop reads its stdout.
		select {
		case c.replies <- serverRequest(m):
		default:
			c.log.Warn("tool server asks faster than it reads; request dropped", "method", m.env.Method)
		}
		return
	}
	id, ok := m.number()
	c.mu.Lock()
	ready := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if !ok || ready == nil {
		c.log.Warn("tool server answered a request that is not waited for", "id", string(m.env.RawID), "bytes", m.result.bytes+m.fault.bytes)
		return
	}
	ready <- answerIn(m)
}

func (c *child) answerRequests() {
	for {
		select {
		case line := <-c.replies:
			ctx, cancel := context.WithTimeout(context.Background(), writeGrace)
			if _, err := c.writeLine(ctx, line); err != nil {
				c.log.Debug("answer to the tool server's request not written", "error", err)
			}
			cancel()
		case <-c.gone:
			return
		}
	}
}

// logStderr logs the server's stderr, one record a line. It cuts long lines.
func (c *child) logStderr() {
	const most = 4 << 10
	in := bufio.NewReaderSize(c.p.Stderr, most)
	for {
		line, long, err := in.ReadLine()
		if err != nil {
			return
		}
		c.log.Info("tool server's stderr", "line", string(line))
		for long && err == nil {
			_, long, err = in.ReadLine()
		}
	}
}

func (c *child) retire() { c.close() }

// close asks the child to end, and kills it if it does not.
func (c *child) close() {
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	c.p.Stop()
	c.wg.Wait()
	c.p.CloseFiles()
}
