package mcpfront

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

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/fronttest"
	"github.com/tgad/tgad/internal/mcpfront/toolset"
	"github.com/tgad/tgad/internal/serial"
)

// The npm packages that the tests run, with pinned versions.
var npmPackages = []string{
	"@modelcontextprotocol/server-everything@2026.8.31",
	"@modelcontextprotocol/server-filesystem@2026.8.31",
	"@modelcontextprotocol/server-memory@2026.8.31",
	"@modelcontextprotocol/sdk@1.32.2",
	"@modelcontextprotocol/inspector@2.12.0",
}

// envNPM names a directory in which the packages are installed already.
const envNPM = "TGAD_TEST_NPM"

var npm struct {
	sync.Once
	dir string
	why string
}

// npmDir installs the packages, once a run, for the tests with real servers and clients, which make
// accept runs.
func npmDir(t *testing.T) string {
	t.Helper()
	serial.Long(t)
	npm.Do(func() {
		if dir := os.Getenv(envNPM); dir != "" {
			npm.dir = dir
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
		t.Fatalf("the packages of npm that this test runs cannot be had: %s", npm.why)
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

// realServers returns the commands of real servers, for a directory that they may change.
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

// shimmed puts a command behind the shim, with a log of its own.
func shimmed(t *testing.T, command []string) (args []string, env []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad-mcp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return append([]string{os.Args[0]}, command...), []string{fronttest.EnvProcess + "=shim", fronttest.EnvDir + "=" + dir}
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
		line, err := fronttest.ReadWithin(k.out, 30*time.Second)
		if err != nil {
			k.t.Fatalf("%s %s: %v", method, params, err)
		}
		f := frames.NewFrame([]byte(line))
		if f.IsAnswer() && string(f.RawID) == fmt.Sprint(id) {
			return line
		}
		k.not = append(k.not, line)
		if f.IsRequest() {
			// roots, sampling and elicitation get the same answer, bare and behind the shim.
			fmt.Fprintf(k.in, `{"jsonrpc":"2.0","id":%s,"result":{"roots":[],"role":"assistant","model":"m","content":{"type":"text","text":"9007199254740993"},"action":"accept"}}`+"\n", f.RawID)
		}
	}
}

// volatile are the parts of real answers that differ from run to run.
var volatile = regexp.MustCompile(`\d{1,2}:\d{2}:\d{2} [AP]M|\d{4}-\d{2}-\d{2}T[\d:.]+Z|\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} \d{2} \d{4}[^"\\]*|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// TestRealServersAnswerTheSame: a recorded conversation with each server is the same byte for byte,
// bare and behind the shim.
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

// converse lists and uses everything that a server offers, and returns its answers.
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
	for _, tool := range toolset.Definitions([]byte(at2(tools, "/result"))) {
		for _, args := range realArguments(name, tool.Name, work) {
			ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"_meta":{"progressToken":"p%d"}}`, tool.Name, args, id))
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
	// Progress notifications belong to their call and come in order.
	for _, line := range k.not {
		if strings.Contains(line, "notifications/progress") {
			all = append(all, line)
		}
	}
	return all
}

// realArguments are the arguments of calls, by tool. A call without arguments is one that the tool refuses.
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

// TestGoSDKClient runs the unmodified official Go client, with the shim and without.
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

// difference shows two texts around their first difference.
func difference(bare, shim string) string {
	i := 0
	for i < len(bare) && i < len(shim) && bare[i] == shim[i] {
		i++
	}
	from := max(i-200, 0)
	return fmt.Sprintf("bare %.600s\nshim %.600s", bare[from:], shim[from:])
}
