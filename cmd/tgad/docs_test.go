package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/workstate"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/runtime/workstate/hostdir"
	"github.com/tgad/tgad/schemas/tga"
)

// documented are the pages whose command lines are run.
var documented = []string{"README.md", "docs/OPERATIONS.md", "docs/MCP.md", "docs/STATE.md", "docs/EVIDENCE.md", "docs/SCALE.md", "docs/TELEMETRY.md", "docs/UI.md", "docs/CONFIG.md", "docs/INSTALL.md", "docs/TORTURE.md", "docs/COMPARE.md", "docs/WHY.md", "docs/COOKBOOK.md", "docs/TUTORIAL.md", "docs/SESSION.md"}

var (
	fences   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```")
	spans    = regexp.MustCompile("`([^`]+)`")
	commands = regexp.MustCompile(`^(tgad|bin/tgad|make|go|curl|npx) +[^ ]`)
	comment  = regexp.MustCompile(` {2,}.*$`) // a column beside the command: what it is for
)

// commandLines returns the command lines of a page: those in its code blocks without a language,
// and those in inline code. A verb alone, such as `tgad ls`, counts too.
func commandLines(t *testing.T, page string) []string {
	t.Helper()
	raw, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, block := range fences.FindAllStringSubmatch(string(raw), -1) {
		if block[1] != "" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", "")) {
			if line = strings.TrimSpace(line); commands.MatchString(line) {
				if !strings.HasPrefix(line, "curl") {
					line = comment.ReplaceAllString(line, "")
				}
				all = append(all, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	for _, span := range spans.FindAllStringSubmatch(fences.ReplaceAllString(string(raw), ""), -1) {
		if line := strings.Join(strings.Fields(span[1]), " "); commands.MatchString(line) {
			all = append(all, line)
		}
	}
	return all
}

// TestEveryDocumentedCommandRuns runs the command lines of the pages in documented as they are
// printed, except for the parts that the reader must fill in. A line that is neither in the
// list below nor in ranElsewhere fails the test; so does a row whose line is gone.
func TestEveryDocumentedCommandRuns(t *testing.T) {
	w := newDocsWorld(t)
	rows := []struct {
		line   string
		with   []string // what the reader fills in, and with what
		stdout string   // a part of the output
	}{
		{line: "make run"},
		{line: `curl --unix-socket /tmp/tgad-run/tgad.sock -H 'Tgad-Client: curl' http://tgad/v1/tool-calls -d '{"tool_server":"payments","tool_name":"charge","idempotency_key":"order-1","args":{"account":"acme","amount":100}}'`, stdout: `"state":"COMPLETED"`},
		{line: "curl -sS --unix-socket /run/tgad/tgad.sock -o cpu.pprof 'http://tgad/debug/pprof/profile?seconds=10'", with: []string{"/run/tgad/tgad.sock", w.p.socket, "=10", "=1"}},
		{line: "bin/tgad --socket /tmp/tgad-run/tgad.sock ls --all", stdout: "order-1"},
		{line: "tgad --help", stdout: "Exit codes"},
		{line: "tgad serve --data /var/lib/tgad --socket /run/tgad/tgad.sock --config /etc/tgad.toml"},
		{line: "tgad ls", stdout: "remote"},
		{line: "tgad ls --all --tool charge --state FAILED"},
		{line: "tgad ls --all --newest --since 24h --limit 20", stdout: "remote"},
		{line: "tgad tail --format ocsf", stdout: `"class_uid":6003`},
		{line: "tgad in-doubt", stdout: "remote"},
		{line: "tgad approvals"},
		{line: "tgad completion bash", stdout: "bash completion"},
		{line: "tgad show TRACE", with: []string{"TRACE", w.doubt[0]}, stdout: "EXECUTING"},
		{line: "tgad show TRACE --svg", with: []string{"TRACE", w.doubt[0]}, stdout: "<svg"},
		{line: "tgad report TRACE -o call.html", with: []string{"TRACE", w.doubt[0]}},
		{line: "tgad resolve TRACE --outcome ran --result @answer.json --evidence 'statement line 7'", with: []string{"TRACE", w.doubt[0]}, stdout: "COMPLETED"},
		{line: "tgad resolve TRACE --effect effect.json --evidence @statement.txt", with: []string{"TRACE", w.doubt[1]}, stdout: "COMPLETED"},
		{line: "tgad abandon TRACE --reason 'the provider cannot tell'", with: []string{"TRACE", w.doubt[2]}, stdout: "FAILED"},
		{line: "tgad top --once", stdout: "calls sent"},
		{line: "tgad rollback-plan TRACE...", with: []string{"TRACE...", w.doubt[0] + " " + w.doubt[1]}},
		{line: "tgad verify", stdout: "ok"},
		{line: "tgad doctor"},
		{line: "tgad export", stdout: "tool_effect"},
		{line: "tgad verify FILE", with: []string{"FILE", "export.ndjson"}, stdout: "ok: export"},
		{line: "tgad seal", stdout: "sealed"},
		{line: "tgad backup --to DIR", with: []string{"DIR", "copy"}},
		{line: "tgad verify DIR", with: []string{"DIR", "copy"}, stdout: "ok: store"},
		{line: "tgad restore BACKUP --data DIR", with: []string{"BACKUP", "copy", "DIR", "restored"}, stdout: "frozen"},
		{line: "tgad restore DIR --data NEW", with: []string{"DIR", "copy", "NEW", "again"}, stdout: "frozen"},
		{line: "tgad unfreeze --accept-loss"},
		{line: "tgad mcp -- npx -y @some/server", stdout: "payments"},
		{line: "tgad mcp --workspace DIR -- COMMAND", with: []string{"DIR", "desk", "COMMAND", "tgad-lab payments --journal desk/charges"}, stdout: `"charge"`},
		{line: "tgad workspace ls DIR", with: []string{"DIR", "desk"}, stdout: "charge"},
		{line: "tgad workspace restore DIR CALL --plan", with: []string{"DIR", "desk", "CALL", "1"}, stdout: " charges\n"},
		{line: "tgad workspace restore DIR CALL", with: []string{"DIR", "desk", "CALL", "1"}, stdout: "restored"},
		{line: "tgad workspace diff DIR CALL", with: []string{"DIR", "desk", "CALL", "1"}, stdout: "charges"},
		{line: "tgad state ls", stdout: w.state},
		{line: "tgad state show STATE", with: []string{"STATE", w.state}, stdout: w.call},
		{line: "tgad state show STATE CALL", with: []string{"STATE", w.state, "CALL", w.call}, stdout: "hostdir.Dir"},
		{line: "tgad state show STATE CALL --snapshot before", with: []string{"STATE", w.state, "CALL", w.call}, stdout: `"snapshot_id"`},
		{line: "tgad state diff STATE CALL --files", with: []string{"STATE", w.state, "CALL", w.call}, stdout: "M file"},
		{line: "tgad state rollback STATE CALL --plan", with: []string{"STATE", w.state, "CALL", w.call}, stdout: "back to before"},
		{line: "tgad state fork STATE CALL --at directory=/srv/second", with: []string{"STATE", w.state, "CALL", w.call, "/srv", w.p.dir}, stdout: "fork: " + w.state + "/1"},
		{line: "tgad state rollback STATE CALL", with: []string{"STATE", w.state, "CALL", w.call}, stdout: "rolled back"},
		{line: "tgad torture --store dir --calls 6", stdout: "tgad, store in a directory  plain  6"},
		{line: "tgad torture --store 'cmd:PROGRAM' --calls 2", with: []string{"PROGRAM", "tgad-lab adapter dir"}, stdout: "tgad, store in a directory  plain  2"},
		{line: "tgad torture compare --calls 2", stdout: "retry loop that writes a file  keyed  2"},
		{line: "tgad torture speed --slice 100ms --rounds 1", stdout: "outbox in SQLite            64"},
		{line: "tgad mcp config -- COMMAND", with: []string{"COMMAND", "npx -y @some/server"}, stdout: "npx"},
		{line: "tgad mcp inspect -- COMMAND", with: []string{"COMMAND", "npx -y @some/server"}, stdout: "charge"},
	}
	listed := map[string]bool{}
	for line := range ranElsewhere {
		listed[line] = false
	}
	for _, r := range rows {
		listed[r.line] = false
	}
	for _, page := range documented {
		for _, line := range commandLines(t, page) {
			if _, ok := listed[line]; !ok {
				t.Errorf("%s has the command line\n\t%s\nthat no row here runs", page, line)
			}
			listed[line] = true
		}
	}
	for line, found := range listed {
		if !found {
			t.Errorf("no page has the command line\n\t%s\nany more", line)
		}
	}
	for line, where := range ranElsewhere {
		w.elsewhere(line, where)
	}
	for _, r := range rows {
		w.do(r.line, r.with, r.stdout)
	}
}

// docsWorld is a directory that stands for /, with a daemon that has calls in doubt.
type docsWorld struct {
	t     *testing.T
	p     *process
	bin   string
	doubt []string // traces
	agent string   // a store with a working state that no process has
	state string
	call  string // a boundary of the state
}

// newDocsWorld has a store on a disk: tgad doctor says so where it is in memory. TGAD_DISK is a directory
// on one, where temporary files are in memory.
func newDocsWorld(t *testing.T) *docsWorld {
	p := newProcessIn(t, os.Getenv("TGAD_DISK"))
	w := &docsWorld{t: t, p: p, bin: filepath.Join(p.dir, "bin")}
	tgad, err := exec.LookPath("tgad")
	if err != nil {
		t.Fatal(err)
	}
	w.write("tgad.toml", testConfig(p.journal)+"\n[[server]]\nid = \"remote\"\ntype = \"external\"\n")
	w.write("answer.json", `{"paid":true}`)
	w.write("effect.json", `{"status":"SUCCESS","result":{"paid":true}}`)
	w.write("statement.txt", "statement line 8")
	for _, dir := range []string{w.bin, filepath.Join(p.dir, "demo"), filepath.Join(p.dir, "shim"), filepath.Join(p.dir, "desk")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(tgad, filepath.Join(w.bin, "tgad")); err != nil {
		t.Fatal(err)
	}
	k := &keptState{t, filepath.Join(p.dir, "agent"), "01936a8b-4c2d-7000-8000-0000000000b0"}
	k.write(k.at("work/file"), "0")
	k.use(k.at("work"), nil, func(s *workstate.State, _ *hostdir.Dir) {
		k.edit(s, k.at("work/file"), "1")
		w.call = s.List()[0].ID
	})
	w.agent, w.state = k.at("data"), k.id
	// The package that the pages install is the payments server.
	w.write("bin/npx", "#!/bin/sh\nexec tgad-lab payments --journal "+p.journal+".npx\n")
	p.start()
	for range 3 {
		ctx := context.Background()
		begun, err := p.client.Begin(ctx, runtime.BeginRequest{
			Request: runtime.Request{Server: "remote", Tool: "pay", Key: uuid.NewString(), Args: []byte(`{"n":1}`)}, BeginID: uuid.NewString(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.client.GiveUp(ctx, begun.Result.TraceID, begun.Permit, "", 0); err != nil && !errors.Is(err, tga.EffectInDoubt) {
			t.Fatal(err)
		}
		w.doubt = append(w.doubt, begun.Result.TraceID.String())
	}
	return w
}

func (w *docsWorld) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.p.dir, name), []byte(text), 0o700); err != nil {
		w.t.Fatal(err)
	}
}

func (w *docsWorld) env() []string {
	return append(os.Environ(), "PATH="+w.bin+":"+os.Getenv("PATH"), "TGAD_SOCKET="+w.p.socket, "TGAD_DATA="+w.p.data)
}

// elsewhere checks what is said of a line that is not run here.
func (w *docsWorld) elsewhere(line, where string) {
	w.t.Helper()
	words := strings.Fields(line)
	switch {
	case words[0] == "make":
		if out, err := exec.Command("make", "-n", "-C", "../..", words[1]).CombinedOutput(); err != nil {
			w.t.Errorf("%s: %v\n%s", line, err, out)
		}
	case strings.HasSuffix(where, ".txtar"):
		raw, err := os.ReadFile("testdata/script/" + where)
		if err != nil {
			w.t.Fatal(err)
		}
		verb := words[0]
		for _, word := range words[1:] {
			if strings.ToLower(word) != word || strings.HasPrefix(word, "-") {
				break
			}
			verb += " " + word
		}
		if !strings.Contains(string(raw), verb) {
			w.t.Errorf("%s is said to be run by %s, which has no %q", line, where, verb)
		}
		w.parses(line)
	case words[0] == "tgad":
		w.parses(line)
	}
}

// parses checks that a line names a verb that there is, and flags that it has.
func (w *docsWorld) parses(line string) {
	w.t.Helper()
	a := &app{Streams: cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}
	verb, rest, err := a.command().Find(strings.Fields(line)[1:])
	if err == nil {
		err = verb.ParseFlags(slices.DeleteFunc(rest, func(s string) bool { return s == "127.0.0.1:PORT" }))
	}
	if err != nil && !strings.HasSuffix(err.Error(), "needs an argument: --listen") {
		w.t.Errorf("%s: %v", line, err)
	}
}

func (w *docsWorld) do(line string, with []string, want string) {
	w.t.Helper()
	text := line
	for i := 0; i+1 < len(with); i += 2 {
		text = strings.ReplaceAll(text, with[i], with[i+1])
	}
	demo := filepath.Join(w.p.dir, "demo", "s")
	input := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n"
	switch line {
	case "make run":
		// GO=true: the command is built already, as this test.
		w.background(demo, "make", "-C", "../..", "run", "GO=true", "BIN="+w.bin, "DATA="+filepath.Join(w.p.dir, "demo", "data"), "SOCKET="+demo)
		return
	case "tgad serve --data /var/lib/tgad --socket /run/tgad/tgad.sock --config /etc/tgad.toml":
		at := filepath.Join(w.p.dir, "run2", "s")
		text = strings.NewReplacer("/var/lib/tgad", w.p.dir+"/served", "/run/tgad/tgad.sock", at, "/etc/tgad.toml", "../../examples/demo.toml").Replace(text)
		w.background(at, "sh", "-c", "exec "+text)
		return
	case "tgad export":
		text += " | tee export.ndjson"
	case "tgad unfreeze --accept-loss":
		at := filepath.Join(w.p.dir, "run3", "s")
		w.background(at, "tgad", "serve", "--socket", at, "--data", filepath.Join(w.p.dir, "restored"))
		text = "TGAD_SOCKET=" + at + " " + text
	case "tgad mcp -- npx -y @some/server":
		text = "TGAD_DATA=" + filepath.Join(w.p.dir, "shim", "data") + " " + text
	case "tgad mcp --workspace DIR -- COMMAND":
		text = "TGAD_SOCKET= TGAD_DATA=" + filepath.Join(w.p.dir, "shim", "own") + " " + text
		input += `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"charge","arguments":{"account":"acme","amount":1}}}` + "\n"
	case "tgad workspace restore DIR CALL", "tgad state rollback STATE CALL":
		input = "y\n"
	}
	if strings.HasPrefix(line, "tgad state ") {
		text = "TGAD_SOCKET= TGAD_DATA=" + w.agent + " " + text
	}
	text = strings.NewReplacer("/tmp/tgad-run/tgad.sock", demo, "bin/tgad", "tgad").Replace(text)
	cmd := exec.Command("sh", "-c", text)
	cmd.Dir, cmd.Env = w.p.dir, w.env()
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		w.t.Errorf("%s\nrun as %s: %v, want %q in\n%s", line, text, err, want, out)
	}
}

// background starts a daemon, waits until it answers at socket, and stops it with the test.
func (w *docsWorld) background(socket string, args ...string) {
	w.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = w.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
			w.t.Error(err)
		}
		_ = cmd.Wait() // make says that it was ended
	})
	c := client.New(socket, client.Options{Name: "test"})
	defer c.Close()
	if err := waitFor(func() error { return c.Healthy(context.Background()) }); err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
}
