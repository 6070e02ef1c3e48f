//go:build unix

package mcpshim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"
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
	env   *envelope
	tool  string // what the request is about, for transports that name it: a tool, …
	parts []io.WriterTo
	// agreed is the protocol revision of the handshake, version the one that the request
	// itself names; transports repeat them.
	agreed, version string
}

// stateless reports whether the message is of a revision without a handshake.
func (m *message) stateless() bool { return m.version >= stateless }

// errNotSent says that no byte of a message went out.
var errNotSent = errors.New("not sent")

// Waits at the end of a tool server's life.
const (
	stopGrace  = 2 * time.Second // for EOF on stdin, and again for SIGTERM
	drainGrace = time.Second     // for output still in the pipe when the process is gone
)

// child is a tool server that is a process: one line a message on its stdin and stdout.
// Its stderr is the shim's own, as the client would have it without the shim.
type child struct {
	cmd    *exec.Cmd
	in     *sink
	stdin  *os.File
	stdout *os.File

	exited chan struct{} // closed when the process was reaped; exit is set
	exit   error
	gone   chan struct{}
	cause  error // set before gone is closed

	wg   sync.WaitGroup
	stop sync.Once
}

// childOptions say how a tool server is started.
type childOptions struct {
	command []string
	env     []string // added to this process's environment
	dir     string
	stderr  *os.File
	lock    string // path of the lock that the child inherits; "" = none
	most    int64  // longest message
	spill   string // directory for long messages
}

// startChild starts the tool server. Its lock is waited for first and held by the child
// and its descendants alone: what a killed shim left behind is gone before anything new
// is started.
func startChild(ctx context.Context, o childOptions, deliver func(*frame)) (*child, error) {
	cmd := exec.Command(o.command[0], o.command[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = append(os.Environ(), o.env...), o.dir, childAttr()
	var files [4]*os.File // the child's stdin, ours; ours, its stdout
	for i := 0; i < len(files); i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(files[:]...)
			return nil, fmt.Errorf("pipe: %w", err)
		}
		files[i], files[i+1] = r, w
	}
	cmd.Stdin, cmd.Stdout = files[0], files[3]
	if o.stderr != nil {
		cmd.Stderr = o.stderr
	}
	if o.lock != "" {
		lock, err := waitLock(ctx, o.lock)
		if err != nil {
			closeAll(files[:]...)
			return nil, err
		}
		defer lock.Close()
		cmd.ExtraFiles = []*os.File{lock}
	}
	c := &child{
		cmd: cmd, in: newSink(files[1]), stdin: files[1], stdout: files[2],
		exited: make(chan struct{}), gone: make(chan struct{}),
	}
	started := make(chan error)
	c.wg.Go(func() { c.run(started) })
	err := <-started
	closeAll(files[0], files[3]) // the child's ends
	if err != nil {
		closeAll(files[1], files[2])
		c.wg.Wait()
		return nil, err
	}
	c.wg.Go(func() { c.read(newFrames(c.stdout, o.most), o.spill, deliver) })
	return c, nil
}

// run starts the process and waits for its end on one thread. The kernel sends the
// parent-death signal when the *thread* that forked ends, so the thread lives exactly as
// long as the child: the goroutine keeps it locked and never unlocks.
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
	// A descendant may hold the pipe open for ever. What the child itself wrote is in it.
	_ = c.stdout.SetReadDeadline(time.Now().Add(drainGrace))
}

// read hands the tool server's messages on until its stdout ends.
func (c *child) read(in *frames, spill string, deliver func(*frame)) {
	in.dir = spill
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
	case <-c.exited:
		c.cause = fmt.Errorf("it ended: %w", c.exit)
	case <-time.After(drainGrace):
		// It is of no use any more, and a call would wait for an answer that cannot come.
		c.kill(syscall.SIGKILL)
	}
	close(c.gone)
}

func (c *child) done() <-chan struct{} { return c.gone }
func (c *child) why() error            { return c.cause }

func (c *child) write(m *message) error {
	select {
	case <-c.gone:
		return fmt.Errorf("%w: the tool server is gone: %w", errNotSent, c.cause)
	case <-c.exited:
		return fmt.Errorf("%w: the tool server is gone: %w", errNotSent, c.exit)
	default:
	}
	return c.in.write(m.parts...)
}

// kill signals the child's process group, which it leads.
func (c *child) kill(sig syscall.Signal) {
	select {
	case <-c.exited: // its number may be another's by now
	default:
		_ = syscall.Kill(-c.cmd.Process.Pid, sig)
	}
}

func (c *child) close() {
	c.stop.Do(func() {
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
		closeAll(c.stdout)
	})
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
