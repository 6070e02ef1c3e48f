//go:build linux

package proc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childArg is the hidden first argument with which this program starts itself again as a
// child. The second argument is a task, as JSON.
const childArg = "crashtest-child"

// task says what a child must do. One of the two fields is set.
type task struct {
	Victim *victimTask
	Oracle *oracleTask
}

// Exit codes of a child after an error.
const (
	exitBroken = 3
	exitLocked = 4 // another process has the store
)

var ready atomic.Bool

// RunChild turns the process into a victim or an oracle if it was started as one, and
// then does not return. A program that runs the tiers of this package calls it before
// it looks at its arguments.
func RunChild() {
	ready.Store(true)
	if len(os.Args) != 3 || os.Args[1] != childArg {
		return
	}
	var t task
	err := json.Unmarshal([]byte(os.Args[2]), &t)
	switch {
	case err != nil:
	case t.Victim != nil:
		err = runVictim(*t.Victim)
	case t.Oracle != nil:
		err = runOracle(*t.Oracle)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, childArg+":", err)
		os.Exit(exitCode(err))
	}
	os.Exit(0)
}

// child is a running process of this program.
type child struct {
	pid  int
	mu   sync.Mutex
	gone bool     // it was waited for: its number may be somebody else's
	out  *os.File // its standard output
	in   *os.File // its standard input, for those who end with it
}

// errNotReady says that children cannot be started from this program.
var errNotReady = errors.New("the program does not call proc.RunChild: its children would be more of itself")

// forks is held while a process is forked, and for reading while this one has a store
// or a mounted disk open: until it has become the child, a forked process holds every
// open file of this one too, and with them the lock of a store that was closed here.
var forks sync.RWMutex

// forker runs the forks of children that are not traced. A child belongs to the thread
// that forked it, and a tracer waits for whatever belongs to its own: were it a thread
// that has forked others, it would take their endings away from those who wait for them.
var forker = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		goruntime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func onForker(f func()) {
	done := make(chan struct{})
	forker() <- func() { defer close(done); f() }
	<-done
}

// start starts a child. stderr goes to a file in append mode. sys is for a tracer.
func start(t task, stderr string, sys *syscall.SysProcAttr) (_ *child, err error) {
	if !ready.Load() {
		return nil, errNotReady
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	errFile, err := os.OpenFile(stderr, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	defer errFile.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer outW.Close()
	// A life prints less than this: a victim never waits for somebody to read.
	if _, err := unix.FcntlInt(outR.Fd(), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		return nil, errors.Join(err, outR.Close())
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, outR.Close())
	}
	defer inR.Close()
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{inR.Fd(), outW.Fd(), errFile.Fd()}, Sys: sys}
	var pid int
	fork := func() {
		forks.Lock()
		defer forks.Unlock()
		pid, err = syscall.ForkExec(exe, []string{exe, childArg, string(b)}, attr)
	}
	if sys != nil {
		fork() // a tracer's child is its thread's
	} else {
		onForker(fork)
	}
	if err != nil {
		return nil, errors.Join(err, outR.Close(), inW.Close())
	}
	return &child{pid: pid, out: outR, in: inW}, nil
}

// kill sends SIGKILL. A child that is gone is what was wanted.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		_ = unix.Kill(c.pid, unix.SIGKILL)
	}
}

// ended notes that the child was waited for.
func (c *child) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
}

// close gives the pipes up, after the child was waited for.
func (c *child) close() error { return errors.Join(c.out.Close(), c.in.Close()) }

// wait returns when the child ended, or, with stops, stopped.
func (c *child) wait(stops bool) (ws unix.WaitStatus, err error) {
	// Waiting and reaping are apart: between them the number is still the child's.
	for {
		flags := unix.WEXITED | unix.WNOWAIT
		if stops {
			flags |= unix.WSTOPPED
		}
		err := unix.Waitid(unix.P_PID, c.pid, nil, flags, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return ws, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		flags = 0
		if stops {
			flags = unix.WUNTRACED
		}
		for {
			if _, err = unix.Wait4(c.pid, &ws, flags, nil); !errors.Is(err, unix.EINTR) {
				c.gone = c.gone || ws.Exited() || ws.Signaled()
				return ws, err
			}
		}
	}
}

// patience is how long a life may take before it counts as one that hangs.
const patience = time.Minute

// limit kills the child when its patience ends; the caller stops it.
func (c *child) limit() (stop func() (hung bool)) {
	var hung atomic.Bool
	t := time.AfterFunc(patience, func() { hung.Store(true); c.kill() })
	return func() bool { t.Stop(); return hung.Load() }
}

// said reads what a dead or stopped child has printed since the last call. A line that
// was cut was not said.
func (c *child) said() ([]ack, error) {
	fd := int(c.out.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	var text []byte
	b := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			if err != nil && !errors.Is(err, unix.EAGAIN) {
				return nil, err
			}
			return parseAcks(text)
		}
		text = append(text, b[:n]...)
	}
}

func parseAcks(text []byte) ([]ack, error) {
	var all []ack
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var a ack
		if err := json.Unmarshal(line, &a); err != nil {
			return all, fmt.Errorf("acknowledgement %q: %w", line, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// ending says in words how a child ended.
func ending(ws unix.WaitStatus) string {
	switch {
	case ws.Exited():
		return fmt.Sprintf("exit code %d", ws.ExitStatus())
	case ws.Signaled():
		return ws.Signal().String()
	}
	return fmt.Sprintf("status %#x", int(ws))
}
