//go:build unix

package clients

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/payments/server"
	"github.com/tgad/tgad/runtime/client"
)

// TestMain makes a copy of the test's program "tgad" in PATH, so that a daemon is a process that can
// be killed.
func TestMain(m *testing.M) {
	testscript.Main(tidy{m}, map[string]func(){"tgad": func() { os.Exit(cli.Database{}.Run("tgad")) }, "tgad-lab": payments, "tgad-claims": claims})
}

// tidy removes what the tests share.
type tidy struct{ *testing.M }

func (m tidy) Run() int {
	code := m.M.Run()
	if err := os.RemoveAll(node.dir); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// payments is the tool server of tgad-lab: tgad-lab payments --journal FILE.
func payments() {
	os.Exit(server.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
}

// patience is how long a test waits for something that must come.
const patience = 20 * time.Second

// world is a daemon in a process of its own and a tool server that outlives it.
type world struct {
	t      *testing.T
	dir    string
	socket string
	client *client.Client
	tools  *tools
	cmd    *exec.Cmd
}

const configuration = `
[limits]
request_bytes = "256KiB"

[[server]]
id = "shop"
type = "http"
url = %q

[[tool]]
server = "shop"
name = "charge"
licence = "dedupe_key"
window = "1h"

[[server]]
id = "own"
type = "external"

[[tool]]
server = "own"
name = "brief"
permit_time = "3s"

[[tool]]
server = "own"
name = "claimed"
permit_time = "3s"
client_licence = true
window = "1h"

[[tool]]
server = "own"
name = "repeatable"
permit_time = "3s"
licence = "dedupe_args"

[evidence]
key_file = %q
every = "20ms"

[approval]
self = true

[[rule]]
tool = "forbidden"
decision = "DENY"
rationale = "nobody may call this tool"

[[rule]]
risk = "HIGH_RISK"
decision = "NEEDS_APPROVAL"
rationale = "a high risk takes a person"

[[rule]]
decision = "APPROVE"
rationale = "the rules of the test"
`

func newWorld(t *testing.T) *world {
	t.Helper()
	// Not t.TempDir: its path may be too long for a socket.
	dir, err := os.MkdirTemp("", "tgad-clients-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, socket: filepath.Join(dir, "s"), tools: newTools(t)}
	w.client = client.New(w.socket, client.Options{Name: "test"})
	secret, _, err := checkpoint.NewKey("clients.example")
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "evidence.key")
	if err := checkpoint.CreateKeyFile(key, secret); err != nil {
		t.Fatal(err)
	}
	w.file("tgad.toml", fmt.Sprintf(configuration, w.tools.URL, key))
	t.Cleanup(func() {
		w.kill()
		w.client.Close()
		if t.Failed() {
			t.Logf("kept %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	w.start()
	return w
}

// file writes a file of the world and returns its path.
func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// start starts the daemon and waits until it accepts calls.
func (w *world) start() {
	w.t.Helper()
	log, err := os.OpenFile(filepath.Join(w.dir, "daemon.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	w.cmd = exec.Command("tgad", "serve", "--data", filepath.Join(w.dir, "data"), "--socket", w.socket, "--config", filepath.Join(w.dir, "tgad.toml"))
	w.cmd.Stdout, w.cmd.Stderr = log, log
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	if err := until(func() error { return w.client.Ready(context.Background()) }); err != nil {
		text, readErr := os.ReadFile(log.Name())
		w.t.Fatalf("the daemon does not get ready: %v\n%s", errors.Join(err, readErr), text)
	}
}

// kill ends the daemon as a power cut would.
func (w *world) kill() {
	if w.cmd == nil {
		return
	}
	if err := w.cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.t.Error(err)
	}
	_ = w.cmd.Wait() // it was killed
	w.cmd = nil
}

// until repeats f until it returns no error.
func until(f func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if err := f(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// tools is the tool server. It counts the calls that reach it and is the witness of the tests.
type tools struct {
	*httptest.Server
	mu       sync.Mutex
	received map[string]int // by key
	charged  map[string]int // keys that were acted on
	held     chan struct{}  // closed when answers may go out
}

func newTools(t *testing.T) *tools {
	s := &tools{received: map[string]int{}, charged: map[string]int{}}
	s.release()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the daemon was killed while it wrote
		}
		key := r.Header.Get("Idempotency-Key")
		s.mu.Lock()
		s.received[key]++
		s.charged[key] = 1
		held := s.held
		s.mu.Unlock()
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
		if _, err := w.Write(answerOf(body)); err != nil && r.Context().Err() == nil {
			t.Errorf("tool: %v", err)
		}
	}))
	t.Cleanup(func() {
		s.release()
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// answerOf returns the answer of a tool: the bytes that its arguments name, else the arguments.
func answerOf(args []byte) []byte {
	var m struct{ Answer string }
	if json.Unmarshal(args, &m) == nil && m.Answer != "" {
		if b, err := base64.StdEncoding.DecodeString(m.Answer); err == nil {
			return b
		}
	}
	return args
}

// hold keeps the answers back until release.
func (s *tools) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = make(chan struct{})
}

func (s *tools) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(chan struct{})
	}
	select {
	case <-s.held:
	default:
		close(s.held)
	}
}

// counts returns how often a key was received, and the number of keys that were acted on.
func (s *tools) counts(key string) (received, keys int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received[key], len(s.charged)
}
