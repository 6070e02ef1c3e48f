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
	"os/exec"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Waits at the end of a child's life.
const (
	stopGrace  = 2 * time.Second // for EOF on stdin, and again for SIGTERM
	drainGrace = time.Second     // for output still in the pipe when the child is gone, and the reverse
	writeGrace = time.Second     // for a cancellation, which nobody waits for
)

// child is a link to a process: one line a message on its stdin and stdout.
type child struct {
	log   *slog.Logger
	limit int64

	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	exited chan struct{} // closed when the process was reaped; exit is set
	exit   error
	gone   chan struct{} // closed when no answer can come any more

	writing chan struct{} // held while a line is written
	replies chan []byte   // answers to the server's own requests

	mu      sync.Mutex
	next    int64
	pending map[int64]chan *answer // nil when no answer can come any more
	broken  bool                   // no further line may be written

	wg   sync.WaitGroup
	stop sync.Once
}

// startChild starts the process. The lock is waited for first, and held by the child
// alone: its descriptor is inherited and this process's copy is closed.
func startChild(ctx context.Context, opts Options, log *slog.Logger) (link, error) {
	cmd := exec.Command(opts.Command[0], opts.Command[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = childEnv(opts.Env), opts.Dir, childAttr()
	var files [6]*os.File // the child's stdin, ours; ours, its stdout; ours, its stderr
	for i := 0; i < len(files); i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(files[:])
			return nil, fmt.Errorf("pipe: %w", err)
		}
		files[i], files[i+1] = r, w
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[3], files[5]
	if opts.LockFile != "" {
		lock, err := waitLock(ctx, opts.LockFile)
		if err != nil {
			closeAll(files[:])
			return nil, err
		}
		defer lock.Close()
		cmd.ExtraFiles = []*os.File{lock}
	}
	c := &child{
		log: log, limit: opts.MaxAnswerBytes,
		cmd: cmd, stdin: files[1], stdout: files[2], stderr: files[4],
		exited: make(chan struct{}), gone: make(chan struct{}),
		writing: make(chan struct{}, 1), replies: make(chan []byte, 64),
		pending: make(map[int64]chan *answer),
	}
	started := make(chan error)
	c.wg.Go(func() { c.run(started) })
	err := <-started
	closeAll([]*os.File{files[0], files[3], files[5]}) // the child's ends
	if err != nil {
		closeAll([]*os.File{files[1], files[2], files[4]})
		c.wg.Wait()
		return nil, err
	}
	c.wg.Go(c.read)
	c.wg.Go(c.answerRequests)
	c.wg.Go(c.logStderr)
	return c, nil
}

// run starts the process and waits for its end on one thread. The kernel sends the
// parent-death signal when the *thread* that forked ends, so the thread must live
// exactly as long as the child: the goroutine keeps it locked and never unlocks.
func (c *child) run(started chan<- error) {
	goruntime.LockOSThread()
	if err := c.cmd.Start(); err != nil {
		goruntime.UnlockOSThread()
		started <- err
		return
	}
	started <- nil
	c.exit = c.cmd.Wait()
	if c.exit == nil {
		c.exit = errors.New("exit status 0")
	}
	close(c.exited)
	// A descendant may hold the pipes open for ever. What the child itself wrote is in
	// them by now.
	until := time.Now().Add(drainGrace)
	_ = c.stdout.SetReadDeadline(until)
	_ = c.stderr.SetReadDeadline(until)
}

func (c *child) alive() bool {
	select {
	case <-c.gone:
		return false
	case <-c.exited:
		return false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.broken
}

func (c *child) agreed(string) {}

func (c *child) exchange(ctx context.Context, req *jsonrpc.Request) (*answer, error) {
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
	if err != nil && n == 0 {
		return nil, notSent("write: %v", err)
	}
	if err != nil {
		return nil, fmt.Errorf("write: %d of %d bytes: %w", n, len(line)+1, err)
	}
	select {
	case a := <-ready:
		return c.received(a)
	case <-ctx.Done():
		select {
		case a := <-ready: // both happened; an answer is never dropped for a lesser reason
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

// received returns the answer, or why there is none any more.
func (c *child) received(a *answer) (*answer, error) {
	if a != nil {
		return a, nil
	}
	select {
	case <-c.exited:
		return nil, fmt.Errorf("%w: %v", errGone, c.exit)
	case <-time.After(drainGrace):
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

// writeLine writes line and a newline, all or, after an error, n bytes of it. A line
// that was begun and not finished would swallow the next one, so it ends the link.
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
	// The server may not be reading. A deadline in the past ends the write when ctx
	// does; it must be gone again before the next line.
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.stdin.SetWriteDeadline(time.Unix(1, 0))
		close(ended)
	})
	n, err = c.stdin.Write(append(line, '\n'))
	if !stop() {
		<-ended
		if clear := c.stdin.SetWriteDeadline(time.Time{}); clear != nil {
			err = errors.Join(err, clear)
		}
	}
	if err == nil || (n == 0 && errors.Is(err, os.ErrDeadlineExceeded)) {
		return n, err
	}
	c.mu.Lock()
	c.broken = true
	c.mu.Unlock()
	c.kill(syscall.SIGKILL)
	return n, err
}

// read takes the server's lines until its stdout ends.
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
	in := bufio.NewReaderSize(c.stdout, 64<<10)
	for {
		s := newScanner(c.limit)
		err := scanLine(in, s)
		if s.done() {
			c.deliver(s)
		} else if s.state != scanStart {
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

// scanLine gives one line to s, however long.
func scanLine(in *bufio.Reader, s *scanner) error {
	for {
		part, err := in.ReadSlice('\n')
		_, _ = s.Write(part) // never fails
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func (c *child) deliver(s *scanner) {
	if s.method.present {
		if s.isNullID() {
			return // a notification
		}
		// Not here: a server that does not read its stdin would stop this loop, which
		// alone lets it go on.
		select {
		case c.replies <- serverRequest(s):
		default:
			c.log.Warn("tool server asks faster than it reads; request dropped", "method", s.name())
		}
		return
	}
	id, ok := s.number()
	c.mu.Lock()
	ready := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if !ok || ready == nil {
		c.log.Warn("tool server answered a request that is not waited for", "id", string(s.id.data), "bytes", s.result.bytes+s.fault.bytes)
		return
	}
	ready <- &answer{result: s.result, fault: s.fault}
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

// logStderr passes the server's stderr on, a record a line, long lines cut.
func (c *child) logStderr() {
	const most = 4 << 10
	in := bufio.NewReaderSize(c.stderr, most)
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

// kill signals the child's process group, which it leads.
func (c *child) kill(sig syscall.Signal) {
	select {
	case <-c.exited: // its number may be another's by now
	default:
		_ = syscall.Kill(-c.cmd.Process.Pid, sig)
	}
}

func (c *child) retire() { c.close() }

// close asks the child to end, then makes it.
func (c *child) close() {
	c.stop.Do(func() {
		c.mu.Lock()
		c.broken = true
		c.mu.Unlock()
		_ = c.stdin.Close()
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-c.exited:
			case <-time.After(stopGrace):
				c.kill(sig)
			}
		}
		<-c.exited
		c.wg.Wait()
		closeAll([]*os.File{c.stdout, c.stderr})
	})
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
