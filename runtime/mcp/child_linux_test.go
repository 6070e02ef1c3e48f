package mcp

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
)

// The server does not read. A line that is partly written is doubt, and no later line may follow
// it. The calls that wait behind it are not sent.
func TestWriteToADeafServer(t *testing.T) {
	s := newScripted(t, "script", nil)
	s.must("deaf", "{}")
	link := s.current.link.(*child)

	ctx, cancel := context.WithCancel(t.Context())
	long := make(chan error)
	go func() {
		args := `{"x":"` + strings.Repeat("y", 1<<20) + `"}`
		_, err := s.Dispatch(ctx, testCall("echo", args))
		long <- err
	}()
	poll(t, func() bool { return len(link.writing) == 1 })
	short, cancelShort := context.WithCancel(t.Context())
	next := make(chan error)
	go func() {
		_, err := s.Dispatch(short, testCall("echo", "{}"))
		next <- err
	}()
	cancelShort()
	if err := <-next; !errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("call behind the long one: %v", err)
	}
	poll(t, func() bool { return inPipe(t, link.p.Stdin) > 0 })
	cancel()
	if err := <-long; err == nil || errors.Is(err, runtime.ErrNotSent) {
		t.Errorf("begun call: %v, want doubt", err)
	}
	s.must("echo", "{}")
	if n := len(s.seen("start")); n != 2 {
		t.Errorf("%d children, want a new one", n)
	}
}

// inPipe returns how many bytes were written to f and not read.
func inPipe(t *testing.T, f *os.File) (n int) {
	t.Helper()
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ioctl error
	err = c.Control(func(fd uintptr) { n, ioctl = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	if err = errors.Join(err, ioctl); err != nil {
		t.Fatal(err)
	}
	return n
}

// The child ignores EOF, so only the signal ends it. When it has ended, the kernel frees its lock,
// which the test sees.
func TestChildDiesWithItsParent(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(exe)
	parent.Env = append(os.Environ(), envMode+"=parent", "TGAD_TEST_LOCK="+lock)
	out, err := parent.StdoutPipe()
	if err == nil {
		err = parent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil || string(line[:n]) != "<nil>\n" {
		t.Fatalf("parent: %q, %v", line[:n], err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if f, err := mcpraw.WaitLock(ctx, lock); err == nil {
		f.Close()
		t.Fatal("the child does not hold its lock")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	f, err := mcpraw.WaitLock(ctx, lock)
	if err != nil {
		t.Fatalf("the child lives on: %v", err)
	}
	f.Close()
}

// The parent-death signal belongs to the thread that forked. In this test threads end while
// children start and afterwards. No child may end with them.
func TestChildrenOutliveThreads(t *testing.T) {
	stop := make(chan struct{})
	var churn, starts sync.WaitGroup
	for range 4 {
		churn.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ended := make(chan struct{})
				go func() {
					goruntime.LockOSThread() // never unlocked: the thread ends with the goroutine
					close(ended)
				}()
				<-ended
			}
		})
	}
	servers := make([]*scripted, 8)
	for i := range servers {
		servers[i] = newScripted(t, "script", nil)
		starts.Go(func() {
			if _, err := servers[i].Dispatch(t.Context(), testCall("echo", "{}")); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	close(stop)
	churn.Wait()
	for _, s := range servers {
		s.must("echo", "{}")
		if n := len(s.seen("start")); n != 1 {
			t.Errorf("%d children, want the first to live", n)
		}
	}
}
