package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tgad/tgad/internal/serial"
)

// screen is a terminal of its own, and everything that was written to it.
type screen struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	mu     sync.Mutex
	text   strings.Builder
}

func newScreen(t *testing.T, width, height uint16) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		serial.Missing(t, "a terminal", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, master: master, slave: slave}
	s.resize(width, height)
	var reading sync.WaitGroup
	reading.Go(func() {
		for buf := make([]byte, 4096); ; {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		slave.Close()
		master.Close()
		reading.Wait()
	})
	return s
}

func (s *screen) resize(width, height uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(int(s.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		s.t.Fatal(err)
	}
}

// frames returns the frames that were drawn so far.
func (s *screen) frames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Split(s.text.String(), "\x1b[H")
}

// wait waits for a frame that ok accepts.
func (s *screen) wait(what string, right func(frame string) bool) {
	s.t.Helper()
	if err := waitFor(func() error {
		all := s.frames()
		if last := all[len(all)-1]; strings.HasSuffix(last, "\x1b[J") && right(last) {
			return nil
		}
		return os.ErrNotExist
	}); err != nil {
		all := s.frames()
		s.t.Fatalf("no frame with %s; the last of %d: %q", what, len(all), all[len(all)-1])
	}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// size returns the width and height of a frame.
func size(frame string) (width, height int) {
	lines := strings.Split(escapes.ReplaceAllString(frame, ""), "\r\n")
	for _, line := range lines {
		width = max(width, len([]rune(line)))
	}
	return width, len(lines)
}

// TestTopDrawsOnATerminal: frame after frame shows what the daemon does, in the terminal's current size. A
// daemon that is killed and started again is found again. q and Ctrl-C end it and restore the terminal.
func TestTopDrawsOnATerminal(t *testing.T) {
	p := newProcess(t)
	p.start()
	for _, end := range []string{"q", "\x03", "TERM"} {
		s := newScreen(t, 100, 30)
		before, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("tgad", "top", "--every", "50ms")
		cmd.Env = append(os.Environ(), "TGAD_SOCKET="+p.socket)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s.slave, s.slave, s.slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.wait("a daemon that is ready", func(f string) bool { return strings.Contains(f, "  ready  ") })
		if out, code := p.run("call", "payments", "charge", `{"account":"a","amount":1}`, "--key", "k"+end); code != 0 {
			t.Fatal(out)
		}
		s.wait("a call", func(f string) bool { return regexp.MustCompile(`calls sent +[0-9.]+ +[1-9]`).MatchString(f) })
		for _, c := range [][2]uint16{{40, 8}, {120, 50}, {7, 2}} {
			s.resize(c[0], c[1])
			s.wait(fmt.Sprintf("%d columns and %d lines", c[0], c[1]), func(f string) bool {
				w, h := size(f)
				return w <= int(c[0]) && h <= int(c[1]) && (c[0] < 100 || h > 15)
			})
		}
		s.resize(100, 30)
		p.end(syscall.SIGKILL)
		s.wait("the loss", func(f string) bool { return strings.Contains(f, "does not answer") })
		p.start()
		s.wait("the daemon again", func(f string) bool { return strings.Contains(f, "  ready  ") })
		if end == "TERM" {
			err = cmd.Process.Signal(syscall.SIGTERM)
		} else {
			_, err = s.master.WriteString(end)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %q: %v", end, err)
		}
		after, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
		if err != nil || *after != *before {
			t.Errorf("after %q the terminal is %+v, %v, and was %+v", end, after, err, before)
		}
		if err := waitFor(func() error {
			all := s.frames()
			if strings.HasSuffix(all[len(all)-1], leaveScreen) {
				return nil
			}
			return os.ErrNotExist
		}); err != nil {
			t.Errorf("after %q the terminal was left with %q", end, s.frames())
		}
	}
}

// TestTopEndsBesideADaemonThatHangs: in raw mode Ctrl-C is a key like q, and no signal. Both end top although it waits for an
// answer.
func TestTopEndsBesideADaemonThatHangs(t *testing.T) {
	p := newProcess(t)
	p.start()
	for _, key := range []string{"q", "\x03"} {
		s := newScreen(t, 100, 30)
		cmd := exec.Command("tgad", "top", "--every", "20ms")
		cmd.Env = append(os.Environ(), "TGAD_SOCKET="+p.socket)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s.slave, s.slave, s.slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.wait("a daemon that is ready", func(f string) bool { return strings.Contains(f, "  ready  ") })
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for n := -1; n != len(s.frames()); time.Sleep(500 * time.Millisecond) { // until it waits for an answer
			n = len(s.frames())
		}
		if _, err := s.master.WriteString(key); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %q: %v", key, err)
		}
		late.Stop()
		if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTopOncePrintsPlainText: without a terminal it prints one frame; without --once that is a usage error.
func TestTopOncePrintsPlainText(t *testing.T) {
	p := newProcess(t)
	p.start()
	out, code := p.run("top", "--once", "--every", "20ms")
	if code != 0 || strings.ContainsAny(out, "\x1b\r") || !strings.Contains(out, "calls sent") || strings.Count(out, "tgad "+p.socket) != 1 {
		t.Errorf("exit %d\n%q", code, out)
	}
	for _, args := range [][]string{{"top"}, {"top", "--once", "--json"}, {"top", "--once", "--every", "9ms"}, {"top", "x"}} {
		if out, code := p.run(args...); code != 2 {
			t.Errorf("%v: exit %d\n%s", args, code, out)
		}
	}
	p.end(syscall.SIGKILL)
	if out, code := p.run("top", "--once"); code != 1 || !strings.Contains(out, "no daemon listens") {
		t.Errorf("without a daemon: exit %d\n%s", code, out)
	}
}

// TestTopInTmux: a terminal that people use, which is then made smaller.
func TestTopInTmux(t *testing.T) {
	tmux := serial.Program(t, "tmux")
	p := newProcess(t)
	p.start()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(tmux, append([]string{"-S", p.dir + "/tmux", "-f", "/dev/null"}, args...)...)
		cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "TGAD_SOCKET="+p.socket)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("new-session", "-d", "-x", "100", "-y", "30", "-s", "top", "tgad top --every 100ms; sleep 60")
	defer func() { run("kill-server") }()
	shows := func(what string, right func(string) bool) {
		t.Helper()
		var last string
		for end := time.Now().Add(20 * time.Second); !right(last); time.Sleep(50 * time.Millisecond) {
			if last = run("capture-pane", "-p", "-t", "top"); time.Now().After(end) {
				t.Fatalf("%s is not shown:\n%s", what, last)
			}
		}
	}
	shows("a frame", func(s string) bool { return strings.Contains(s, "  ready  ") && strings.Contains(s, "disk free") })
	run("resize-window", "-t", "top", "-x", "50", "-y", "10")
	shows("a small frame", func(s string) bool { return strings.Contains(s, "calls sent") && !strings.Contains(s, "disk free") })
	run("send-keys", "-t", "top", "q")
	shows("the screen as it was", func(s string) bool { return !strings.Contains(s, "calls sent") })
}
