package mcpfront

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
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

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/serial"
)

// rig is the processes of one run.
type rig struct {
	t       *testing.T
	dir     string
	journal string
	shim    bool // without it the client talks to the tool server itself

	daemon atomic.Pointer[os.Process]
	over   atomic.Bool
	ended  chan struct{}
	victim string                     // of a kill that the shim makes itself
	peer   *exec.Cmd                  // what the client started: the shim, or the tool server
	prey   atomic.Pointer[os.Process] // that, for who kills it from elsewhere
	in     io.WriteCloser
	out    *bufio.Reader
	id     int

	verb     string               // of that process; "" = shim
	far      string               // URL of another tool server of a gateway's
	launcher []string             // what the client starts in place of the shim itself
	meta     func(try int) string // of a call, by how often it was tried
}

func newRig(t *testing.T, shim bool) *rig {
	t.Helper()
	// Not t.TempDir: its path may be too long for a socket.
	dir, err := os.MkdirTemp("", "tgad-kill-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, journal: filepath.Join(dir, "journal"), shim: shim, ended: make(chan struct{})}
	t.Cleanup(func() {
		r.drop()
		if d := r.daemon.Load(); d != nil {
			r.over.Store(true)
			for done := false; !done; {
				_ = r.daemon.Load().Kill() // it may just have been started anew
				select {
				case <-r.ended:
					done = true
				case <-time.After(time.Millisecond):
				}
			}
		}
		_ = os.RemoveAll(dir)
	})
	if shim {
		r.startDaemon()
	}
	return r
}

func (r *rig) env() []string {
	return append(os.Environ(), envDir+"="+r.dir, envSocket+"="+filepath.Join(r.dir, "run", "s"))
}

// startDaemon runs a daemon, and another whenever it is killed, as a service manager
// would.
func (r *rig) startDaemon() {
	r.t.Helper()
	up := make(chan struct{}, 1)
	go func() {
		defer close(r.ended)
		for {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(r.env(), envProcess+"=daemon")
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				panic(err)
			}
			_ = os.WriteFile(filepath.Join(r.dir, "daemon.pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
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

// dial starts what the client talks to and makes the handshake.
func (r *rig) dial() error {
	cmd := exec.Command(fakeProgram())
	cmd.Env = append(r.env(), envFake+"="+r.journal)
	if r.shim {
		cmd = exec.Command(os.Args[0], "/usr/bin/env", envProcess+"=", envFake+"="+r.journal, fakeProgram())
		if r.launcher != nil {
			cmd.Args = append(slices.Clone(r.launcher), cmd.Args...)
			cmd.Path = r.launcher[0]
		}
		cmd.Env = append(r.env(), envProcess+"="+cmp.Or(r.verb, "shim"), envKill+"="+r.victim, envFar+"="+r.far)
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
	r.peer, r.in, r.out = cmd, in, bufio.NewReaderSize(out, 64<<10)
	_, err = r.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"k","version":"1"}}`)
	if err == nil {
		_, err = io.WriteString(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	return err
}

// drop ends what the client talks to.
func (r *rig) drop() {
	if r.peer == nil {
		return
	}
	_ = r.in.Close()
	_ = r.peer.Process.Kill()
	_ = r.peer.Wait()
	r.peer = nil
}

func (r *rig) ask(method, params string) (string, error) {
	r.id++
	if _, err := fmt.Fprintf(r.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", r.id, method, params); err != nil {
		return "", err
	}
	for {
		line, err := readWithin(r.out, 20*time.Second)
		if err != nil {
			return "", err
		}
		if f := frames.NewFrame([]byte(line)); f.IsAnswer() && string(f.RawID) == fmt.Sprint(r.id) {
			return line, nil
		}
	}
}

// call makes one intended call and repeats it until it has an answer. Between tries the
// client starts what was killed.
func (r *rig) call(tool, args string) (answer string, tries int) {
	r.t.Helper()
	for tries = 1; tries < 30; tries++ {
		if r.peer == nil {
			if err := r.dial(); err != nil {
				r.drop()
				continue
			}
		}
		meta := ""
		if r.meta != nil {
			meta = `,"_meta":` + r.meta(tries)
		}
		line, err := r.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s%s}`, tool, args, meta))
		switch {
		case err != nil && strings.Contains(err.Error(), "nothing for"):
			r.t.Fatalf("the client hangs: %s %s: %v", tool, args, err)
		case err != nil:
			r.drop() // the connection is gone: start it again, and repeat
		case strings.Contains(line, `"error":{"code":-32000`), strings.Contains(line, "not sent"), strings.Contains(line, "STORE_UNAVAILABLE"):
			// It says that it may be repeated.
		default:
			return line, tries
		}
	}
	r.t.Fatalf("no answer after %d tries: %s %s", tries, tool, args)
	return "", tries
}

// toolServer finds the process that keeps the journal.
func (r *rig) toolServer() int {
	list, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return 0
	}
	want := "\x00" + envFake + "=" + r.journal + "\x00"
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

// kill kills one of the processes; the daemon is started again as a service manager
// would.
func (r *rig) kill(who string, server int) {
	switch who {
	case "shim":
		if p := r.prey.Load(); p != nil {
			_ = p.Kill() // one that is gone already is not killed again
		}
	case "server":
		if server > 0 {
			_ = syscall.Kill(server, syscall.SIGKILL)
			dead(server)
		}
	case "daemon":
		_ = r.daemon.Load().Kill()
	}
}

// dead waits until a killed process has closed its files: until then a pipe takes bytes that
// nobody reads, and whoever wrote them cannot know that.
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

// verdict counts what became of the intended calls of a run.
type verdict struct{ calls, effects, doubts, twice, lost, repeats int }

func (v *verdict) add(o verdict) {
	v.calls, v.effects, v.doubts = v.calls+o.calls, v.effects+o.effects, v.doubts+o.doubts
	v.twice, v.lost, v.repeats = v.twice+o.twice, v.lost+o.lost, v.repeats+o.repeats
}

// await waits until the journal has a whole line with that text, for a time.
func (r *rig) await(text string) {
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(r.journal)
		if err == nil && strings.Contains(string(b[:bytes.LastIndexByte(b, '\n')+1]), text) {
			return
		}
	}
}

// judge looks at one intended call: its effects in the journal, and what the client saw.
func (r *rig) judge(args, answer string, tries int) verdict {
	r.t.Helper()
	v := verdict{calls: 1, repeats: tries - 1}
	for _, e := range journalOf(r.t, r.journal) {
		if e.Args == args {
			v.effects++
		}
	}
	doubt := strings.Contains(answer, "OUTCOME UNKNOWN")
	if doubt {
		v.doubts = 1
	}
	if v.effects > 1 {
		v.twice = 1
	}
	if v.effects == 0 && !doubt {
		v.lost = 1 // it was told that it ran
	}
	return v
}

// envFar is the URL of the tool server over HTTP of a gateway in a process of its own.
const envFar = "TGAD_MCP_FAR"

// second is another client of the same daemon, started by the same process.
func (r *rig) second() *rig {
	o := &rig{t: r.t, dir: r.dir, journal: r.journal, shim: true}
	r.t.Cleanup(o.drop)
	return o
}

// ran counts the effects of a call.
func (r *rig) ran(args string) (n int) {
	for _, e := range journalOf(r.t, r.journal) {
		if e.Args == args {
			n++
		}
	}
	return n
}

// targets are each of the processes, and each pair.
var targets = []string{"shim", "daemon", "server", "daemon+shim", "server+shim", "server+daemon"}

// everyKill says whether every target is killed at every point, and at random many times over.
func everyKill() bool { return os.Getenv("TGAD_KILLS") != "" || serial.Whole() }

// victimsFor is who is killed at the i-th point: all of them, or the shim, which knows
// most, and a part of the others that is another one at the next point.
func victimsFor(i int) []string {
	others := 2
	switch {
	case everyKill():
		return targets
	case testing.Short():
		others = 0
	}
	some := targets[:1:1]
	for k := range others {
		some = append(some, targets[1+(i*others+k)%(len(targets)-1)])
	}
	return some
}
