package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstalledServerIsGoverned does what a client does with its file after tgad mcp install: it starts
// the command with the environment, and makes a call. The call is in the log, under the server's name.
func TestInstalledServerIsGoverned(t *testing.T) {
	home := t.TempDir()
	file, store, journal := filepath.Join(home, ".cursor", "mcp.json"), filepath.Join(home, "store"), filepath.Join(home, "charges")
	type server struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}
	type client struct {
		Servers map[string]server `json:"mcpServers"`
	}
	raw, err := json.Marshal(client{map[string]server{"till": {"sh", []string{"-c", `exec tgad-lab payments --journal "$TILL"`}, map[string]string{"TILL": journal}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(input string, env []string, command string, args ...string) string {
		t.Helper()
		cmd := exec.Command(command, args...)
		cmd.Env = append(append(os.Environ(), "HOME="+home, "TGAD_SOCKET="), env...)
		cmd.Stdin, cmd.Stderr = strings.NewReader(input), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", command, args, err, out)
		}
		return string(out)
	}
	run("", nil, "tgad", "mcp", "install", "cursor", "--data", store)
	var c client
	if raw, err = os.ReadFile(file); err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	till := c.Servers["till"]
	if !filepath.IsAbs(till.Command) || till.Env["TILL"] != journal {
		t.Fatalf("%+v", till)
	}
	var env []string
	for name, value := range till.Env {
		env = append(env, name+"="+value)
	}
	input := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"account":"acme","amount":7}}}
`
	if out := run(input, env, till.Command, till.Args...); !strings.Contains(out, `"id":1`) {
		t.Errorf("no answer in\n%s", out)
	}
	charges, err := os.ReadFile(journal)
	if err != nil || strings.Count(string(charges), `"op":"charge"`) != 1 {
		t.Errorf("the tool server has charged %q, %v", charges, err)
	}
	if out := run("", nil, "tgad", "ls", "--all", "--data", store); !strings.Contains(out, "till") || !strings.Contains(out, "charge") || strings.Count(out, "COMPLETED") != 1 {
		t.Errorf("the log has\n%s", out)
	}
}
