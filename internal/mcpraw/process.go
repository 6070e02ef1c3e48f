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

// Waits at the end of a process.
const (
	StopGrace  = 2 * time.Second // for the process to exit after EOF on stdin, and again after SIGTERM
	DrainGrace = time.Second     // for output in the pipe after the process has exited, or for its exit after the output ended
)

// ProcessOptions say how a tool server is started.
type ProcessOptions struct {
	Command []string // the program and its arguments
	Env     []string // the process's whole environment
	Dir     string   // the process's working directory; "" = this process's
	// Stderr is the file that the process gets as stderr. With PipeStderr the process gets a
	// pipe instead, whose other end is [Process.Stderr].
	Stderr     *os.File
	PipeStderr bool
	// Lock is a path that the process and its descendants keep locked; "" = none.
	Lock string
}

// Process is a tool server that speaks on its stdin and stdout. The files are this process's
// ends of the pipes. Their readers must read until EOF or an error.
type Process struct {
	Stdin, Stdout, Stderr *os.File

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process was reaped and exit is set
	exit   error
	over   sync.WaitGroup
	stop   sync.Once
}

// StartProcess starts a tool server. It first waits for the lock, which then only the tool server
// and its descendants hold. So the tool server that a killed process left behind is gone before a
// new one starts.
func StartProcess(ctx context.Context, o ProcessOptions) (*Process, error) {
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = o.Env, o.Dir, processAttr()
	var files [6]*os.File // child's stdin and our end; our end and child's stdout; our end and child's stderr
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

// run starts the process and waits for its end on one thread. The kernel sends the parent-death
// signal when the *thread* that forked ends, so that thread must live as long as the child. The
// goroutine locks the thread and never unlocks it.
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
	// A descendant may hold the pipes open for ever. The deadline ends the reads; all that the
	// child itself wrote is in the pipes by now.
	until := time.Now().Add(DrainGrace)
	for _, f := range []*os.File{p.Stdout, p.Stderr} {
		if f != nil {
			_ = f.SetReadDeadline(until) // fails only if the file is closed, and then nobody reads it
		}
	}
}

// Exited returns a channel that is closed when the process has exited.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Exit says how the process ended. It is valid once [Process.Exited] is closed.
func (p *Process) Exit() error { return p.exit }

// Kill signals the process group, which the process leads.
func (p *Process) Kill(sig syscall.Signal) {
	select {
	case <-p.exited: // another process may have the pid by now
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, sig) // an error means that the process has just exited
	}
}

// Stop closes the process's stdin, then sends SIGTERM and SIGKILL if needed. It returns when the
// process has exited.
func (p *Process) Stop() {
	p.stop.Do(func() {
		_ = p.Stdin.Close() // EOF asks the process to exit
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

// CloseFiles closes this process's ends of the pipes. It must be called when nobody reads them
// any more.
func (p *Process) CloseFiles() { closeAll(p.Stdin, p.Stdout, p.Stderr) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // a pipe has nothing to flush
		}
	}
}
