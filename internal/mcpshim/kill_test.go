package mcpshim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime/client"
)

// The kill test. A client makes calls and, as real clients do, starts the server again
// and repeats a call whose answer it lost. Meanwhile the shim, the daemon, the tool
// server, or two of them are killed with SIGKILL. The tool server's own journal is the
// judge: it counts what had its effect.

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
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(r.env(), envFake+"="+r.journal)
	if r.shim {
		// The tool server is this binary again, without the shim's role.
		cmd = exec.Command(os.Args[0], "/usr/bin/env", envProcess+"=", envFake+"="+r.journal, os.Args[0])
		if r.launcher != nil {
			cmd.Args = append(slices.Clone(r.launcher), cmd.Args...)
			cmd.Path = r.launcher[0]
		}
		cmd.Env = append(r.env(), envProcess+"=shim", envKill+"="+r.victim)
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
		if f := newFrame([]byte(line)); f.IsAnswer() && string(f.RawID) == fmt.Sprint(r.id) {
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

// targets are each of the processes, and each pair.
var targets = []string{"shim", "daemon", "server", "daemon+shim", "server+shim", "server+daemon"}

// envKills, where it is set, has every target killed at every point.
const envKills = "TGAD_KILLS"

// victimsFor is who is killed at the i-th point: all of them, or the shim, which knows
// most, and a part of the others that is another one at the next point.
func victimsFor(i int) []string {
	others := 2
	switch {
	case os.Getenv(envKills) != "":
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

// TestKillsAtEveryPoint kills each of the processes, and each pair, at every frame that
// a governed call reads or writes and before and after every write to its log, of a tool
// about which nothing is attested and of one that may be repeated.
func TestKillsAtEveryPoint(t *testing.T) {
	var total verdict
	for _, tool := range []string{"kill", "again"} {
		for i, point := range killPoints {
			if tool == "again" && point != "before send" && point != "answer read" {
				continue // the licence is asked for nothing at the others
			}
			for _, victims := range victimsFor(i) {
				r := newRig(t, true)
				r.victim = point + ": " + victims
				r.call("charge", `{"warm":1}`)
				args := `{"name":"killed"}`
				answer, tries := r.call(tool, args)
				v := r.judge(args, answer, tries)
				eventually(t, fmt.Sprintf("%s, %s killed: %s", tool, victims, point), func() bool {
					_, err := os.Stat(filepath.Join(r.dir, "killed"))
					return err == nil
				})
				if v.doubts != 0 && !strings.Contains(victims, "shim") {
					// The shim knows what it has sent and keeps what it was answered.
					t.Errorf("%s, %s killed %s: in doubt although the shim lived: %.300s", tool, victims, point, answer)
				}
				if v.lost != 0 || v.twice != 0 && tool == "kill" {
					t.Errorf("%s, %s killed %s: %+v, answer %.200s", tool, victims, point, v, answer)
				}
				if tool == "again" && v.doubts != 0 {
					t.Errorf("%s, %s killed %s: in doubt although it may be repeated: %.200s", tool, victims, point, answer)
				}
				if tool == "again" {
					v.twice = 0 // its operator says that this is harmless
				}
				// The same conversation goes on: another intended call is another effect.
				before := v.effects
				if v.doubts == 0 && point != "delivered" {
					answer, tries = r.call(tool, args)
					if got := r.judge(args, answer, tries).effects; got != before+1 {
						t.Errorf("%s, %s killed %s: the next call made %d effects of %d", tool, victims, point, got, before)
					}
				}
				total.add(v)
				r.drop()
			}
		}
	}
	t.Logf("kills of each process and each pair at every point: %+v", total)
}

// TestKills kills each of the processes, and each pair, at many points of a call: after
// a delay that is drawn anew each time from the length of a whole call. Effects per
// intended call are at most one, whoever dies.
func TestKills(t *testing.T) {
	rounds := 6
	switch {
	case os.Getenv(envKills) != "":
		rounds = 50
	case testing.Short():
		rounds = 2
	}
	var total verdict
	for _, name := range targets {
		t.Run(name, func(t *testing.T) {
			v := killRounds(t, true, strings.Split(name, "+"), rounds)
			t.Logf("with tgad: %+v", v)
			if v.twice != 0 || v.lost != 0 {
				t.Errorf("%s: %d calls ran twice, %d were answered and did not run", name, v.twice, v.lost)
			}
			total.add(v)
		})
	}
	t.Logf("with tgad, in all: %+v", total)
}

// TestKillsWithoutTgad is the same client and the same kills with the bare tool server:
// the duplicates that the shim is there to end.
func TestKillsWithoutTgad(t *testing.T) {
	v := killRounds(t, false, []string{"server"}, 12)
	t.Logf("without tgad: %+v", v)
	if v.twice == 0 {
		t.Error("no call ran twice: the kills of this test hit nothing")
	}
}

func killRounds(t *testing.T, shim bool, victims []string, rounds int) verdict {
	r := newRig(t, shim)
	rnd := rand.New(rand.NewPCG(7, uint64(len(victims))))
	// A call takes about this long; the kill falls somewhere in it.
	var took []time.Duration
	for i := range 5 {
		began := time.Now()
		if _, tries := r.call("charge", fmt.Sprintf(`{"warm":%d}`, i)); tries == 1 && i > 0 {
			took = append(took, time.Since(began))
		}
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	span := 20 * time.Millisecond
	if len(took) > 0 {
		span = took[len(took)/2]
	}
	var total verdict
	for i := range rounds {
		args := fmt.Sprintf(`{"n":%d}`, i)
		if !shim {
			// The bare server answers at once; without this the kill would mostly miss the
			// time between its effect and the answer.
			args = fmt.Sprintf(`{"n":%d,"wait":%q}`, i, r.dir+fmt.Sprintf("/gate%d", i))
		}
		if r.peer == nil {
			if err := r.dial(); err != nil {
				t.Fatal(err)
			}
		}
		server := r.toolServer()
		delay := time.Duration(rnd.Int64N(int64(span)*5/4 + 1))
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			if !shim && i%2 == 0 {
				// Some kills fall between the effect and the answer on every machine, however
				// long a call takes there to its effect.
				r.await(fmt.Sprintf(`/gate%d\"`, i))
			}
			time.Sleep(delay)
			for _, who := range victims {
				r.kill(who, server)
			}
			_ = os.WriteFile(r.dir+fmt.Sprintf("/gate%d", i), nil, 0o600)
		}()
		answer, tries := r.call("charge", args)
		<-killed
		total.add(r.judge(args, answer, tries))
	}
	return total
}

// TestToolServerDiesWithItsShim: a shim that is killed leaves no tool server behind that
// could still act.
func TestToolServerDiesWithItsShim(t *testing.T) {
	t.Setenv(envStubborn, "1")
	r := newRig(t, true)
	if err := r.dial(); err != nil {
		t.Fatal(err)
	}
	server := r.toolServer()
	if server == 0 {
		t.Fatal("no tool server")
	}
	r.drop()
	eventually(t, "the tool server's end", func() bool { return errors.Is(syscall.Kill(server, 0), syscall.ESRCH) })
}

// TestSuccessorGivesUpWhatItsPredecessorLeft: after a kill a repeat is told at once that
// the outcome is unknown; it does not wait for the permit, which is good for an hour.
func TestSuccessorGivesUpWhatItsPredecessorLeft(t *testing.T) {
	r := newRig(t, true)
	r.victim = "answer read: shim"
	r.call("charge", `{"warm":1}`)
	args := `{"name":"killed"}`
	answer, tries := r.call("held", args)
	if v := r.judge(args, answer, tries); v.doubts != 1 || v.effects != 1 || v.repeats != 1 {
		t.Errorf("%+v: %.300s", v, answer)
	}
}

// TestReadCallOfAKilledShim: a call that only reads is sent again for the client that
// repeats it, and the one that the killed shim has left is brought to its end.
func TestReadCallOfAKilledShim(t *testing.T) {
	for _, point := range []string{"before send", "answer read"} {
		r := newRig(t, true)
		r.victim = point + ": shim"
		args := `{"name":"killed"}`
		answer, tries := r.call("look", args)
		if v := r.judge(args, answer, tries); v.doubts != 0 || v.effects < 1 || !strings.Contains(answer, `"ok"`) || strings.Contains(answer, "replayed") || tries < 2 {
			t.Errorf("%s: %+v, %d tries: %.300s", point, v, tries, answer)
		}
		c := client.New(filepath.Join(r.dir, "run", "s"), client.Options{Name: "test"})
		defer c.Close()
		if point == "before send" {
			// The permit was out and not noted: nobody knows whether it was used. It is the
			// only one that is left.
			continue
		}
		eventually(t, "the end of every call", func() bool {
			open := 0
			for _, err := range c.Traces(t.Context(), client.TracesQuery{}) {
				if err != nil {
					return false
				}
				open++
			}
			return open == 0
		})
	}
}
