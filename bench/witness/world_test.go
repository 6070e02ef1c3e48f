package witness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bin is the directory with the programs, of tgad and of others.
var bin string

func TestMain(m *testing.M) {
	code, err := withPrograms(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withPrograms(tests func() int) (_ int, err error) {
	if bin, err = os.MkdirTemp("", "tgad-witness-"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	for dir, packages := range map[string][]string{
		".":     {"filippo.io/torchwood/cmd/litewitness"},
		"../..": {"./cmd/tgad", "./cmd/tgad-lab"},
	} {
		cmd := exec.Command("go", append([]string{"build", "-tags", "slim", "-o", bin}, packages...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("%v: %w\n%s", packages, err, out)
		}
	}
	if err := os.Setenv("PATH", bin+":"+os.Getenv("PATH")); err != nil {
		return 1, err
	}
	return tests(), nil
}

// world is a directory in which programs run.
type world struct {
	*testing.T
	dir string
}

func newWorld(t *testing.T) *world { return &world{t, t.TempDir()} }

// run runs a program to its end.
func (w *world) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = w.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) do(name string, args ...string) string {
	w.Helper()
	out, err := w.run(name, args...)
	if err != nil {
		w.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(out)
}

// said is what a running program has written.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// process is a program that serves.
type process struct {
	*exec.Cmd
	said *said
}

func (w *world) start(name string, args ...string) *process {
	w.Helper()
	p := &process{exec.Command(name, args...), new(said)}
	p.Dir, p.Stdout, p.Stderr = w.dir, p.said, p.said
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if p.ProcessState == nil {
			w.end(p, syscall.SIGKILL)
		}
		if w.Failed() {
			w.Logf("%s said:\n%s", name, p.said)
		}
	})
	return p
}

// end stops a process, or kills it.
func (w *world) end(p *process, by syscall.Signal) {
	w.Helper()
	if err := p.Process.Signal(by); err != nil {
		w.Errorf("%v: %v", by, err)
	}
	if err := p.Wait(); err != nil && by != syscall.SIGKILL && p.ProcessState.ExitCode() > 0 {
		w.Errorf("%s ended with %v", p.Path, err)
	}
}

// wait asks until the answer is yes.
func (w *world) wait(what string, yes func() bool) {
	w.Helper()
	for range 600 {
		if yes() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.Fatalf("not within 30 s: %s", what)
}

// free returns an address at which nobody listens.
func (w *world) free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (w *world) listens(address string) {
	w.Helper()
	w.wait("somebody listens on "+address, func() bool {
		conn, err := net.Dial("tcp", address)
		return err == nil && conn.Close() == nil
	})
}

// store is a daemon whose checkpoints go to a witness.
type store struct {
	*world
	key    string // for checking its checkpoints
	daemon *process
}

const configuration = `allow_all = true
[store]
low_water_bytes = 1
[evidence]
key_file = "key"
every = "50ms"
witnesses = 1
[[evidence.place]]
witness = "http://%s"
key = %q
[[server]]
id = "payments"
type = "mcp-command"
command = ["tgad-lab", "payments", "--journal", "payments.journal"]
[[tool]]
server = "payments"
name = "charge"
licence = "dedupe_key"
window = "24h"
`

func (w *world) store() *store {
	return &store{world: w, key: w.do("tgad", "evidence", "keygen", "shop.example/tgad", "-o", "key")}
}

// signedBy writes the configuration: who signs the checkpoints, and where.
func (s *store) signedBy(witness, address string) {
	if err := os.WriteFile(filepath.Join(s.dir, "tgad.toml"), fmt.Appendf(nil, configuration, address, witness), 0o600); err != nil {
		s.Fatal(err)
	}
}

func (s *store) tgad(verb string, args ...string) (string, error) {
	return s.run("tgad", append([]string{verb, "--socket", "s"}, args...)...)
}

// serve starts the daemon, and returns once it reports ready or frozen.
func (s *store) serve(as string) {
	s.Helper()
	s.daemon = s.start("tgad", "serve", "--data", "data", "--socket", "s", "--config", "tgad.toml")
	s.wait("the daemon is "+as, func() bool {
		out, err := s.tgad("ready")
		return err == nil && as == "ready" || err != nil && strings.Contains(out, as)
	})
}

// charge makes a call, and returns its trace.
func (s *store) charge(key string) string {
	s.Helper()
	out, err := s.tgad("call", "payments", "charge", `{"account":"acme","amount":5}`, "--key", key, "--json")
	var answer struct {
		TraceID string `json:"trace_id"`
	}
	if err != nil || json.Unmarshal([]byte(out), &answer) != nil || answer.TraceID == "" {
		s.Fatalf("charge: %v\n%s", err, out)
	}
	return answer.TraceID
}
