package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/runtime/client"
)

// process is a daemon of its own with the payments tool server, in a new directory.
type process struct {
	t       *testing.T
	dir     string
	data    string
	socket  string
	journal string
	client  *client.Client

	wrap   []string // put before the command
	cmd    *exec.Cmd
	exited chan struct{}
}

func newProcess(t *testing.T) *process {
	t.Helper()
	return newProcessIn(t, "")
}

// newProcessIn makes its directories in parent; "" = where temporary files are.
func newProcessIn(t *testing.T, parent string) *process {
	t.Helper()
	// Not t.TempDir: its path holds the test's name and may be too long for a socket.
	dir, err := os.MkdirTemp(parent, "tgad-test-")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{
		t: t, dir: dir, data: filepath.Join(dir, "data"), socket: filepath.Join(dir, "run", "s"),
		journal: filepath.Join(dir, "payments.journal"),
	}
	p.client = client.New(p.socket, client.Options{Name: "test", MaxIdle: 64})
	if err := os.WriteFile(filepath.Join(dir, "tgad.toml"), []byte(testConfig(p.journal)), 0o640); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		p.client.Close()
		if t.Failed() {
			t.Logf("kept %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

// start starts the daemon and waits until it is ready.
func (p *process) start() {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, "daemon.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	args := append(p.wrap, "tgad", "serve", "--data", p.data, "--socket", p.socket, "--config", filepath.Join(p.dir, "tgad.toml"))
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait() // it is killed
		close(exited)
	}(p.cmd, p.exited)
	err = waitFor(func() error {
		select {
		case <-p.exited:
			return nil
		default:
			return p.client.Ready(context.Background())
		}
	})
	if err == nil {
		err = p.client.Ready(context.Background())
	}
	if err != nil {
		text, readErr := os.ReadFile(log.Name())
		p.t.Fatalf("the daemon does not get ready: %v\n%s", errors.Join(err, readErr), text)
	}
}

// end sends a signal and waits until the daemon is gone.
func (p *process) end(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %v: %v", sig, err)
	}
	<-p.exited
	p.cmd = nil
}

// witness reads the tool server's journal.
func (p *process) witness() *journal.Summary {
	p.t.Helper()
	sum, err := journal.Read(p.journal)
	if err != nil {
		p.t.Fatal(err)
	}
	return sum
}

// run runs a verb against this daemon and returns its exit code.
func (p *process) run(args ...string) (output string, code int) {
	p.t.Helper()
	cmd := exec.Command("tgad", args...)
	cmd.Env = append(os.Environ(), "TGAD_SOCKET="+p.socket, "TGAD_DATA="+p.data)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
