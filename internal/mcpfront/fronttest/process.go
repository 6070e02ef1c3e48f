package fronttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/internal/mcpfront/asklog"
	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// EnvProcess makes this test binary run as a process that a test starts and may kill.
const (
	EnvProcess = "TGAD_MCP_PROCESS" // "shim" or "daemon"
	EnvDir     = "TGAD_MCP_DIR"     // directory of the log and of the shim's state
	envSocket  = "TGAD_MCP_SOCKET"  // socket of a shim's daemon; "" = the shim keeps the log itself
)

const ProcessConfig = `
allow_all = true
[limits]
request_bytes = "96MiB"
drain_timeout = "1s"
[[server]]
id = "fake"
type = "external"
[[tool]]
server = "fake"
name = "look"
class = "read"
[[tool]]
server = "fake"
name = "again"
licence = "dedupe_args"
permit_time = "5s"
[[tool]]
server = "fake"
name = "held"
permit_time = "1h"
[[tool]]
server = "fake"
name = "brief"
send_timeout = "50ms"
[[tool]]
server = "fake"
name = "*"
permit_time = "5s"
`

// process runs the verb of a process that a test has started.
func process(verb string, verbs map[string]func(ctx context.Context, dir string) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := verbs[verb]
	if verb == "daemon" {
		run = runDaemon
	}
	if err := run(ctx, os.Getenv(EnvDir)); err != nil {
		fmt.Fprintln(os.Stderr, verb+":", err)
		return 1
	}
	return 0
}

func runDaemon(ctx context.Context, dir string) error {
	conf, err := assemble.Parse("", []byte(ProcessConfig))
	if err != nil {
		return err
	}
	vfs.Default = &killFS{FS: vfs.Default, dir: dir}
	for {
		err := daemon.Run(ctx, daemon.Options{
			Data: filepath.Join(dir, "data"), Socket: os.Getenv(envSocket), Config: conf, Logger: slog.New(slog.DiscardHandler),
		})
		// The locks of a killed daemon are free once the kernel has removed the process.
		if !errors.Is(err, tga.StateLockAcquireFailed) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// ProcessLog returns the log of the daemon, or if none was started, of a daemon in this process.
func ProcessLog(ctx context.Context, dir string, log *slog.Logger) (*client.Client, func() error, error) {
	if os.Getenv(envSocket) != "" {
		c := client.New(os.Getenv(envSocket), client.Options{Name: "test"})
		return c, c.Close, nil
	}
	conf, err := assemble.Parse("", []byte(ProcessConfig))
	if err != nil {
		return nil, nil, err
	}
	e, err := embed.Start(ctx, filepath.Join(dir, "data"), conf, log)
	if err != nil {
		return nil, nil, err
	}
	c := e.Client(client.Options{Name: "test"})
	return c, func() error { defer e.Close(); return c.Close() }, nil
}

// envKill says at which point a shim process kills which processes: "point victim victim…". It
// kills only once for each directory.
const envKill = "TGAD_MCP_KILL"

// Points of a governed call at which a shim process can kill.
var KillPoints = []string{"request read", "before begin", "before send", "answer read", "before delivery", "writing", "delivered"}

// killer kills at a point of the first call of the tool "kill".
type killer struct {
	dir     string
	point   string
	victims []string
}

func NewKiller(dir string) *killer {
	point, victims, ok := strings.Cut(os.Getenv(envKill), ": ")
	if _, err := os.Stat(filepath.Join(dir, "killed")); !ok || err == nil {
		return &killer{}
	}
	return &killer{dir: dir, point: point, victims: strings.Split(victims, "+")}
}

// at kills if this is the point. It waits until a killed process has ended, so that the test
// continues only after its death.
func (k *killer) at(point string) {
	if k.point != point {
		return
	}
	k.point = ""
	if err := os.WriteFile(filepath.Join(k.dir, "killed"), []byte(point), 0o600); err != nil {
		panic(err) // it would kill once more
	}
	for _, v := range k.victims {
		if v == "stop" {
			on := make(chan os.Signal, 1)
			signal.Notify(on, syscall.SIGCONT)
			if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
				panic(err)
			}
			<-on // a SIGSTOP takes effect a moment later
			continue
		}
		if v == k.self() {
			defer func() { panic(fmt.Sprint("it lives after SIGKILL: ", syscall.Kill(os.Getpid(), syscall.SIGKILL))) }()
			continue
		}
		raw, err := os.ReadFile(filepath.Join(k.dir, v+".pid"))
		if err != nil {
			panic(err)
		}
		pid, err := strconv.Atoi(string(raw))
		if err == nil {
			err = kill(pid)
		}
		if err != nil {
			panic(err)
		}
		for dead := false; !dead; {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			// The first thread may be gone while others still hold the pipes open.
			threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			dead = err != nil || strings.Contains(string(stat), ") Z ") && len(threads) <= 1
		}
	}
}

// self is the name of this process among the victims. It must be killed last.
func (k *killer) self() string { return os.Getenv(EnvProcess) }

type killLog struct {
	asklog.Log
	k *killer
}

func (k *killer) Log(l asklog.Log) asklog.Log { return killLog{l, k} }

func (l killLog) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	if !bytes.Contains(req.Args, []byte(`"killed"`)) {
		return l.Log.Begin(ctx, req)
	}
	if req.Key != "" || req.Connection.ID != "" || req.Tool == "look" {
		l.k.at("before begin")
	}
	b, err := l.Log.Begin(ctx, req)
	if b.Standing == runtime.BeginSend {
		l.k.at("before send")
	}
	return b, err
}

func (l killLog) Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	if !bytes.Contains(f.Result, []byte(`"killed"`)) {
		return l.Log.Finish(ctx, trace, permit, f)
	}
	l.k.at("answer read")
	res, err := l.Log.Finish(ctx, trace, permit, f)
	if err == nil {
		l.k.at("before delivery")
	}
	return res, err
}

type killReader struct {
	io.Reader
	k *killer
}

func (k *killer) Reader(r io.Reader) io.Reader { return killReader{r, k} }

func (r killReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if bytes.Contains(p[:n], []byte(`"killed"`)) {
		r.k.at("request read")
	}
	return n, err
}

type killLobby struct {
	entry.Lobby
	k *killer
}

// Lobby serves clients over HTTP.
func (k *killer) Lobby(l entry.Lobby) entry.Lobby { return killLobby{l, k} }

func (l killLobby) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = struct {
		io.Reader
		io.Closer
	}{l.k.Reader(r.Body), r.Body}
	l.Lobby.ServeHTTP(killAnswer{w, l.k.Writer(w)}, r)
}

type killAnswer struct {
	http.ResponseWriter
	to io.Writer
}

func (a killAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
func (a killAnswer) Write(p []byte) (int, error) { return a.to.Write(p) }

type killWriter struct {
	io.Writer
	k *killer
}

func (k *killer) Writer(w io.Writer) io.Writer { return killWriter{w, k} }

func (w killWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"killed"`)) && bytes.Contains(p, []byte(`"ok"`)) {
		w.k.at("writing")
	}
	n, err := w.Writer.Write(p)
	if bytes.Contains(p, []byte(`"killed"`)) && bytes.Contains(p, []byte(`"ok"`)) {
		w.k.at("delivered")
	}
	return n, err
}
