package serving_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// TestVerbsAgainstEachDaemon: tgad starts the program beside it, and every verb that asks a daemon
// works against one for the traces of another.
func TestVerbsAgainstEachDaemon(t *testing.T) {
	f, key := newSigning(t, "", approvals)
	bin := filepath.Join(f.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", bin+"/", "github.com/tgad/tgad/cmd/tgad")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(bin, "tgad-postgres"))
	}
	if err != nil {
		t.Fatal(err)
	}
	tgad := func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, "tgad"), args...)
		cmd.Env = append(os.Environ(), programEnv+"=1", "TGAD_DATA=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	if out, err := tgad("pg", "migrate", f.url).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("of version 9 already")) {
		t.Errorf("pg migrate: %v, %s", err, out)
	}
	var daemons [2]*daemon
	for i, name := range []string{"a", "b"} {
		d := &daemon{f: f, socket: filepath.Join(f.dir, name, "s"), ended: make(chan struct{})}
		d.cmd = tgad("serve", "--store", f.url, "--config", f.config, "--socket", d.socket)
		d.run()
		daemons[i] = d
	}
	a, b := daemons[0], daemons[1]
	v := &verbs{t: t, tgad: tgad, socket: b.socket}

	_, err = a.Call(t.Context(), call("refund", "asked"))
	wantCode(t, err, tga.EscalationRequired)
	asked := waiting(t, a)
	var doubts []string
	for _, key := range []string{"d1", "d2"} {
		begun, err := a.Begin(t.Context(), runtime.BeginRequest{Request: runtime.Request{Server: "remote", Tool: "pay", Key: key, Args: []byte(`{}`)}, BeginID: "begin " + key})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.GiveUp(t.Context(), begun.Result.TraceID, begun.Permit, "", 0); err != nil && tga.CodeOf(err) != tga.EffectInDoubt {
			t.Fatal(err)
		}
		doubts = append(doubts, begun.Result.TraceID.String())
	}

	v.says(0, "COMPLETED", "call", "pay", "opaque", `{"amount":5}`, "--key", "called")
	v.says(0, "refund", "approvals")
	v.says(0, "COMPLETED", "approve", asked, "--rationale", "it is a test of it")
	v.says(0, doubts[0], "in-doubt")
	v.says(0, "COMPLETED", "resolve", doubts[0], "--outcome", "ran", "--result", `{"ok":true}`, "--evidence", "a look at it")
	v.says(0, "FAILED", "abandon", doubts[1], "--reason", "nobody can tell")
	v.says(0, asked, "ls", "--all")
	v.says(0, "COMPLETED", "show", asked)
	v.says(0, "COMPLETED", "tail", asked)
	v.says(0, "ok", "verify")
	v.says(0, "ok", "verify", asked)
	v.says(0, "tool_effect", "export", asked)
	v.says(0, "", "recover")
	v.says(0, "", "rollback-plan", asked)
	v.says(1, "NOT_FOUND", "backup", filepath.Join(f.dir, "backup"))
	v.says(1, "NOT_FOUND", "seal")
	v.says(0, "in the checkpoint of", "receipt", asked, "--wait", "30s")
	v.says(0, "payments.example/tgad", "evidence", "checkpoint")
	file := filepath.Join(f.dir, "evidence")
	v.says(0, "", "evidence", "export", asked, "-o", file)
	v.says(0, "proved", "evidence", "verify", file, "--key", key)
	v.says(0, "nothing was taken back", "monitor", "--key", key, "--state", filepath.Join(f.dir, "monitor"), "--once", "--against", f.outside)
	v.says(1, "the store is not frozen", "unfreeze", "--accept-loss")
	v.says(0, "ok", "verify", "--store", f.url, "--config", f.config)
	v.says(2, "name one of them", "verify", file, "--store", f.url)

	shim(t, tgad, a, b)
	backToADirectory(t, tgad, v)
	retires(t, tgad, a, v)

	v.says(0, "erased 1 traces", "erase", "--trace", asked, "--reason", "the customer asked for it", "--yes")
	v.says(0, "the customer asked for it", "show", asked)
	v.says(0, "in the checkpoint of", "receipt", asked, "--wait", "30s")
	bare := filepath.Join(f.dir, "bare")
	v.says(0, "", "evidence", "export", asked, "-o", bare)
	v.says(0, "proved", "evidence", "verify", bare, "--key", key)
	v.says(0, "proved", "evidence", "verify", file, "--key", key)
	v.says(0, "nothing was taken back", "monitor", "--key", key, "--state", filepath.Join(f.dir, "monitor"), "--once", "--against", f.outside)
	v.says(0, "ok", "verify", "--store", f.url, "--config", f.config)

	// Signals and exit codes go through.
	if code := a.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.end(syscall.SIGKILL)
	out, err := tgad("serve", "--store", f.url, "--config", f.config, "--socket", strings.Repeat("x", 200)).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("VALIDATION_ERROR")) {
		t.Errorf("%v, %s", err, out)
	}
}

// answering is an MCP server in a few lines of shell, which counts its calls in a file.
const answering = `while read -r line; do
id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
case "$line" in
*'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}\n' "$id";;
*tools/list*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"charge","inputSchema":{}}]}}\n' "$id";;
*tools/call*) echo >> "$COUNT"; printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}\n' "$id";;
esac
done`

// shim makes one call of an MCP client by one daemon, and again by the other.
func shim(t *testing.T, tgad func(...string) *exec.Cmd, daemons ...*daemon) {
	t.Helper()
	count := filepath.Join(daemons[0].f.dir, "count")
	const in = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{},"_meta":{"dev.tgad/idempotencyKey":"by mcp"}}}
`
	for i, d := range daemons {
		cmd := tgad("mcp", "--socket", d.socket, "--server-id", "s", "--", "/bin/sh", "-c", answering)
		cmd.Env = append(cmd.Env, "COUNT="+count, "XDG_STATE_HOME="+filepath.Join(d.f.dir, "state"))
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		if err != nil || !bytes.Contains(out, []byte(`"text":"done"`)) || bytes.Contains(out, []byte(`"dev.tgad/replayed":true`)) != (i > 0) {
			t.Errorf("client %d: %v, %s", i, err, out)
		}
	}
	if raw, err := os.ReadFile(count); err != nil || len(raw) != 1 {
		t.Errorf("the tool was called %d times, %v", len(raw), err)
	}
}

// backToADirectory makes a store in a directory of what the daemon exports. It says the same of each trace, and
// nothing that was called, settled or given up is sent again.
func backToADirectory(t *testing.T, tgad func(...string) *exec.Cmd, v *verbs) {
	t.Helper()
	dir := t.TempDir()
	at, file, again := filepath.Join(dir, "store"), filepath.Join(dir, "all.ndjson"), filepath.Join(dir, "again.ndjson")
	v.says(0, "", "export", "-o", file)
	for _, args := range [][]string{{"import", file, "--data", at}, {"export", "--data", at, "-o", again}} {
		if out, err := tgad(args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v, %s", args, err, out)
		}
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.ReadFile(again); err != nil || !bytes.Equal(is, was) {
		t.Errorf("%v; of the directory %d bytes are exported, of the database %d", err, len(is), len(was))
	}
	db, err := engine.Open(at, engine.Options{LowWaterBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := db.Unfreeze(t.Context(), true, "a test"); err != nil {
		t.Fatal(err)
	}
	sent := 0
	tool := runtime.DispatcherFunc(func(context.Context, runtime.Call) (runtime.Reply, error) {
		sent++
		return runtime.Reply{Status: tga.StatusSuccess}, nil
	})
	rt, err := runtime.New(db, tool, runtime.AllowAll, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		server, tool, key, args string
		code                    tga.Code
	}{
		{"pay", "opaque", "called", `{"amount":5}`, ""}, {"remote", "pay", "d1", `{}`, ""}, {"remote", "pay", "d2", `{}`, tga.EffectInDoubt},
	} {
		res, err := rt.Call(t.Context(), runtime.Request{Server: c.server, Tool: c.tool, Key: c.key, Args: []byte(c.args)})
		if c.code != "" && tga.CodeOf(err) != c.code && res.ErrorCode != c.code || c.code == "" && (err != nil || !res.Replayed) {
			t.Errorf("%s: %+v, %v", c.key, res, err)
		}
	}
	if sent != 0 {
		t.Errorf("%d were sent again", sent)
	}
}

func waiting(t *testing.T, d *daemon) string {
	t.Helper()
	all, err := d.Approvals(context.Background())
	if err != nil || len(all) != 1 || all[0].Kind != wire.KindDecision {
		t.Fatalf("approvals: %v, %v", all, err)
	}
	return all[0].TraceID.String()
}

type verbs struct {
	t      *testing.T
	tgad   func(...string) *exec.Cmd
	socket string
}

// says runs a verb against the daemon, and looks for a text in what it prints.
func (v *verbs) says(code int, text string, args ...string) {
	v.t.Helper()
	cmd := v.tgad(append(args, "--socket", v.socket)...)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code || !bytes.Contains(out, []byte(text)) {
		v.t.Errorf("tgad %s: exit code %d, %v, without %q: %s", strings.Join(args, " "), got, err, text, out)
	}
}
