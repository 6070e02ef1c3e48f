package say

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/internal/daemon/embed"
	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/client"
)

// ownLog is a log with one call under way.
func ownLog(t *testing.T) (c *client.Client, trace string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tgad-own-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e, err := embed.Start(context.Background(), filepath.Join(dir, "store"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	c = client.New(e.Socket, client.Options{})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := c.Begin(t.Context(), runtime.BeginRequest{BeginID: "b", Request: runtime.Request{Server: "s", Tool: "charge", Args: []byte(`{"a":1}`), Key: "k"}})
	if err != nil {
		t.Fatal(err)
	}
	return c, b.Result.TraceID.String()
}

// TestOwnToolsWithoutAHandshake: each request names its revision, and is answered as that revision
// wants it.
func TestOwnToolsWithoutAHandshake(t *testing.T) {
	c, id := ownLog(t)
	const made = `"io.modelcontextprotocol/serverInfo":{"name":"tgad","version":"1"}`
	const bare = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	cached := []string{`"resultType":"complete"`, made, `"ttlMs":3600000`, `"cacheScope":"public"`}
	old := func(v string) string { return strings.Replace(modernMeta, "2026-07-28", v, 1) }
	cases := []struct {
		method, params string
		wants          []string
		lacks          string
	}{
		{"server/discover", `{"_meta":` + modernMeta + `}`, append(cached, `"supportedVersions":`+spoken(t), `"capabilities":{"tools":{}}`), ""},
		{"tools/list", `{"_meta":` + modernMeta + `}`, append(cached, `"name":"in_doubt"`), ""},
		{"tools/call", `{"name":"show","arguments":{"trace_id":"` + id + `"},"_meta":` + modernMeta + `}`, []string{`"resultType":"complete"`, made, `"structuredContent":{"trace_id":"` + id}, "ttlMs"},
		{"tools/call", `{"name":"show","arguments":{"trace_id":"no"},"_meta":` + modernMeta + `}`, []string{`"resultType":"complete"`, `"_meta":{` + made + `,"dev.tgad/code":"`, `"isError":true`}, ""},
		{"tools/call", `{"name":"charge","_meta":` + modernMeta + `}`, []string{`"error":{"code":-32602`, "there is no tool charge"}, ""},
		{"initialize", `{"protocolVersion":"2025-11-25","_meta":` + modernMeta + `}`, []string{`"error":{"code":-32601`}, ""},
		{"ping", `{"_meta":` + modernMeta + `}`, []string{`"error":{"code":-32601`}, ""},
		{"tools/list", `{"_meta":` + old("2027-01-01") + `}`, []string{`"error":{"code":-32022`, `"data":{"supported":` + spoken(t) + `,"requested":"2027-01-01"}`}, ""},
		{"tools/list", `{"_meta":` + bare + `}`, []string{`"error":{"code":-32602`}, ""},
		{"server/discover", `{}`, []string{`"error":{"code":-32602`}, ""},
		// A client of a revision with a handshake sees no members of the other revision.
		{"tools/list", `{}`, []string{`"name":"in_doubt"`}, "resultType"},
		{"tools/list", `{"_meta":` + old("2025-11-25") + `}`, []string{`"name":"in_doubt"`}, "resultType"},
		{"initialize", `{"protocolVersion":"2026-07-28"}`, []string{`"protocolVersion":"2025-11-25"`}, ""},
		{"ping", `{}`, []string{`"result":{}`}, ""},
	}
	var in strings.Builder
	for i, c := range cases {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", i, c.method, c.params)
	}
	fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":%s}}`+"\n", modernMeta)
	var out strings.Builder
	if err := Serve(t.Context(), c, strings.NewReader(in.String()), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(cases)+2 {
		t.Fatalf("%d messages, want %d", len(lines), len(cases)+2)
	}
	for i, c := range cases {
		has(t, lines[i], append(c.wants, fmt.Sprintf(`"id":%d,`, i))...)
		if c.lacks != "" && strings.Contains(lines[i], c.lacks) {
			t.Errorf("%s has %s", lines[i], c.lacks)
		}
		if f := frames.NewFrame([]byte(lines[i])); f.Bad != "" {
			t.Errorf("%s: %s", lines[i], f.Bad)
		}
	}
	has(t, lines[len(cases)], `"method":"notifications/subscriptions/acknowledged"`, `{"io.modelcontextprotocol/subscriptionId":"l"}`, `"notifications":{}`)
	end := []byte(lines[len(cases)+1])
	if got := mcpraw.ScalarText(mcpraw.At(end, "/result/_meta/io.modelcontextprotocol~1subscriptionId")); got != "l" || !strings.Contains(string(end), `"resultType":"complete"`) {
		t.Errorf("the end of a subscription: %s", end)
	}
}

// spoken is the list of the supported revisions, as JSON.
func spoken(t *testing.T) string {
	raw, err := json.Marshal(mcpraw.Revisions)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestOwnToolsForTheOfficialClient: the official client finds the tools in the newest revision, and
// in an older one if it asks for that.
func TestOwnToolsForTheOfficialClient(t *testing.T) {
	c, id := ownLog(t)
	for _, revision := range []string{"2026-07-28", "2025-06-18"} {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- Serve(context.Background(), c, inR, outW)
			_ = outW.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
		s, err := client.Connect(ctx, &mcp.IOTransport{Reader: io.NopCloser(bufio.NewReader(outR)), Writer: inW}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.InitializeResult(); got.ProtocolVersion != revision || got.ServerInfo == nil || got.ServerInfo.Name != "tgad" {
			t.Errorf("agreed on %+v", got)
		}
		listed, err := s.ListTools(ctx, nil)
		if err != nil || len(listed.Tools) != len(tools) {
			t.Errorf("tools %+v, %v", listed, err)
		}
		for name, args := range map[string]map[string]any{"list": nil, "in_doubt": nil, "show": {"trace_id": id}, "verify": {"trace_id": id}} {
			res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
			if err != nil || res.IsError || res.StructuredContent == nil {
				t.Errorf("%s: %+v, %v", name, res, err)
			}
		}
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "charge"}); err == nil || !strings.Contains(err.Error(), "there is no tool charge") {
			t.Errorf("a tool that there is not: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestOwnToolsLook: tgad's own tools answer from a log and change nothing.
func TestOwnToolsLook(t *testing.T) {
	dir, err := os.MkdirTemp("", "tgad-own-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e, err := embed.Start(context.Background(), filepath.Join(dir, "store"), nil, nil)
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
		`{"jsonrpc":"2.0","id":9,"method":"ping","Method":"x"}`,
		`{"jsonrpc"`, `[{"jsonrpc":"2.0","id":10,"method":"ping"}]`, ``,
	}, "\n")
	if err := Serve(t.Context(), c, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	wants := []string{`"protocolVersion":"2025-03-26"`, `"name":"in_doubt"`, id, `"structuredContent":{"trace_id":"` + id, `"ok":true`, `"traces":[`, "there is no tool charge", `-32601`, `-32600`,
		`"id":null,"error":{"code":-32700`, `"id":null,"error":{"code":-32600,"message":"the message is not understood: it is an array of messages"}`}
	if len(lines) != len(wants) {
		t.Fatalf("%d answers, want %d:\n%s", len(lines), len(wants), out.String())
	}
	for i, want := range wants {
		has(t, lines[i], want)
	}
}

const modernMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func has(t *testing.T, answer string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(answer, want) {
			t.Errorf("answer %.600s\nlacks %s", answer, want)
		}
	}
}

// TestRevisionsOfOwnTools: each supported revision gets its own form of answers; any other is refused.
func TestRevisionsOfOwnTools(t *testing.T) {
	for _, r := range []string{
		"", "1", "2024-11-05", "2025-03-25", "2025-03-26", "2025-03-27", "2025-06-17", "2025-06-18", "2025-06-19",
		"2025-11-24", "2025-11-25", "2025-11-26", "2026-07-27", "2026-07-28", "2026-07-29", "2027-01-01", "DRAFT-2026-v1",
	} {
		said, fault := ownResult(t.Context(), nil, "initialize", []byte(`{"protocolVersion":"`+r+`"}`), false)
		want := "2025-11-25"
		if slices.Contains([]string{"2025-03-26", "2025-06-18"}, r) {
			want = r
		}
		if got := mcpraw.ScalarText(mcpraw.At(said, "/protocolVersion")); fault != nil || got != want {
			t.Errorf("initialize with %q: %v, %s, want %s", r, fault, said, want)
		}
		spoken := []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}
		modern, fault := ownRevision("tools/list", []byte(`{"_meta":`+strings.Replace(modernMeta, "2026-07-28", r, 1)+`}`))
		if want := r == "2026-07-28"; modern != want || (fault == nil) != slices.Contains(spoken, r) || fault != nil && fault.code != -32022 {
			t.Errorf("a request of %q: %v, %v", r, modern, fault)
		}
	}
}
