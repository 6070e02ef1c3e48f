package mcpfront

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Tests with unmodified clients: they see the same with the shim as without it.

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
		const steps = 3
		progress := make(chan float64, 2*steps)
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				progress <- r.Params.Progress
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
		call("trigger-long-running-operation", map[string]any{"duration": 0.1, "steps": steps})
		var reached []float64
		for range steps {
			select { // the client delivers them in another goroutine, perhaps after the answer
			case at := <-progress:
				reached = append(reached, at)
			case <-ctx.Done():
				t.Fatal("a notification of progress is missing")
			}
		}
		prompts, err := s.ListPrompts(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(reached)
		all = append(all, prompts, reached)
		if err := s.Close(); err != nil {
			t.Logf("close: %v", err) // this server has to be told twice, with the shim or without
		}
		if n := len(progress); n != 0 {
			t.Errorf("%d notifications of progress over %d", n, steps)
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

// TestTypeScriptSDKClient runs the unmodified official TypeScript client.
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
