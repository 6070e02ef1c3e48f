package mcpshim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
	"github.com/tgad/tgad/schemas/tga"
)

// TestShimsShareAStore: the first has the daemon, the others use it, and when it goes
// one of them takes over.
func TestShimsShareAStore(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-embed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx := context.Background()
	var all []*Embedded
	for range 3 {
		e, err := Embed(ctx, filepath.Join(dir, "store"), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if all[0].Socket != all[2].Socket {
		t.Fatalf("sockets %s, %s", all[0].Socket, all[2].Socket)
	}
	// The first one's way is a short one until it goes, the last one's only then.
	ways := []*client.Client{all[0].Client(client.Options{}), all[2].Client(client.Options{}), client.New(all[0].Socket, client.Options{})}
	begin := func(c *client.Client, key string) runtime.Begun {
		t.Helper()
		var b runtime.Begun
		eventually(t, "an answer", func() bool {
			var err error
			b, err = c.Begin(ctx, runtime.BeginRequest{BeginID: "b" + key, Request: runtime.Request{Server: "s", Tool: "t", Args: []byte("{}"), Key: key}})
			if err != nil && !errors.Is(err, tga.StoreUnavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
		return b
	}
	first := begin(ways[0], "1")
	if first.Standing != runtime.BeginSend {
		t.Fatalf("standing %s, %v", first.Standing, first.Cause)
	}
	for _, e := range all {
		// Whoever is left, the permit of the first daemon is good, and the same begin is it.
		for i, c := range ways {
			if again := begin(c, "1"); again.Permit != first.Permit || again.Attempt != 1 {
				t.Errorf("way %d: again %+v", i, again)
			}
		}
		e.Close()
	}
	for _, c := range ways {
		c.Close()
	}
}

func TestLongPathsHaveASocketElsewhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	t.Setenv("XDG_RUNTIME_DIR", "/run/x")
	socket, err := socketOf(dir)
	if err != nil || !strings.HasPrefix(socket, "/run/x/tgad-mcp/") || len(socket) > 60 {
		t.Errorf("socket %s, %v", socket, err)
	}
	if socket, err = socketOf("/tmp"); err != nil || socket != "/tmp/run/tgad.sock" {
		t.Errorf("socket %s, %v", socket, err)
	}
}

func TestServerIDs(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-memory@2026.8.31": "server-memory",
		"uvx mcp-server-git --repository /x":                   "mcp-server-git",
		"node /opt/acme-files/dist/index.js stdio":             "acme-files",
		"npx -y @acme/server":                                  "acme",
		"./server":                                             "server",
		"python3 -m my_server":                                 "my_server",
		"docker run -i --rm ghcr.io/acme/tools":                "tools",
		"/usr/bin/env X=1 ./bad name":                          "bad",
		"npx":                                                  "server",
		"./größe":                                              "gr__e",
	} {
		if got := ServerID(strings.Fields(command)); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// TestServerIDsOfURLs: two addresses have two ids, nothing secret is in one, and each is a name
// that the log takes.
func TestServerIDsOfURLs(t *testing.T) {
	for address, want := range map[string]string{
		"https://mcp.example.com/mcp":                  "mcp.example.com/mcp",
		"https://MCP.example.com/":                     "mcp.example.com",
		"https://mcp.example.com":                      "mcp.example.com",
		"http://127.0.0.1:8080/a//b/../c":              "127.0.0.1_8080/a/c",
		"https://ann:secret@mcp.example.com/x?key=s#f": "mcp.example.com/x",
		"http://[::1]:80/größe":                        "___1__80/gr__e",
		"https://" + strings.Repeat("a", 128):          strings.Repeat("a", 128),
		"nonsense":                                     "",
		"http://":                                      "",
		"https://../..":                                "",
		"://":                                          "",
	} {
		if got := ServerIDOfURL(address); got != want || want != "" && !tga.CleanName(got) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	long := "https://a/" + strings.Repeat("b", 128)
	if one, two := ServerIDOfURL(long+"1"), ServerIDOfURL(long+"2"); one == two || len(one) != 128 || !tga.CleanName(one) {
		t.Errorf("%q and %q", one, two)
	}
}

// TestOwnToolsLook: the tools of tgad mcp serve answer from a log, and change nothing.
func TestOwnToolsLook(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-own-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e, err := Embed(context.Background(), filepath.Join(dir, "store"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c := client.New(e.Socket, client.Options{})
	defer c.Close()
	b, err := c.Begin(t.Context(), runtime.BeginRequest{BeginID: "b", Request: runtime.Request{Server: "s", Tool: "charge", Args: []byte(`{"a":1}`), Key: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	id := b.Result.TraceID.String()
	var out strings.Builder
	in := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"show","arguments":{"trace_id":"` + id + `"}}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"verify","arguments":{"trace_id":"` + id + `"}}}`,
		`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"in_doubt"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"charge"}}`,
		`{"jsonrpc":"2.0","id":8,"method":"no/such"}`,
		`{"jsonrpc":"2.0","id":9,"method":"ping","Method":"x"}`, ``,
	}, "\n")
	if err := ServeOwn(t.Context(), c, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	wants := []string{`"protocolVersion":"2025-03-26"`, `"name":"in_doubt"`, id, `"structuredContent":{"trace_id":"` + id, `"ok":true`, `"traces":[`, "there is no tool charge", `-32601`, `-32600`}
	if len(lines) != len(wants) {
		t.Fatalf("%d answers, want %d:\n%s", len(lines), len(wants), out.String())
	}
	for i, want := range wants {
		has(t, lines[i], want)
	}
}
