package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tgad/tgad/runtime/client"
)

// lease is how long a silent daemon keeps the calls that it has begun.
const lease = 3 * time.Second

const config = `
allow_all = true

[store]
lease = %q

[[server]]
id = "bank"
type = "http"
url = %q
concurrency = 64
breaker = { failures = 1000 }
`

// fleet is the daemons of one store.
type fleet struct {
	program  string
	args     []string
	replicas [2]*replica
}

// replica is one daemon. Its client stays the same when it is started again.
type replica struct {
	*client.Client
	socket string
	cmd    *exec.Cmd
	ended  chan struct{}
}

// newFleet builds the program and writes what configures it.
func newFleet(ctx context.Context, dir, store, bank string) (*fleet, error) {
	f := &fleet{program: filepath.Join(dir, "tgad-postgres")}
	build := exec.CommandContext(ctx, "go", "build", "-o", f.program, "github.com/tgad/tgad/engine/postgres/cmd/tgad-postgres")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	file := filepath.Join(dir, "tgad.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, lease, bank), 0o600); err != nil {
		return nil, err
	}
	f.args = []string{"serve", "--store", store, "--config", file, "--socket"}
	for i := range f.replicas {
		socket := filepath.Join(dir, fmt.Sprint("s", i), "s")
		f.replicas[i] = &replica{socket: socket, Client: client.New(socket, client.Options{Name: "fleet", MaxIdle: 32})}
	}
	return f, nil
}

// start starts a daemon, and waits until it is ready.
func (f *fleet) start(ctx context.Context, i int) error {
	r := f.replicas[i]
	r.cmd, r.ended = exec.Command(f.program, append(f.args, r.socket)...), make(chan struct{})
	log, err := os.Create(filepath.Dir(r.socket) + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	r.cmd.Stderr = log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	go func() {
		_ = r.cmd.Wait() // it is killed
		close(r.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for r.Ready(ctx) != nil {
		select {
		case <-r.ended:
			said, _ := os.ReadFile(log.Name())
			return fmt.Errorf("a daemon ended before it was ready: %s: %s", r.cmd.ProcessState, said)
		case <-ctx.Done():
			return fmt.Errorf("a daemon is not ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (r *replica) signal(s syscall.Signal) { _ = r.cmd.Process.Signal(s) }

func (r *replica) end(s syscall.Signal) {
	r.signal(s)
	<-r.ended
}

// kill ends every daemon that runs.
func (f *fleet) kill() {
	for _, r := range f.replicas {
		if r.cmd != nil {
			r.end(syscall.SIGKILL)
		}
	}
}
