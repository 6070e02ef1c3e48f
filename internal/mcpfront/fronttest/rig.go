package fronttest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/mcpfront/entry"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/serial"
)

// Rig has the processes of one test run.
type Rig struct {
	t       *testing.T
	Dir     string
	Journal string
	shim    bool // false: the client talks to the tool server directly

	daemon atomic.Pointer[os.Process]
	over   atomic.Bool
	ended  chan struct{}
	Victim string                     // which processes the shim kills, and at which point (envKill)
	Peer   *exec.Cmd                  // what the client started: the shim, or the tool server
	prey   atomic.Pointer[os.Process] // the process of Peer, for other goroutines
	gate   <-chan struct{}            // closed when the process that serves HTTP has ended; nil = there is none
	In     io.WriteCloser
	Out    *bufio.Reader
	id     int

	Verb     string               // verb of the process that the client talks to; "" = shim
	Far      string               // URL of another tool server of a gateway
	Launcher []string             // a command that the client starts, and that starts the shim
	Meta     func(try int) string // `_meta` of a call, by the number of the try
}

func NewRig(t *testing.T, shim bool) *Rig {
	t.Helper()
	// Not t.TempDir: its path may be too long for a socket.
	dir, err := os.MkdirTemp("", "tgad-kill-")
	if err != nil {
		t.Fatal(err)
	}
	r := &Rig{t: t, Dir: dir, Journal: filepath.Join(dir, "journal"), shim: shim, ended: make(chan struct{})}
	t.Cleanup(func() {
		r.Drop()
		if d := r.daemon.Load(); d != nil {
			r.over.Store(true)
			for done := false; !done; {
				// The daemon may just have been restarted.
				if err := gone(r.daemon.Load().Kill()); err != nil {
					t.Fatal(err)
				}
				select {
				case <-r.ended:
					done = true
				case <-time.After(time.Millisecond):
				}
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if shim {
		r.startDaemon()
	}
	return r
}

func (r *Rig) env() []string {
	return append(os.Environ(), EnvDir+"="+r.Dir, envSocket+"="+filepath.Join(r.Dir, "run", "s"))
}

// startDaemon runs a daemon, and restarts it whenever it is killed, as a service manager would.
func (r *Rig) startDaemon() {
	r.t.Helper()
	up := make(chan struct{}, 1)
	go func() {
		defer close(r.ended)
		for {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(r.env(), EnvProcess+"=daemon")
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				panic(err)
			}
			if err := os.WriteFile(filepath.Join(r.Dir, "daemon.pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
				panic(err)
			}
			r.daemon.Store(cmd.Process)
			select {
			case up <- struct{}{}:
			default:
			}
			_ = cmd.Wait()
			if r.over.Load() {
				return
			}
		}
	}()
	<-up
}

// command makes the command of the process that the client talks to.
func (r *Rig) command() *exec.Cmd {
	cmd := exec.Command(os.Args[0], "/usr/bin/env", EnvProcess+"=", EnvFake+"="+r.Journal, FakeProgram())
	if r.Launcher != nil {
		cmd.Args = append(slices.Clone(r.Launcher), cmd.Args...)
		cmd.Path = r.Launcher[0]
	}
	cmd.Env = append(r.env(), EnvProcess+"="+cmp.Or(r.Verb, "shim"), envKill+"="+r.Victim, EnvFar+"="+r.Far)
	return cmd
}

// gatewaySocket is where a process of [Rig.CallOver] listens, in the rig's directory.
const gatewaySocket = "gateway.sock"

// Lobby serves clients over HTTP.
type Lobby = entry.Lobby

// Far is the URL of a rig's far tool server, for a process that the rig has started.
func Far() string { return os.Getenv(EnvFar) }

// ServeAt serves clients over HTTP in a process that a rig has started.
func ServeAt(ctx context.Context, dir string, made func(life context.Context) Lobby) error {
	if err := os.WriteFile(filepath.Join(dir, os.Getenv(EnvProcess)+".pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	l, err := entry.ListenOn("unix:" + filepath.Join(dir, gatewaySocket))
	if err != nil {
		return err
	}
	return entry.Serve(ctx, l, slog.New(slog.DiscardHandler), made)
}

// CallOver is [Rig.Call] over HTTP, in the newest revision, with headers in pairs.
func (r *Rig) CallOver(tool, args, meta string, header ...string) (answer string, tries int) {
	r.t.Helper()
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.Dir, gatewaySocket))
	}}}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, tool, args, meta)
	for tries = 1; tries < 30; tries++ {
		if r.gate == nil {
			if err := r.serve(); err != nil {
				r.t.Fatal(err)
			}
		}
		var err error
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
			if _, answer, _, err = exchange(c, http.MethodPost, "http://gateway/mcp", body, header); !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
				break // the process listens
			}
		}
		if err == nil && answer != "" && !strings.Contains(answer, "not sent") && !strings.Contains(answer, "STORE_UNAVAILABLE") {
			return answer, tries
		}
		if err != nil || answer == "" {
			select {
			case <-r.gate: // the process was killed
				r.gate = nil
			case <-time.After(20 * time.Second):
				r.t.Fatalf("no answer of a gateway that lives: %s %s: %v", tool, args, err)
			}
		}
	}
	r.t.Fatalf("no answer after %d tries: %s %s", tries, tool, args)
	return "", tries
}

// serve starts the process that serves clients over HTTP.
func (r *Rig) serve() error {
	cmd, ended := r.command(), make(chan struct{})
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it was killed
	}()
	r.gate = ended
	r.t.Cleanup(func() {
		if err := gone(cmd.Process.Kill()); err != nil {
			r.t.Error(err)
		}
		<-ended
	})
	return nil
}

// Dial starts the process that the client talks to, and makes the handshake.
func (r *Rig) Dial() error {
	cmd := exec.Command(FakeProgram())
	cmd.Env = append(r.env(), EnvFake+"="+r.Journal)
	if r.shim {
		cmd = r.command()
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.prey.Store(cmd.Process)
	r.Peer, r.In, r.Out = cmd, in, bufio.NewReaderSize(out, 64<<10)
	_, err = r.Ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"k","version":"1"}}`)
	if err == nil {
		_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	return err
}

// Drop kills the process that the client talks to.
func (r *Rig) Drop() {
	if r.Peer == nil {
		return
	}
	if err := errors.Join(shut(r.In), gone(r.Peer.Process.Kill())); err != nil {
		r.t.Error(err)
	}
	_ = r.Peer.Wait() // it was killed
	r.Peer = nil
}

func (r *Rig) Ask(method, params string) (string, error) {
	r.id++
	if _, err := fmt.Fprintf(r.In, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", r.id, method, params); err != nil {
		return "", err
	}
	for {
		line, err := ReadWithin(r.Out, 20*time.Second)
		if err != nil {
			return "", err
		}
		if f := frames.NewFrame([]byte(line)); f.IsAnswer() && string(f.RawID) == fmt.Sprint(r.id) {
			return line, nil
		}
	}
}

// Call makes one intended call and repeats it until it has an answer. Between tries the client
// restarts a process that was killed.
func (r *Rig) Call(tool, args string) (answer string, tries int) {
	r.t.Helper()
	for tries = 1; tries < 30; tries++ {
		if r.Peer == nil {
			if err := r.Dial(); err != nil {
				r.Drop()
				continue
			}
		}
		meta := ""
		if r.Meta != nil {
			meta = `,"_meta":` + r.Meta(tries)
		}
		line, err := r.Ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s%s}`, tool, args, meta))
		switch {
		case err != nil && strings.Contains(err.Error(), "nothing for"):
			r.t.Fatalf("the client hangs: %s %s: %v", tool, args, err)
		case err != nil:
			r.Drop() // the connection is gone: start the process again, and repeat
		case strings.Contains(line, `"error":{"code":-32000`), strings.Contains(line, "not sent"), strings.Contains(line, "STORE_UNAVAILABLE"):
			// The answer says that the call may be repeated.
		default:
			return line, tries
		}
	}
	r.t.Fatalf("no answer after %d tries: %s %s", tries, tool, args)
	return "", tries
}

// TasksMeta is the `_meta` of a client that understands tasks.
const TasksMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// Follow makes a call that may become a task, and asks about the task until its end is known; known is "" if it never is.
// Between tries the client restarts a process that was killed.
func (r *Rig) Follow(tool, args string) (id, known string) {
	r.t.Helper()
	for lost := 0; known == "" && lost < 20; lost++ {
		if r.Peer == nil {
			if err := r.Dial(); err != nil {
				r.Drop()
				continue
			}
		}
		var line string
		var err error
		if id == "" {
			line, err = r.Ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":%s}`, tool, args, TasksMeta))
		} else {
			line, err = r.Ask("tasks/get", fmt.Sprintf(`{"taskId":%q,"_meta":%s}`, id, TasksMeta))
		}
		switch {
		case err != nil && strings.Contains(err.Error(), "nothing for"):
			r.t.Fatalf("%s: the client hangs: %v", r.Victim, err)
		case err != nil:
			r.Drop()
		case strings.Contains(line, `"resultType":"task"`):
			id = mcpraw.ScalarText(mcpraw.At([]byte(line), "/result/taskId"))
		case strings.Contains(line, `"status":"working"`):
			lost-- // the task goes on
		case strings.Contains(line, `"code":-32000`), strings.Contains(line, "STORE_UNAVAILABLE"), strings.Contains(line, "may be repeated"):
		default:
			known = line
		}
	}
	return id, known
}

// ToolServer finds the process that keeps the journal.
func (r *Rig) ToolServer() int {
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return 0
	}
	want := "\x00" + EnvFake + "=" + r.Journal + "\x00"
	for _, path := range list {
		env, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(env), want) {
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/environ", &pid); err == nil {
				return pid
			}
		}
	}
	return 0
}

// Kill kills one of the processes. The rig restarts the daemon, as a service manager would.
func (r *Rig) Kill(who string, server int) {
	var err error
	switch who {
	case "shim":
		if p := r.prey.Load(); p != nil {
			err = gone(p.Kill())
		}
	case "server":
		if server > 0 {
			err = kill(server)
			dead(server)
		}
	case "daemon":
		err = gone(r.daemon.Load().Kill())
	}
	if err != nil {
		r.t.Error(err)
	}
}

// kill kills a process. It is no error if the process has ended already.
func kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// gone ignores the error that a process has ended already; shut ignores the error that a file is closed already.
func gone(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func shut(c io.Closer) error {
	if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// dead waits until a killed process has closed its files. Until then a pipe accepts bytes that nobody
// reads, and their writer cannot know that.
func dead(pid int) {
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		if _, after, ok := strings.Cut(string(b), ") "); ok && (after[0] == 'Z' || after[0] == 'X') {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Verdict counts the outcomes of the intended calls of a run.
type Verdict struct{ calls, Effects, Doubts, Twice, Lost, Repeats int }

func (v *Verdict) Add(o Verdict) {
	v.calls, v.Effects, v.Doubts = v.calls+o.calls, v.Effects+o.Effects, v.Doubts+o.Doubts
	v.Twice, v.Lost, v.Repeats = v.Twice+o.Twice, v.Lost+o.Lost, v.Repeats+o.Repeats
}

// Await waits until the journal has a whole line with a text, for at most 10 s.
func (r *Rig) Await(text string) {
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(r.Journal)
		if err == nil && strings.Contains(string(b[:bytes.LastIndexByte(b, '\n')+1]), text) {
			return
		}
	}
}

// Judge judges one intended call by its effects in the journal and by the client's answer.
func (r *Rig) Judge(args, answer string, tries int) Verdict {
	r.t.Helper()
	v := Verdict{calls: 1, Repeats: tries - 1}
	for _, e := range JournalOf(r.t, r.Journal) {
		if e.Args == args {
			v.Effects++
		}
	}
	doubt := strings.Contains(answer, "OUTCOME UNKNOWN")
	if doubt {
		v.Doubts = 1
	}
	if v.Effects > 1 {
		v.Twice = 1
	}
	if v.Effects == 0 && !doubt {
		v.Lost = 1 // the client was told that the call ran
	}
	return v
}

// EnvFar has the URL of a tool server over HTTP, for a gateway in a process that a rig has started.
const EnvFar = "TGAD_MCP_FAR"

// Second is another client of the same daemon, started by the same process.
func (r *Rig) Second() *Rig {
	o := &Rig{t: r.t, Dir: r.Dir, Journal: r.Journal, shim: true}
	r.t.Cleanup(o.Drop)
	return o
}

// Ran counts the effects of a call.
func (r *Rig) Ran(args string) (n int) {
	for _, e := range JournalOf(r.t, r.Journal) {
		if e.Args == args {
			n++
		}
	}
	return n
}

// Targets lists each of the processes, and each pair.
var Targets = []string{"shim", "daemon", "server", "daemon+shim", "server+shim", "server+daemon"}

// EveryKill says whether tests kill every target at every point, and make the full number of random kills.
func EveryKill() bool { return os.Getenv("TGAD_KILLS") != "" || serial.Whole() }

// VictimsFor returns the targets to kill at the i-th point. Without [EveryKill] these are the shim,
// which has the most state, and some of the others, which change from point to point.
func VictimsFor(i int) []string {
	others := 2
	switch {
	case EveryKill():
		return Targets
	case testing.Short():
		others = 0
	}
	some := Targets[:1:1]
	for k := range others {
		some = append(some, Targets[1+(i*others+k)%(len(Targets)-1)])
	}
	return some
}
