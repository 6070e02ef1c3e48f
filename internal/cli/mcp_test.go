//go:build unix

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// scripted is a tool server in a line of shell: it answers each request in its turn.
const scripted = `while read -r line; do
id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9"a-z-]*\).*/\1/p')
case "$line" in
*'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}\n' "$id";;
*tools/list*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"charge","inputSchema":{},"annotations":{"readOnlyHint":true}}]}}\n' "$id";;
*tools/call*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}\n' "$id";;
esac
done`

// runMCP runs the verb mcp with a store in dir.
func runMCP(t *testing.T, dir, in string, args ...string) (string, error) {
	t.Helper()
	var out, errs bytes.Buffer
	socket := filepath.Join(dir, "none")
	c := MCP(&Streams{In: strings.NewReader(in), Out: &out, Err: &errs}, &socket)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String() + errs.String(), err
}

func TestMCPVerb(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-cli-mcp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("XDG_STATE_HOME", dir)
	t.Setenv("TGAD_DATA", "")
	t.Setenv("TGAD_SOCKET", "")
	server := []string{"--", "/bin/sh", "-c", scripted}
	in := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" +
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{},"_meta":{"dev.tgad/idempotencyKey":"k"}}}` + "\n"
	for i, want := range []string{`"text":"done"}]}}`, `"dev.tgad/replayed":true`} {
		got, err := runMCP(t, dir, in, append([]string{"--server-id", "s"}, server...)...)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("run %d: %v\n%s\nlacks %s", i, err, got, want)
		}
	}
	for _, c := range []struct {
		args  []string
		wants []string
	}{
		{append([]string{"inspect", "--server-id", "s"}, server...), []string{"charge", "park", "nothing is attested", "readOnlyHint=true", "new"}},
		{[]string{"config", "--", "npx", "-y", "@acme/files"}, []string{`"args": ["-y", "@acme/files"]`, `"args": ["mcp", "--", "npx", "-y", "@acme/files"]`, "[mcp_servers.files]"}},
	} {
		got, err := runMCP(t, dir, "", c.args...)
		for _, want := range c.wants {
			if err != nil || !strings.Contains(got, want) {
				t.Errorf("%v: %v\n%s\nlacks %s", c.args[0], err, got, want)
			}
		}
	}
	for _, args := range [][]string{nil, {"--url", "http://x/"}, {"--key", "charge=no-pointer", "--", "x"}, {"--tasks", "maybe", "--", "x"}, {"--url", "http://x/", "--", "x"}} {
		if _, err := runMCP(t, dir, "", args...); ExitCode(err) != ExitUsage {
			t.Errorf("%v: %v is no usage error", args, err)
		}
	}
}
