package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/capability"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

func TestMain(m *testing.M) {
	if code, ok := childMain(); ok {
		os.Exit(code)
	}
	if err := makeSigner(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(peerDir); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := os.RemoveAll(filepath.Dir(signer.keys)); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(stuck...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// signer is the remote supervisor that every daemon of these tests is configured with: the
// tests' own uid, which signs the approvals that it appends.
var signer struct {
	*capability.Ring
	keys string // its public keys, for the daemon
}

func makeSigner() error {
	dir, err := os.MkdirTemp("", "tgad-signer")
	if err != nil {
		return err
	}
	if signer.Ring, err = capability.Open(filepath.Join(dir, "private"), "tests", "tgad", capability.Options{}); err != nil {
		return err
	}
	set, err := signer.JWKS()
	if err != nil {
		return err
	}
	signer.keys = filepath.Join(dir, "public.jwks")
	return os.WriteFile(signer.keys, set, 0o644)
}

// stuck are the goroutines of stores that failed in a test: the engine cuts those off from
// the disk, and they stay until the process ends.
var stuck []goleak.Option

// tool is the outside world: an HTTP tool server that counts what reached it.
type tool struct {
	*httptest.Server
	mu     sync.Mutex
	byKey  map[string]int
	answer func(w http.ResponseWriter, r *http.Request, body []byte)
}

func newTool(t *testing.T) *tool {
	w := &tool{byKey: map[string]int{}}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("tool: %v", err)
		}
		w.mu.Lock()
		w.byKey[r.Header.Get("Idempotency-Key")]++
		answer := w.answer
		w.mu.Unlock()
		if answer != nil {
			answer(rw, r, body)
			return
		}
		fmt.Fprint(rw, `{"paid":9007199254740993,"text":"a<b>&"}`)
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *tool) sends(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byKey[key]
}

func (w *tool) respond(f func(w http.ResponseWriter, r *http.Request, body []byte)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// bench is a running daemon with a tool server and a client.
type bench struct {
	t      *testing.T
	dir    string
	socket string
	data   string
	tool   *tool
	config string
	mu     sync.Mutex     // of config, while a daemon may read it again
	tune   func(*Options) // nil changes nothing
	client *client.Client
	clock  func() time.Time
	near   Near
	open   func(context.Context, Options) (Store, error) // where the store is in no directory

	cancel context.CancelFunc
	done   chan error
}

// shortDir is a temporary directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

const smallStore = `
[store]
low_water_bytes = 1
memtable_bytes = "1MiB"
cache_bytes = "1MiB"
`

// setup prepares a daemon without starting it. extra is added to its configuration.
func setup(t *testing.T, extra string) *bench {
	t.Helper()
	b := &bench{t: t, dir: shortDir(t), tool: newTool(t)}
	b.socket, b.data = filepath.Join(b.dir, "run", "tgad.sock"), filepath.Join(b.dir, "data")
	if !strings.Contains(extra, "[[rule]]") {
		extra = "allow_all = true\n" + extra
	}
	if !strings.Contains(extra, "[approval]") {
		extra += "[approval]\nself = true\n" // most tests are one user alone
	}
	if !strings.Contains(extra, "[[supervisor]]") {
		extra += fmt.Sprintf("[[supervisor]]\nuid = [%d]\nissuer = \"tests\"\nkeys_file = %q\n", os.Geteuid(), signer.keys)
	}
	b.config = extra + smallStore + fmt.Sprintf(`
[[server]]
id = "pay"
type = "http"
url = %q
concurrency = 64

[[server]]
id = "remote"
type = "external"

[[tool]]
server = "pay"
name = "charge_opaque"

[[tool]]
server = "pay"
name = "charge"
licence = "dedupe_key"
window = "24h"

[[tool]]
server = "pay"
name = "balance"
class = "read"
licence = "read_only"
`, b.tool.URL)
	return b
}

func start(t *testing.T, extra string) *bench {
	b := setup(t, extra)
	b.start()
	return b
}

func (b *bench) options() Options {
	b.t.Helper()
	cfg, err := assemble.Parse("test.toml", []byte(b.config))
	if err != nil {
		b.t.Fatalf("configuration:\n%v", err)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(testWriter{b.t}, nil))
	}
	o := Options{Data: b.data, Socket: b.socket, Config: cfg, Logger: log, Version: "test", Clock: b.clock, Near: &b.near}
	o.Reload = func() (*config.Config, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return assemble.Parse("test.toml", []byte(b.config))
	}
	o.Tune = func(e *engine.Options) { e.FirstSegmentBytes = 64 << 10 } // each open reads what is prepared of the log
	if b.tune != nil {
		b.tune(&o)
	}
	if b.open != nil {
		o.Open, o.Data, o.URL = b.open, "", "postgres://host/db"
	}
	return o
}

// start runs the daemon and waits until it takes calls.
func (b *bench) start() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel, b.done = cancel, make(chan error, 1)
	ready := make(chan struct{})
	o := b.options()
	o.Ready = func() { close(ready) }
	go func() { b.done <- Run(ctx, o) }()
	b.client = client.New(b.socket, client.Options{Name: "test", MaxIdle: 64})
	b.t.Cleanup(func() { closes(b.t, b.client) })
	select {
	case <-ready:
	case err := <-b.done:
		cancel()
		b.done = nil
		b.t.Fatalf("daemon: %v", err)
	}
	b.t.Cleanup(func() { b.stop() })
}

// stop drains the daemon; a second stop does nothing.
func (b *bench) stop() {
	b.t.Helper()
	if b.done == nil {
		return
	}
	b.client.Close()
	b.cancel()
	if err := <-b.done; err != nil {
		b.t.Errorf("daemon: %v", err)
	}
	b.done = nil
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// raw makes one request with bytes of the test's choice, on a connection of its own.
func (b *bench) raw(method, path, body string, header ...string) (int, http.Header, []byte) {
	b.t.Helper()
	hc := &http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", b.socket) },
		DisableKeepAlives: true,
	}}
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://tgad"+path, r)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Tgad-Client", "raw")
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := hc.Do(req)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, resp.Header, raw
}

// content is everything that the store's log says, as a reader of it sees it.
func (b *bench) content() []byte {
	b.t.Helper()
	var all bytes.Buffer
	for line, err := range b.client.Log(b.t.Context(), "", false) {
		if err != nil {
			b.t.Fatal(err)
		}
		all.Write(wire.Append(nil, line))
		all.WriteByte('\n')
	}
	for o, err := range b.client.Traces(b.t.Context(), wire.TracesQuery{}) {
		if err != nil {
			b.t.Fatal(err)
		}
		all.Write(wire.Append(nil, o))
		all.WriteByte('\n')
	}
	return all.Bytes()
}

func charge(key string) runtime.Request {
	return runtime.Request{Server: "pay", Tool: "charge", Key: key, Args: []byte(`{"amount":5}`)}
}

func wantCode(t *testing.T, err error, code tga.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("error %v, want %s", err, code)
	}
}

// closes fails the test where a client's connections would not close.
func closes(t testing.TB, c *client.Client) {
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
