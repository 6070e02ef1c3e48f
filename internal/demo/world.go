//go:build unix

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/runtime/client"
)

const (
	think       = 12 * time.Millisecond // the tool server, before it acts
	answerAfter = 12 * time.Millisecond // the tool server, between act and answer
)

// world is one store with its daemon, and the payments tool server with its journal.
type world struct {
	exe     string
	lab     string // with the payments tool server
	dir     string
	data    string
	socket  string
	config  string
	journal string

	daemon *exec.Cmd
	exited chan struct{} // closed when the daemon is gone
	client *client.Client
}

// newWorld makes the files of a world in dir. It starts nothing.
func newWorld(exe, lab, dir string) (*world, error) {
	w := &world{
		exe: exe, lab: lab, dir: dir,
		data: filepath.Join(dir, "data"), socket: filepath.Join(dir, "run", "tgad.sock"),
		config: filepath.Join(dir, "tgad.toml"), journal: filepath.Join(dir, "payments.journal"),
	}
	for _, d := range []string{dir, filepath.Dir(w.socket)} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			return nil, err
		}
	}
	w.client = client.New(w.socket, client.Options{Name: "tgad-demo"})
	return w, os.WriteFile(w.config, []byte(w.configText()), 0o640)
}

// configText is the operator's configuration: the licence of each tool of the payments
// server. A high-risk call needs a person.
func (w *world) configText() string {
	return fmt.Sprintf(`# The payments tool server honours the idempotency key of "charge" and knows
# nothing of the one of "charge_opaque".
[[server]]
id = "payments"
type = "mcp-command"
command = [%s, "payments", "--journal", %s, "--think", %q]

[[tool]]
server = "payments"
name = "charge"
licence = "dedupe_key"
window = "24h"

[[tool]]
server = "payments"
name = "charge_opaque"
licence = "park"

[[rule]]
risk = "HIGH_RISK"
decision = "NEEDS_APPROVAL"
rationale = "a high-risk payment needs a person"

[[rule]]
server = "payments"
decision = "APPROVE"
rationale = "payments are approved by the rule table"

[approval]
self = true # one person plays everybody here

[store]
memtable_bytes = "4MiB"
`, strconv.Quote(w.lab), strconv.Quote(w.journal), think)
}

// launch starts the daemon.
func (w *world) launch() error {
	log, err := os.OpenFile(filepath.Join(w.dir, "daemon.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	defer log.Close()
	w.daemon = exec.Command(w.exe, "serve", "--data", w.data, "--socket", w.socket, "--config", w.config)
	w.daemon.Stdout, w.daemon.Stderr = log, log
	if err := w.daemon.Start(); err != nil {
		return err
	}
	w.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait() // a killed daemon is the point of all this
		close(exited)
	}(w.daemon, w.exited)
	return nil
}

// start starts the daemon and waits until it is ready.
func (w *world) start(ctx context.Context) error {
	err := w.launch()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if err = w.client.Ready(ctx); err == nil {
			return nil
		}
		select {
		case <-w.exited:
			return fmt.Errorf("the daemon did not start; its log is %s", filepath.Join(w.dir, "daemon.log"))
		case <-ctx.Done():
			return fmt.Errorf("the daemon is not ready: %w", err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// kill sends SIGKILL and waits until the daemon is gone.
func (w *world) kill() error { return w.end(syscall.SIGKILL) }

// stop asks the daemon to end and waits until it has.
func (w *world) stop() error { return w.end(syscall.SIGTERM) }

func (w *world) end(sig syscall.Signal) error {
	if w.daemon == nil {
		return nil
	}
	if err := w.daemon.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-w.exited:
	case <-time.After(30 * time.Second):
		return fmt.Errorf("the daemon outlived signal %v", sig)
	}
	w.daemon = nil
	return w.client.Close()
}

// close ends the daemon.
func (w *world) close() error {
	if w == nil {
		return nil
	}
	return w.kill()
}

// command runs a verb of tgad against this world and returns what it printed and its
// exit code.
func (w *world) command(ctx context.Context, args ...string) (output string, code int, err error) {
	cmd := exec.CommandContext(ctx, w.exe, args...)
	cmd.Env = append(os.Environ(), "TGAD_SOCKET="+w.socket, "TGAD_DATA="+w.data, "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode(), nil
	}
	return string(out), 0, err
}

// charges reads from the witness how often a tool and key were charged.
func (w *world) charges(tool, key string) (journal.Count, error) {
	sum, err := w.witness()
	if err != nil {
		return journal.Count{}, err
	}
	return sum.Count(journal.Call{Tool: tool, Key: key}), nil
}

func (w *world) witness() (*journal.Summary, error) {
	sum, err := journal.Read(w.journal)
	if errors.Is(err, os.ErrNotExist) {
		// No call has arrived yet. An empty file gives a summary of nothing.
		return journal.Read(os.DevNull)
	}
	return sum, err
}
