package killtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/schemas/tga"
)

// errDied means that the adapter's process ended before it answered.
var errDied = errors.New("the adapter's process has ended")

// process is one process of an adapter, with its children.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	said   *tail
	lines  chan line
	done   chan struct{} // closed once the process is waited for; then ended is set
	ended  error
	next   uint64
	buried bool
}

// line is one line of the adapter, or why there is none.
type line struct {
	text []byte
	err  error
}

// begin starts a process of the adapter, in a process group of its own.
func begin(command []string, dir string) (*process, error) {
	p := &process{cmd: exec.Command(command[0], command[1:]...), lines: make(chan line, 1), done: make(chan struct{}), said: &tail{}}
	p.cmd.Dir = dir
	p.cmd.Stderr = p.said
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Do not wait for ever for a child that left the group and holds standard error.
	p.cmd.WaitDelay = time.Second
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, tga.Errorf(tga.NotFound, "start the adapter %q: %w", command[0], err)
	}
	go p.read(out)
	return p, nil
}

// read passes the lines on until the process has ended or has broken the protocol. Then it waits for the process.
func (p *process) read(out io.Reader) {
	lines := adapter.NewLines(out)
	for {
		text, err := lines.Next()
		if err == nil {
			p.lines <- line{text: append([]byte(nil), text...)}
			continue
		}
		if err != io.EOF {
			p.lines <- line{err: err}
		}
		break
	}
	close(p.lines)
	p.ended = p.cmd.Wait()
	close(p.done)
}

// kill sends SIGKILL to the whole group. A group that is gone is dead already.
func (p *process) kill() error {
	err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// grace is how long a killed group may take to end. Normally it takes milliseconds; a busy machine is slower.
const grace = 5 * time.Second

// bury kills the group and waits for the process. It drops the remaining output. If a process has left the
// group and holds the output, bury returns an error, because that process may still send calls.
func (p *process) bury() error {
	if p.buried { // its number may be another's by now
		return nil
	}
	p.buried = true
	err := p.kill()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		select {
		case _, open := <-p.lines:
			if !open {
				<-p.done
				return err
			}
		case <-timer.C:
			return errors.Join(err, violation("a child left the adapter's process group, survived SIGKILL and still holds its output"))
		}
	}
}

// finish ends the input of a process that keeps servers, and waits until it has stopped them.
func (p *process) finish(patience time.Duration) error {
	err := p.in.Close()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case l, open := <-p.lines:
			if !open {
				<-p.done
				return errors.Join(err, p.ended)
			}
			err = errors.Join(err, violation("it writes %q after the end of its input, %v", clip.Short(string(l.text), 200), l.err))
		case <-timer.C:
			return errors.Join(err, violation("its servers still run %v after the end of its input", patience), p.bury())
		}
	}
}

// ask sends a request and returns the answer. errDied means that the process has ended without one; the
// error of a process that broke the protocol has the code TOOL_ERROR, and of a silent one TOOL_TIMEOUT.
func (p *process) ask(ctx context.Context, req adapter.Request, patience time.Duration) (a adapter.Answer, err error) {
	p.next++
	req.ID = p.next
	text, err := json.Marshal(req)
	if err != nil {
		return a, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil && !gone(err) {
		return a, err
	} // of a process that is gone, the lines have ended: it may have answered something before
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l, open := <-p.lines:
		if !open {
			return a, errDied
		}
		return p.parse(l, req)
	case <-timer.C:
		return a, tga.Errorf(tga.ToolTimeout, "the adapter has not answered %s within %v%s", req.Op, patience, p.said)
	case <-ctx.Done():
		return a, ctx.Err()
	}
}

// parse reads an answer to req.
func (p *process) parse(l line, req adapter.Request) (a adapter.Answer, err error) {
	if l.err != nil {
		return a, violation("%v", l.err)
	}
	if err := json.Unmarshal(l.text, &a); err != nil {
		return a, violation("it answers %s with %q: %w", req.Op, clip.Short(string(l.text), 200), err)
	}
	if err := a.Check(req); err != nil {
		return a, violation("it answers %s with %q: %w", req.Op, clip.Short(string(l.text), 200), err)
	}
	if a.Error != "" {
		return a, tga.Errorf(tga.ToolError, "the adapter could not handle %s: %s%s", req.Op, clip.Short(clip.Clean(a.Error), 500), p.said)
	}
	return a, nil
}

// violation makes the error of an adapter that breaks the protocol.
func violation(format string, args ...any) error {
	return tga.Errorf(tga.ToolError, "the adapter does not speak the protocol: "+format, args...)
}

// gone reports whether an error means that nobody reads the adapter's input any more.
func gone(err error) bool { return errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) }

// tail keeps the end of what a process writes to standard error.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 2000

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(b), nil
}

// String returns the end of an error's message; "" if nothing was written.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.text) == 0 {
		return ""
	}
	return fmt.Sprintf("; it last wrote: %s", clip.Clean(string(t.text)))
}
