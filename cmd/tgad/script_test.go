package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tgad/tgad/internal/payments/journal"
	"github.com/tgad/tgad/runtime/client"
)

// TestScripts runs testdata/script: every verb, as a user types it, against a real daemon with the payments
// tool server.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TGAD_SOCKET", filepath.Join(e.WorkDir, "run", "s"))
			e.Setenv("TGAD_DATA", filepath.Join(e.WorkDir, "data"))
			e.Setenv("JOURNAL", filepath.Join(e.WorkDir, "payments.journal"))
			e.Setenv("NO_COLOR", "1")
			return os.WriteFile(filepath.Join(e.WorkDir, "tgad.toml"), []byte(testConfig(e.Getenv("JOURNAL"))), 0o640)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"capture": capture,
			"ready":   ready,
			"signal":  signalHolder,
			"flip":    flip,
			"charged": charged,
			"notes":   notes,
			"model":   model,
			"types":   types,
			"appears": appears,
			"port":    port,
			"expand":  expand,
			"listens": listening,
			"metric":  metric,

			"processes": processes,
		},
	})
}

// appears waits for a file that a program in the background makes.
func appears(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: appears FILE")
	}
	ts.Check(waitFor(func() error {
		_, err := os.Stat(ts.MkAbs(args[0]))
		return err
	}))
}

// port finds a port that nobody listens at: port NAME
func port(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: port NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, found, err := net.SplitHostPort(l.Addr().String())
	ts.Check(errors.Join(err, l.Close()))
	ts.Setenv(args[0], found)
}

// expand puts the environment into a file: expand FILE
func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o640))
}

// listening waits until somebody listens at an address: listens HOST:PORT
func listening(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: listens HOST:PORT")
	}
	ts.Check(waitFor(func() error {
		c, err := net.Dial("tcp", args[0])
		if err == nil {
			err = c.Close()
		}
		return err
	}))
}

// metric waits until a metric of the daemon has a value: metric NAME VALUE
func metric(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: metric NAME VALUE")
	}
	c := client.New(ts.Getenv("TGAD_SOCKET"), client.Options{Name: "test"})
	defer c.Close()
	ts.Check(waitFor(func() error {
		raw, err := c.Metrics(context.Background())
		if err == nil && !strings.Contains(string(raw), "\n"+args[0]+" "+args[1]+"\n") {
			err = fmt.Errorf("%s is not %s", args[0], args[1])
		}
		return err
	}))
}

// processes waits until the given number of the payments server's programs run: processes NUMBER
func processes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: processes NUMBER")
	}
	ts.Check(waitFor(func() error {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		n := 0
		for _, name := range all {
			raw, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue // it ended while we looked
			} else if err != nil {
				return err
			}
			if bytes.HasSuffix(raw, []byte("\x00--journal\x00"+ts.Getenv("JOURNAL")+"\x00")) {
				n++
			}
		}
		if fmt.Sprint(n) != args[0] {
			return fmt.Errorf("%d programs of the payments server run, want %s", n, args[0])
		}
		return nil
	}))
}

// testConfig is the payments tool server with one tool of each kind, twice.
func testConfig(journal string) string {
	return fmt.Sprintf(`
[[server]]
id = "payments"
type = "mcp-command"
command = ["tgad-lab", "payments", "--journal", %[1]q]

[[tool]]
server = "payments"
name = "charge"
licence = "dedupe_key"
window = "1h"

[[tool]]
server = "payments"
name = "balance"
class = "read"

[[rule]]
tool = "forbidden"
decision = "DENY"
rationale = "nobody may call this tool"

[[rule]]
risk = "HIGH_RISK"
decision = "NEEDS_APPROVAL"
rationale = "a high-risk payment needs a person"

[[rule]]
decision = "APPROVE"
rationale = "payments are approved by the rule table"

# The same tool server with a journal of its own, whose calls can be asked about, looked
# at and undone. A call's memo names a file that it is said to make.
[[server]]
id = "bank"
type = "mcp-command"
command = ["tgad-lab", "payments", "--journal", %[2]q]

[[tool]]
server = "bank"
name = "charge_opaque"
licence = "probe"
replay = "human"
change = [{ resource_type = "file", resource_id = "{/args/memo}", operation = "create" }]
inverse = { name = "charge", args = '{"account":"{/args/account}","amount":"{/args/amount}","memo":"undo"}' }

[[prober]]
server = "bank"
tool = "charge_opaque"
type = "mcp"
ask_tool = "lookup"
arguments = { tool = "=\"charge_opaque\"", key = "key" }
ran = [{ check = [{ pointer = "/structuredContent/ran", equals = "true" }] }]
not_ran = [{ check = [{ pointer = "/structuredContent/ran", equals = "false" }] }]
reply = { result = "/structuredContent/receipt" }

[[verifier]]
resource_type = "file"
type = "file"
root = "docs"

# The tools of the agent in state.txtar.
[[server]]
id = "local"
type = "http"
url = "http://127.0.0.1:1"

[[tool]]
server = "local"
name = "note"
class = "read"

[[tool]]
server = "local"
name = "write"
inverse = { name = "unwrite", args = '{}' }

[approval]
self = true

[store]
memtable_bytes = "1MiB"
list_index = true
`, journal, journal+".bank")
}

// exits runs a command and expects an exit code: exits 3 tgad verify x
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// types runs commands of the last output as they are printed, from another directory. Each argument names
// the only command that contains these words. All but the last must exit 0, and the last with CODE: types 0
// 'action approve' 'agent resume'
func types(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: types CODE WORDS...")
	}
	printed := ts.ReadFile("stdout")
	for i, words := range args[1:] {
		var found []string
		for line := range strings.Lines(printed) {
			if strings.HasPrefix(line, "  tgad ") && strings.Contains(line, words+" ") {
				found = append(found, strings.TrimSpace(line))
			}
		}
		if len(found) != 1 {
			ts.Fatalf("%d commands have %q in\n%s", len(found), words, printed)
		}
		code := "0"
		if i == len(args)-2 {
			code = args[0]
		}
		exits(ts, false, []string{code, "/bin/sh", "-c", "cd / && " + found[0]})
	}
}

// capture stores in a variable what a group matches in the last output: capture TRACE 'trace
// ([0-9a-f-]{36})'
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	re, err := regexp.Compile(args[1])
	ts.Check(err)
	for _, from := range []string{"stdout", "stderr"} {
		if m := re.FindStringSubmatch(ts.ReadFile(from)); m != nil {
			ts.Setenv(args[0], m[1])
			return
		}
	}
	ts.Fatalf("nothing matches %s in\n%s%s", args[1], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
}

// ready waits until the daemon at $TGAD_SOCKET is ready, or reports that it is frozen.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	c := client.New(ts.Getenv("TGAD_SOCKET"), client.Options{Name: "test"})
	defer c.Close()
	ts.Check(waitFor(func() error {
		err := c.Ready(context.Background())
		if len(args) == 1 && err != nil && strings.Contains(err.Error(), args[0]) {
			return nil
		}
		return err
	}))
}

// waitFor calls f until it returns nil, for half a minute: a machine may be busy.
func waitFor(f func() error) error {
	until := time.Now().Add(30 * time.Second)
	for {
		err := f()
		if err == nil || time.Now().After(until) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// signalHolder sends a signal to the process that has the store $TGAD_DATA open. For a signal that ends it,
// it waits until the process is gone: signal TERM
func signalHolder(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "HUP": syscall.SIGHUP}
	if neg || len(args) != 1 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal KILL|TERM|STOP|CONT|HUP")
	}
	b, err := os.ReadFile(filepath.Join(ts.Getenv("TGAD_DATA"), "tgad.lock"))
	ts.Check(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, signals[args[0]]))
	if args[0] != "KILL" && args[0] != "TERM" {
		return
	}
	ts.Check(waitFor(func() error {
		// A child that nobody has waited for yet is a zombie and still accepts signals, so the lock is what
		// shows its end.
		f, err := os.OpenFile(filepath.Join(ts.Getenv("TGAD_DATA"), "tgad.lock"), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}))
}

// flip replaces the first occurrence of a text in a file by another of the same length.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 || len(args[1]) != len(args[2]) {
		ts.Fatalf("usage: flip FILE OLD NEW, of one length")
	}
	name := ts.MkAbs(args[0])
	b, err := os.ReadFile(name)
	ts.Check(err)
	i := bytes.Index(b, []byte(args[1]))
	if i < 0 {
		ts.Fatalf("%s has no %q", name, args[1])
	}
	copy(b[i:], args[2])
	ts.Check(os.WriteFile(name, b, 0o640))
}

// charged reads the tool server's journal: charged TOOL KEY RECEIVED CHARGES. It waits until the counts
// reach these values; larger counts are an error.
func charged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: charged TOOL KEY RECEIVED CHARGES")
	}
	ts.Check(waitFor(func() error {
		sum, err := journal.Read(ts.Getenv("JOURNAL"))
		if err != nil {
			return err
		}
		c := sum.Count(journal.Call{Tool: args[0], Key: args[1]})
		if got := []string{fmt.Sprint(c.Received), fmt.Sprint(c.Charges)}; got[0] != args[2] || got[1] != args[3] {
			return fmt.Errorf("received and charged %v times, want %v", got, args[2:])
		}
		return nil
	}))
}
