package serving_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/engine/postgres/internal/serving"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// programEnv makes this test's program tgad-postgres.
const programEnv = "TGAD_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		os.Exit(serving.Database.Run("tgad-postgres"))
	}
	os.Exit(common.Main(m))
}

// common is a server for the tests that do no harm to it. Each takes a shard of its own.
var common = pgserver.Common{Prepare: func(s *pgserver.Server) error {
	return postgres.Migrate(context.Background(), pgserver.DSN(s))
}}

var shards atomic.Int32

// tool is the outside world: it counts what reaches it.
type tool struct {
	*httptest.Server
	mu    sync.Mutex
	byKey map[string]int
	hold  func(key string) // what an answer waits for
	no    bool             // it refuses
}

func newTool(t *testing.T) *tool {
	w := &tool{byKey: map[string]int{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		_, _ = io.Copy(io.Discard, r.Body)
		w.mu.Lock()
		w.byKey[key]++
		hold, no := w.hold, w.no
		w.mu.Unlock()
		if hold != nil {
			hold(key)
		}
		if no {
			rw.WriteHeader(http.StatusUnprocessableEntity)
		}
		fmt.Fprintf(rw, `{"paid":%q}`, key)
	}))
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

func (w *tool) sends(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byKey[key]
}

func (w *tool) refusing(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.no = is
}

func (w *tool) holding(f func(key string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = f
}

// fleet is a store, the outside world, and the daemons between them.
type fleet struct {
	t       *testing.T
	url     string
	shard   int32
	dir     string
	config  string
	tool    *tool
	outside string // place of checkpoints, where there is one
}

// lease is long enough for a busy machine: a daemon that gets no processor for as long is taken for
// one that is gone.
const lease = 3 * time.Second

// newFleet prepares daemons of a store; extra is added to their configuration.
func newFleet(t *testing.T, storeURL, extra string) *fleet {
	t.Helper()
	f := &fleet{t: t, url: storeURL, tool: newTool(t)}
	if f.url == "" {
		s, err := common.Server()
		if err != nil {
			t.Fatal(err)
		}
		f.url, f.shard = pgserver.DSN(s), shards.Add(1)
	}
	var err error
	if f.dir, err = os.MkdirTemp("", "tgad"); err != nil { // its path leaves room for a socket's name
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(f.dir) })
	f.config = filepath.Join(f.dir, "tgad.toml")
	if !strings.Contains(extra, "[[rule]]") {
		extra = "allow_all = true\n" + extra
	}
	text := extra + fmt.Sprintf(`
[approval]
self = true

[store]
shard = %d
lease = %q
patience = "20s"

[[server]]
id = "pay"
type = "http"
url = %q
concurrency = 64

[[server]]
id = "remote"
type = "external"

[[tool]]
server = "remote"
name = "pay"
permit_time = "100ms" # it is in doubt soon

[[tool]]
server = "remote"
name = "run"
permit_time = "1h" # a copy may take its time

[[tool]]
server = "pay"
name = "opaque"

[[tool]]
server = "pay"
name = "charge"
licence = "dedupe_key"
window = "24h"
`, f.shard, lease, f.tool.URL)
	if err := os.WriteFile(f.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// daemon is one tgad-postgres serve.
type daemon struct {
	*client.Client
	f      *fleet
	socket string
	cmd    *exec.Cmd
	ended  chan struct{}
	log    bytes.Buffer // read only once it has ended
}

// program is tgad-postgres with arguments.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts a daemon, and waits until it is ready.
func (f *fleet) start(name string) *daemon {
	f.t.Helper()
	d := &daemon{f: f, socket: filepath.Join(f.dir, name, "s"), ended: make(chan struct{})}
	d.cmd = program("serve", "--store", f.url, "--config", f.config, "--socket", d.socket)
	d.run()
	return d
}

// begin starts the program.
func (d *daemon) begin() {
	t := d.f.t
	t.Helper()
	d.cmd.Stderr = &d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is in its state
		close(d.ended)
	}()
	d.Client = client.New(d.socket, client.Options{Name: "test", MaxIdle: 32})
	t.Cleanup(func() {
		d.Close()
		d.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("daemon %s:\n%s", d.socket, d.log.String())
		}
	})
}

func (d *daemon) run() {
	t := d.f.t
	t.Helper()
	d.begin()
	until(t, "the daemon is ready", func() bool {
		select {
		case <-d.ended:
			t.Fatalf("the daemon ended: %v\n%s", d.cmd.ProcessState, d.log.String())
		default:
		}
		return d.Ready(t.Context()) == nil
	})
}

func (d *daemon) signal(sig syscall.Signal) {
	d.f.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.f.t.Error(err)
	}
}

// end ends the daemon and returns its exit code.
func (d *daemon) end(sig syscall.Signal) int {
	d.f.t.Helper()
	d.signal(sig)
	return d.wait()
}

// wait waits for the daemon's end and returns its exit code.
func (d *daemon) wait() int {
	d.f.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		d.f.t.Error("the daemon does not end")
		d.signal(syscall.SIGKILL)
		<-d.ended
	}
	return d.cmd.ProcessState.ExitCode()
}

func call(tool, key string) runtime.Request {
	return runtime.Request{Server: "pay", Tool: tool, Key: key, Args: []byte(`{"amount":5}`)}
}

// until waits for something to become so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func wantCode(t *testing.T, err error, code tga.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("error %v, want %s", err, code)
	}
}
