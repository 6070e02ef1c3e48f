package config

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var discard = slog.New(slog.DiscardHandler)

// TestOnlyTrustedHintsSuggest asks a real MCP server for its hints: they count where the
// operator marked it trusted and wrote no row, and nowhere else.
func TestOnlyTrustedHintsSuggest(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "hints"}, nil)
	for name, hints := range map[string]*mcp.ToolAnnotations{
		"look": {ReadOnlyHint: true}, "put": {IdempotentHint: true}, "add": {}, "named": {ReadOnlyHint: true},
	} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Annotations: hints}, func(_ context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	defer web.Close()
	for _, trusted := range []bool{true, false} {
		text := "[[server]]\nid = \"s\"\ntype = \"mcp-url\"\nurl = \"" + web.URL + "\"\n"
		if trusted {
			text += "trusted = true\n"
		}
		c, err := Parse("", []byte(text+"[[tool]]\nserver = \"s\"\nname = \"named\"\n"))
		if err != nil {
			t.Fatal(err)
		}
		tools, err := c.Build(BuildOptions{Store: t.TempDir(), Logger: discard})
		if err != nil {
			t.Fatal(err)
		}
		if tools.Trusts() != trusted {
			t.Errorf("trusted %v: %v", trusted, tools.Trusts())
		}
		if err := tools.Suggest(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := map[string]runtime.Policy{
			"look":  {Class: tga.ClassRead, Licence: ledger.Licence{Kind: ledger.ReadOnly}},
			"put":   {Licence: ledger.Licence{Kind: ledger.DedupeArgs}},
			"add":   {},
			"named": {Class: tga.ClassWrite}, // the operator's row says what counts
		}
		for name, p := range want {
			if !trusted && name != "named" {
				p = runtime.Policy{}
			}
			if got := tools.Policy("s", name); got != p {
				t.Errorf("trusted %v: %s has %+v, want %+v", trusted, name, got, p)
			}
		}
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	}
}
