package assemble

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func build(t *testing.T, text string) *Tools {
	t.Helper()
	c, err := Parse("c.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tools, err := Build(c, Options{Store: t.TempDir(), Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	})
	return tools
}

// sees is a real MCP server with one tool that reports what reached it.
func sees(t *testing.T) (server *mcp.Server, url string) {
	server = mcp.NewServer(&mcp.Implementation{Name: "sees"}, nil)
	add := func(description string) {
		server.AddTool(&mcp.Tool{Name: "t", Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				seen, err := json.Marshal(map[string]any{"args": r.Params.Arguments, "meta": r.Params.Meta})
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(seen)}}}, err
			})
	}
	add("the first definition")
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(web.Close)
	return server, web.URL
}

// TestSchemaIsTheDefinitionAsItIs: the digest is that of the definition which the server lists now. A tool
// that the server no longer lists has none.
func TestSchemaIsTheDefinitionAsItIs(t *testing.T) {
	server, url := sees(t)
	tools := build(t, fmt.Sprintf("[[server]]\nid = \"s\"\ntype = \"mcp-url\"\nurl = %q\n[[server]]\nid = \"x\"\ntype = \"external\"\n", url))
	schema := tools.Options().Trust.Schema
	first, err := schema(t.Context(), "s", "t")
	if err != nil || first.IsZero() {
		t.Fatal(first, err)
	}
	if again, err := schema(t.Context(), "s", "t"); err != nil || again != first {
		t.Errorf("again %s %v, want %s", again, err, first)
	}
	server.AddTool(&mcp.Tool{Name: "t", Description: "another", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	tools.nodes["s"].mcp.asked = tools.nodes["s"].mcp.asked.Add(-listHolds) // makes the definition that old
	if changed, err := schema(t.Context(), "s", "t"); err != nil || changed == first {
		t.Errorf("another definition has the digest %s %v", changed, err)
	}
	server.RemoveTools("t")
	tools.nodes["s"].mcp.asked = tools.nodes["s"].mcp.asked.Add(-listHolds)
	if _, err := schema(t.Context(), "s", "t"); tga.CodeOf(err) != tga.ToolSchemaChanged {
		t.Errorf("a tool that is gone: %v", err)
	}
	if none, err := schema(t.Context(), "x", "t"); err != nil || !none.IsZero() {
		t.Errorf("a server without definitions: %s %v", none, err)
	}
}

// TestHungServerHoldsACallerToItsDeadline: while one caller waits for the definitions of a server that
// hangs, another caller waits no longer than its own deadline.
func TestHungServerHoldsACallerToItsDeadline(t *testing.T) {
	asked, over := make(chan struct{}, 8), make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-over
	}))
	defer web.Close()
	defer close(over)
	tools := build(t, fmt.Sprintf("[[server]]\nid = \"s\"\ntype = \"mcp-url\"\nurl = %q\n", web.URL))
	long, give := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := tools.schema(long, "s", "t")
		first <- err
	}()
	<-asked
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	second := make(chan error, 1)
	go func() {
		_, err := tools.schema(short, "s", "t")
		second <- err
	}()
	select {
	case err := <-second:
		if err == nil {
			t.Error("a server that hangs has answered")
		}
	case <-time.After(5 * time.Second):
		t.Error("the second caller waits for the first")
	}
	give()
	if err := <-first; err == nil {
		t.Error("a server that hangs has answered")
	}
}

// TestKeyReachesTheToolWhereItWantsIt asks the tools which key reached them.
func TestKeyReachesTheToolWhereItWantsIt(t *testing.T) {
	_, url := sees(t)
	var header http.Header
	var body []byte
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, body = r.Header.Clone(), nil
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			t.Error(err)
		}
		io.WriteString(w, "{}")
	}))
	defer web.Close()
	tools := build(t, fmt.Sprintf(`
[[server]]
id = "m"
type = "mcp-url"
url = %q
[[server]]
id = "h"
type = "http"
url = %q
[[tool]]
server = "m"
name = "t"
key = { argument = "/order/key", meta = "example.com/request-id" }
[[tool]]
server = "h"
name = "t"
key = { header = "X-Request-Id", argument = "/order/key" }
`, url, web.URL))
	call := runtime.Call{Server: "m", Tool: "t", Attempt: 1, Key: "order-1", Args: []byte(`{"amount":9007199254740992,"order":{}}`)}
	reply, err := tools.Dispatch(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`\"key\":\"order-1\"`, `\"amount\":9007199254740992`, `\"example.com/request-id\":\"order-1\"`, `\"dev.tgad/idempotencyKey\":\"order-1\"`} {
		if !strings.Contains(string(reply.Result), want) {
			t.Errorf("the tool saw %s, want %s in it", reply.Result, want)
		}
	}
	call.Server = "h"
	if _, err := tools.Dispatch(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if header.Get("X-Request-Id") != "order-1" || header.Get("Idempotency-Key") != "order-1" || string(body) != `{"amount":9007199254740992,"order":{"key":"order-1"}}` {
		t.Errorf("the server saw %v %s", header, body)
	}
	// The arguments have no room for the key: the call is refused before it is begun, and is not sent.
	header = nil
	for _, args := range []string{`{}`, `{"order":{"key":"another"}}`, `{"order":1}`} {
		call.Args = []byte(args)
		if _, err := tools.Prepare(t.Context(), call); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("prepare %s: %v", args, err)
		}
		if _, err := tools.Dispatch(t.Context(), call); !errors.Is(err, runtime.ErrNotSent) {
			t.Errorf("dispatch %s: %v", args, err)
		}
	}
	if header != nil {
		t.Error("a call was sent")
	}
}

// TestKeysAreTheFiles: the keys are those that the file has now. Without the file there are no keys.
func TestKeysAreTheFiles(t *testing.T) {
	dir := t.TempDir()
	c, err := Parse(filepath.Join(dir, "c.toml"), []byte("[capability]\nkey_file = \"keys\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := OpenKeys(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := OpenKeys(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := runtime.Grant{TraceID: id(1), PlanID: id(2), Server: "s", Tool: "t", ArgsDigest: tga.Sum([]byte("{}"))}
	before, err := ours.Mint(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Rotate(); err != nil {
		t.Fatal(err)
	}
	after, err := theirs.Mint(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if err := ours.Check(t.Context(), before, g); err != nil {
		t.Errorf("of the key that was rotated out: %v", err)
	}
	if err := ours.Check(t.Context(), after, g); err != nil {
		t.Errorf("of the key that another process made: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "keys")); err != nil {
		t.Fatal(err)
	}
	if err := ours.Check(t.Context(), after, g); tga.CodeOf(err) != tga.CapabilityInvalid {
		t.Errorf("without the file: %v", err)
	}
	if _, err := ours.Mint(t.Context(), g); tga.CodeOf(err) != tga.CapabilityInvalid {
		t.Errorf("without the file: %v", err)
	}
}

// TestKeyFileInTheStoreIsRefused: a backup of the store would copy a key file that is in it.
func TestKeyFileInTheStoreIsRefused(t *testing.T) {
	store := t.TempDir()
	c, err := Parse("c.toml", fmt.Appendf(nil, "[capability]\nkey_file = %q\n", filepath.Join(store, "keys")))
	if err != nil {
		t.Fatal(err)
	}
	if tools, err := Build(c, Options{Store: store, Logger: discard}); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("%v %v", tools, err)
	}
}

func id(n byte) tga.ID { return tga.ID{6: 0x70, 8: 0x80, 15: n} }
