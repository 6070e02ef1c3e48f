//go:build unix

package mcpraw

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"
)

// Waits at the end of a process's life.
const (
	StopGrace  = 2 * time.Second // for EOF on stdin, and again for SIGTERM
	DrainGrace = time.Second     // for output still in the pipe when the process is gone, and the reverse
)

// ProcessOptions say how a tool server is started.
type ProcessOptions struct {
	Command []string // the program and its arguments
	Env     []string // its whole environment
	Dir     string   // its working directory; "" = this process's
	// Stderr is the process's own; with PipeStderr it is a pipe, whose end is
	// [Process.Stderr].
	Stderr     *os.File
	PipeStderr bool
	// Lock is a path that the process and its descendants keep locked; "" = none.
	Lock string
}

// Process is a tool server that speaks on its stdin and stdout. The files are this
// process's ends; whoever reads them stops at their end.
type Process struct {
	Stdin, Stdout, Stderr *os.File

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process was reaped; exit is set
	exit   error
	over   sync.WaitGroup
	stop   sync.Once
}

// StartProcess starts a tool server. Its lock is waited for first and held by it and its
// descendants alone: what a killed process left behind is gone before anything new is
// started.
func StartProcess(ctx context.Context, o ProcessOptions) (*Process, error) {
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = o.Env, o.Dir, processAttr()
	var files [6]*os.File // the child's stdin, ours; ours, its stdout; ours, its stderr
	pipes := 4
	if o.PipeStderr {
		pipes = 6
	}
	for i := 0; i < pipes; i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(files[:]...)
			return nil, fmt.Errorf("pipe: %w", err)
		}
		files[i], files[i+1] = r, w
	}
	cmd.Stdin, cmd.Stdout = files[0], files[3]
	switch {
	case o.PipeStderr:
		cmd.Stderr = files[5]
	case o.Stderr != nil:
		cmd.Stderr = o.Stderr
	}
	if o.Lock != "" {
		lock, err := WaitLock(ctx, o.Lock)
		if err != nil {
			closeAll(files[:]...)
			return nil, err
		}
		defer lock.Close()
		cmd.ExtraFiles = []*os.File{lock}
	}
	p := &Process{Stdin: files[1], Stdout: files[2], Stderr: files[4], cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	p.over.Go(func() { p.run(started) })
	err := <-started
	closeAll(files[0], files[3], files[5]) // the child's ends
	if err != nil {
		p.CloseFiles()
		p.over.Wait()
		return nil, err
	}
	return p, nil
}

// run starts the process and waits for its end on one thread. The kernel sends the
// parent-death signal when the *thread* that forked ends, so the thread lives exactly as
// long as the child: the goroutine keeps it locked and never unlocks.
func (p *Process) run(started chan<- error) {
	goruntime.LockOSThread()
	if err := p.cmd.Start(); err != nil {
		goruntime.UnlockOSThread()
		started <- err
		return
	}
	started <- nil
	p.exit = p.cmd.Wait()
	if p.exit == nil {
		p.exit = errors.New("exit status 0")
	}
	close(p.exited)
	// A descendant may hold the pipes open for ever. What the child itself wrote is in
	// them by now.
	until := time.Now().Add(DrainGrace)
	for _, f := range []*os.File{p.Stdout, p.Stderr} {
		if f != nil {
			_ = f.SetReadDeadline(until) // a file that is closed has nobody who reads it
		}
	}
}

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Exit says how the process ended, once it has.
func (p *Process) Exit() error { return p.exit }

// Kill signals the process group, which the process leads.
func (p *Process) Kill(sig syscall.Signal) {
	select {
	case <-p.exited: // its number may be another's by now
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, sig) // it may be gone at this very moment
	}
}

// Stop closes the process's stdin, then makes it end, and returns when it is gone.
func (p *Process) Stop() {
	p.stop.Do(func() {
		_ = p.Stdin.Close() // that is all the message it has
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			select {
			case <-p.exited:
			case <-time.After(StopGrace):
				p.Kill(sig)
			}
		}
		<-p.exited
		p.over.Wait()
	})
}

// CloseFiles closes this process's ends of the pipes. It is called when nobody reads
// them any more.
func (p *Process) CloseFiles() { closeAll(p.Stdin, p.Stdout, p.Stderr) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // a pipe has nothing to flush
		}
	}
}
