package mcpshim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The packages of npm that the tests run, pinned.
var npmPackages = []string{
	"@modelcontextprotocol/server-everything@2026.8.31",
	"@modelcontextprotocol/server-filesystem@2026.8.31",
	"@modelcontextprotocol/server-memory@2026.8.31",
	"@modelcontextprotocol/sdk@1.32.2",
	"@modelcontextprotocol/inspector@2.12.0",
}

// envNPM names a directory that has the packages already.
const envNPM = "TGAD_TEST_NPM"

var npm struct {
	sync.Once
	dir string
	why string
}

// npmDir installs the packages, once a run, and skips the test where that cannot be done.
func npmDir(t *testing.T) string {
	t.Helper()
	npm.Do(func() {
		if dir := os.Getenv(envNPM); dir != "" {
			npm.dir = dir
			return
		}
		if testing.Short() {
			npm.why = "-short"
			return
		}
		dir, err := os.MkdirTemp("", "tgad-npm-")
		if err != nil {
			npm.why = err.Error()
			return
		}
		if err := npmInstall(dir, npmPackages...); err != nil {
			npm.why = err.Error()
			_ = os.RemoveAll(dir)
			return
		}
		npm.dir = dir
	})
	if npm.dir == "" {
		t.Skipf("the packages of npm that this test runs cannot be had: %s", npm.why)
	}
	return npm.dir
}

func npmInstall(dir string, packages ...string) error {
	if _, err := exec.LookPath("npm"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	args := append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", filepath.Join(dir, "cache"), "--prefix", dir}, packages...)
	if out, err := exec.CommandContext(ctx, "npm", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w: %.500s", err, out)
	}
	return nil
}

// removeNPM removes what npmDir installed, at the end of the run.
func removeNPM() {
	if npm.dir != "" && os.Getenv(envNPM) == "" {
		_ = os.RemoveAll(npm.dir)
	}
}

// realServers are the commands, in a directory that they may change.
func realServers(dir, work string) map[string][]string {
	at := func(name string) string {
		return filepath.Join(dir, "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
	}
	return map[string][]string{
		"everything": {"node", at("server-everything"), "stdio"},
		"filesystem": {"node", at("server-filesystem"), work},
		"memory":     {"node", at("server-memory")},
	}
}

// shimmed is a command behind the shim, with a log of its own.
func shimmed(t *testing.T, command []string) (args []string, env []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad-mcp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return append([]string{os.Args[0]}, command...), []string{envProcess + "=shim", envDir + "=" + dir, envScope + "=real"}
}

// talk is a conversation with a server process: raw lines in, raw lines out.
type talk struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	not []string // notifications, and requests of the server's
}

func startTalk(t *testing.T, args, env []string) *talk {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Env = append(cmd.Env, "MEMORY_FILE_PATH="+filepath.Join(t.TempDir(), "memory.json"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := &talk{t: t, cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	t.Cleanup(func() {
		_ = in.Close()
		go func() { _, _ = io.Copy(io.Discard, out) }()
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-done:
		case <-time.After(15 * time.Second):
			t.Errorf("%v does not end", args)
			_ = cmd.Process.Kill()
		}
		if t.Failed() {
			t.Logf("stderr of %v:\n%.3000s", args, stderr.String())
		}
	})
	return k
}

func (k *talk) ask(id int, method, params string) string {
	k.t.Helper()
	if _, err := fmt.Fprintf(k.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
		k.t.Fatal(err)
	}
	for {
		line, err := readWithin(k.out, 30*time.Second)
		if err != nil {
			k.t.Fatalf("%s %s: %v", method, params, err)
		}
		f := newFrame([]byte(line))
		if f.isAnswer() && string(f.rawID) == fmt.Sprint(id) {
			return line
		}
		k.not = append(k.not, line)
		if f.isRequest() {
			// roots, sampling, elicitation: one answer for all, the same to both.
			fmt.Fprintf(k.in, `{"jsonrpc":"2.0","id":%s,"result":{"roots":[],"role":"assistant","model":"m","content":{"type":"text","text":"9007199254740993"},"action":"accept"}}`+"\n", f.rawID)
		}
	}
}

// volatile are the parts of real answers that differ from run to run.
var volatile = regexp.MustCompile(`\d{1,2}:\d{2}:\d{2} [AP]M|\d{4}-\d{2}-\d{2}T[\d:.]+Z|\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} \d{2} \d{4}[^"\\]*|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// TestRealServersAnswerTheSame: a recorded conversation with each server, bare and
// behind the shim, is the same byte for byte.
func TestRealServersAnswerTheSame(t *testing.T) {
	dir := npmDir(t)
	for name := range realServers(dir, "") {
		t.Run(name, func(t *testing.T) {
			var said [2][]string
			for i := range said {
				work := t.TempDir()
				if err := os.WriteFile(filepath.Join(work, "a.txt"), []byte("one\ntwo\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				command := realServers(dir, work)[name]
				var env []string
				if i == 1 {
					command, env = shimmed(t, command)
				}
				k := startTalk(t, command, env)
				said[i] = converse(k, name, work)
				for j, line := range said[i] {
					said[i][j] = volatile.ReplaceAllString(strings.ReplaceAll(line, work, "WORK"), "VOLATILE")
				}
			}
			if len(said[0]) != len(said[1]) {
				t.Fatalf("%d messages bare, %d behind the shim", len(said[0]), len(said[1]))
			}
			different := 0
			for j := range said[0] {
				if said[0][j] != said[1][j] {
					different++
					t.Errorf("message %d\nbare %.1500s\nshim %.1500s", j, said[0][j], said[1][j])
				}
			}
			t.Logf("%d messages, %d different", len(said[0]), different)
		})
	}
}

// converse lists and uses all that a server has, and returns its answers.
func converse(k *talk, name, work string) []string {
	id := 0
	var all []string
	ask := func(method, params string) string {
		id++
		line := k.ask(id, method, params)
		all = append(all, line)
		return line
	}
	ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}`)
	fmt.Fprintln(k.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	ask("ping", `{}`)
	tools := ask("tools/list", `{}`)
	for _, tool := range definitions([]byte(at2(tools, "/result"))) {
		for _, args := range realArguments(name, tool.name, work) {
			ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{"progressToken":"p%d"}}`, tool.name, args, id))
		}
	}
	var listed struct {
		Result struct {
			Resources []struct{ URI string }
			Prompts   []struct {
				Name      string
				Arguments []struct{ Name string }
			}
		}
	}
	for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
		if err := json.Unmarshal([]byte(ask(method, `{}`)), &listed); err != nil {
			k.t.Fatal(err)
		}
	}
	for i, r := range listed.Result.Resources {
		if i < 12 {
			ask("resources/read", fmt.Sprintf(`{"uri":%q}`, r.URI))
		}
	}
	for _, p := range listed.Result.Prompts {
		args := map[string]string{}
		for _, a := range p.Arguments {
			args[a.Name] = "1"
		}
		raw, _ := json.Marshal(args)
		ask("prompts/get", fmt.Sprintf(`{"name":%q,"arguments":%s}`, p.Name, raw))
	}
	ask("resources/subscribe", `{"uri":"demo://resource/static/document/features.md"}`)
	ask("logging/setLevel", `{"level":"debug"}`)
	ask("no/such", `{"n":9007199254740993}`)
	// Progress belongs to its call, and comes in its order.
	for _, line := range k.not {
		if strings.Contains(line, "notifications/progress") {
			all = append(all, line)
		}
	}
	return all
}

// realArguments are what a tool is called with; none at all is a call that it refuses.
func realArguments(server, tool, work string) []string {
	file := func(name string) string { return fmt.Sprintf("%q", filepath.Join(work, name)) }
	known := map[string][]string{
		"echo":                           {`{"message":"a\u0062c é 1.0"}`},
		"get-sum":                        {`{"a":1.0,"b":2}`, `{"a":"x"}`},
		"add":                            {`{"a":1.0,"b":2}`},
		"longRunningOperation":           {`{"duration":0.2,"steps":4}`},
		"trigger-long-running-operation": {`{"duration":0.2,"steps":4}`},
		"get-annotated-message":          {`{"messageType":"error","includeImage":true}`},
		"annotatedMessage":               {`{"messageType":"error","includeImage":true}`},
		"get-structured-content":         {`{"location":"New York"}`},
		"structuredContent":              {`{"location":"New York"}`},
		"get-resource-reference":         {`{"resourceType":"Text","resourceId":3}`},
		"get-resource-links":             {`{"count":3}`},
		"getResourceLinks":               {`{"count":3}`},
		"gzip-file-as-resource":          {`{"name":"x.gz","data":"data:text/plain,hello","outputType":"resource"}`},
		"simulate-research-query":        nil, // a task
		"trigger-url-elicitation":        nil, // waits for a browser
		"sampleLLM":                      {`{"prompt":"p","maxTokens":10}`},
		"trigger-sampling-request":       {`{"prompt":"p","maxTokens":10}`},
		"toggle-simulated-logging":       nil, // speaks on a timer
		"toggle-subscriber-updates":      nil,
		"get-env":                        nil, // shows how the process was started
		"printEnv":                       nil,

		"read_file":                 {`{"path":` + file("a.txt") + `}`},
		"read_text_file":            {`{"path":` + file("a.txt") + `,"head":1}`},
		"read_media_file":           {`{"path":` + file("a.txt") + `}`},
		"read_multiple_files":       {`{"paths":[` + file("a.txt") + `,` + file("none") + `]}`},
		"write_file":                {`{"path":` + file("b.txt") + `,"content":"é\n"}`},
		"edit_file":                 {`{"path":` + file("a.txt") + `,"edits":[{"oldText":"two","newText":"three"}]}`},
		"create_directory":          {`{"path":` + file("d") + `}`},
		"list_directory":            {`{"path":` + file("") + `}`},
		"list_directory_with_sizes": {`{"path":` + file("") + `}`},
		"directory_tree":            {`{"path":` + file("") + `}`},
		"move_file":                 {`{"source":` + file("b.txt") + `,"destination":` + file("c.txt") + `}`},
		"search_files":              {`{"path":` + file("") + `,"pattern":"*.txt"}`},
		"get_file_info":             nil, // holds times in a form of their own

		"create_entities":     {`{"entities":[{"name":"a","entityType":"t","observations":["o"]},{"name":"b","entityType":"t","observations":[]}]}`},
		"create_relations":    {`{"relations":[{"from":"a","to":"b","relationType":"r"}]}`},
		"add_observations":    {`{"observations":[{"entityName":"a","contents":["x","y"]}]}`},
		"delete_observations": {`{"deletions":[{"entityName":"a","observations":["x"]}]}`},
		"delete_relations":    {`{"relations":[{"from":"a","to":"b","relationType":"r"}]}`},
		"search_nodes":        {`{"query":"a"}`},
		"open_nodes":          {`{"names":["a"]}`},
		"delete_entities":     {`{"entityNames":["b"]}`},
	}
	if args, ok := known[tool]; ok {
		return args
	}
	return []string{`{}`}
}

// TestGoSDKClient: the official Go client, as it is, behind the shim and not.
func TestGoSDKClient(t *testing.T) {
	dir := npmDir(t)
	var said [2]string
	for i := range said {
		command := realServers(dir, t.TempDir())["everything"]
		var env []string
		if i == 1 {
			command, env = shimmed(t, command)
		}
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), env...)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		var progress []float64
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				progress = append(progress, r.Params.Progress)
			},
		})
		s, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []any
		tools, err := s.ListTools(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tools)
		call := func(name string, args map[string]any) {
			p := &mcp.CallToolParams{Name: name, Arguments: args}
			p.SetProgressToken("tok")
			res, err := s.CallTool(ctx, p)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all = append(all, res)
		}
		call("echo", map[string]any{"message": "hello"})
		call("get-tiny-image", map[string]any{})
		call("get-structured-content", map[string]any{"location": "Chicago"})
		call("trigger-long-running-operation", map[string]any{"duration": 0.1, "steps": 3})
		if len(progress) == 0 {
			t.Error("no progress")
		}
		prompts, err := s.ListPrompts(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, prompts, len(progress))
		if err := s.Close(); err != nil {
			t.Logf("close: %v", err) // this server has to be told twice, with the shim or without
		}
		raw, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		said[i] = volatile.ReplaceAllString(string(raw), "VOLATILE")
	}
	if said[0] != said[1] {
		t.Error(difference(said[0], said[1]))
	}
}

const tsClient = `
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "t", version: "1" }, { capabilities: {} });
const env = Object.fromEntries(Object.entries(process.env).filter(([, v]) => v !== undefined));
await client.connect(new StdioClientTransport({ command, args, env, stderr: "ignore" }));
const out = [];
let progress = 0;
out.push(client.getServerVersion(), client.getServerCapabilities());
const tools = await client.listTools();
out.push(tools);
const call = async (name, a) => out.push(await client.callTool({ name, arguments: a }, undefined, { onprogress: () => progress++ }));
await call("echo", { message: "hello" });
await call("get-sum", { a: 1, b: 2 });
await call("get-tiny-image", {});
await call("get-structured-content", { location: "Chicago" });
await call("trigger-long-running-operation", { duration: 0.1, steps: 3 });
await call("echo", { message: "hello" });
await call("echo", {});
const resources = await client.listResources();
out.push(resources, await client.listPrompts(), await client.readResource({ uri: resources.resources[0].uri }), progress > 0);
console.log(JSON.stringify(out));
await client.close();
`

// TestTypeScriptSDKClient: the official TypeScript client, as it is.
func TestTypeScriptSDKClient(t *testing.T) {
	dir := npmDir(t)
	script := filepath.Join(dir, "client.mjs")
	if err := os.WriteFile(script, []byte(tsClient), 0o600); err != nil {
		t.Fatal(err)
	}
	var said [2]string
	for i := range said {
		command := realServers(dir, t.TempDir())["everything"]
		var env []string
		if i == 1 {
			command, env = shimmed(t, command)
		}
		said[i] = volatile.ReplaceAllString(output(t, env, append([]string{"node", script}, command...)), "VOLATILE")
	}
	if said[0] != said[1] || !strings.Contains(said[0], "hello") {
		t.Error(difference(said[0], said[1]))
	}
}

// TestInspectorCLI: the official inspector, as a script would use it.
func TestInspectorCLI(t *testing.T) {
	dir := npmDir(t)
	inspector := filepath.Join(dir, "node_modules", ".bin", "mcp-inspector")
	for _, ask := range [][]string{
		{"--method", "tools/list"},
		{"--method", "resources/list"},
		{"--method", "prompts/list"},
		{"--method", "tools/call", "--tool-name", "get-sum", "--tool-arg", "a=1", "--tool-arg", "b=2"},
		{"--method", "tools/call", "--tool-name", "get-tiny-image"},
		{"--method", "tools/call", "--tool-name", "get-structured-content", "--tool-arg", "location=Chicago"},
	} {
		var said [2]string
		for i := range said {
			command := realServers(dir, t.TempDir())["everything"]
			args := []string{inspector, "--cli"}
			if i == 1 {
				var env []string
				command, env = shimmed(t, command)
				for _, e := range env {
					args = append(args, "-e", e)
				}
			}
			said[i] = volatile.ReplaceAllString(output(t, nil, append(append(args, command...), ask...)), "VOLATILE")
		}
		if said[0] != said[1] || len(said[0]) < 50 {
			t.Errorf("%v: %s", ask, difference(said[0], said[1]))
		}
	}
}

func output(t *testing.T, env, args []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%.3000s", args, err, stderr.String())
	}
	return string(out)
}

// difference shows two texts where they part.
func difference(bare, shim string) string {
	i := 0
	for i < len(bare) && i < len(shim) && bare[i] == shim[i] {
		i++
	}
	from := max(i-200, 0)
	return fmt.Sprintf("bare %.600s\nshim %.600s", bare[from:], shim[from:])
}
