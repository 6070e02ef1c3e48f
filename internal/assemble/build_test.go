package assemble

import (
	"context"
	"errors"
	"fmt"
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

// TestHintsThatAnExecutorPassesOn: hints that an executor passes on count for an external server that the
// file trusts, and for a server that the file does not list if it allows that. They do not count beside a
// row, nor for a server that the daemon calls itself.
func TestHintsThatAnExecutorPassesOn(t *testing.T) {
	const file = `%s
[[server]]
id = "trusted"
type = "external"
trusted = true
[[server]]
id = "plain"
type = "external"
[[server]]
id = "ours"
type = "http"
url = "http://127.0.0.1:1/"
[[tool]]
server = "trusted"
name = "named"
`
	read := runtime.Policy{Class: tga.ClassRead, Licence: ledger.Licence{Kind: ledger.ReadOnly}}
	for _, unlisted := range []bool{false, true} {
		c, err := Parse("", fmt.Appendf(nil, file, fmt.Sprintf("trust_hints = %t", unlisted)))
		if err != nil {
			t.Fatal(err)
		}
		tools, err := Build(c, Options{Store: t.TempDir(), Logger: discard})
		if err != nil {
			t.Fatal(err)
		}
		for _, server := range []string{"trusted", "plain", "ours", "unlisted"} {
			for _, tool := range []string{"look", "named", "no/../name"} {
				for hint, p := range map[string]runtime.Policy{
					"": {}, runtime.HintReadOnly: read, runtime.HintIdempotent: {Licence: ledger.Licence{Kind: ledger.DedupeArgs}},
				} {
					if err := tools.Hint(server, tool, hint); err != nil {
						t.Fatal(err)
					}
					want := runtime.Policy{}
					switch {
					case server == "trusted" && tool == "named":
						want.Class = tga.ClassWrite
					case tool != "no/../name" && (server == "trusted" || server == "unlisted" && unlisted):
						want = p
					}
					if got := tools.Policy(server, tool); got != want {
						t.Errorf("unlisted %t, %s/%s, hint %q: %+v, want %+v", unlisted, server, tool, hint, got, want)
					}
				}
				if err := tools.Hint(server, tool, ""); err != nil || server != "trusted" && tools.Policy(server, tool) != (runtime.Policy{}) {
					t.Errorf("%s/%s: a call without a hint leaves the earlier one, %v", server, tool, err)
				}
			}
		}
		if err := tools.Hint("trusted", "look", "harmless"); !errors.Is(err, tga.ValidationError) {
			t.Errorf("a hint that is none: %v", err)
		}
		for i := range maxHinted + 1 {
			if err := tools.Hint("trusted", fmt.Sprintf("t%d", i), runtime.HintReadOnly); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range map[int]string{maxHinted - 1: tga.ClassRead, maxHinted: ""} {
			if got := tools.Policy("trusted", fmt.Sprintf("t%d", i)).Class; got != want {
				t.Errorf("tool %d has class %q, want %q", i, got, want)
			}
		}
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOnlyTrustedHintsSuggest asks a real MCP server for its hints. They count only if the operator trusts
// the server's hints and wrote no row for the tool.
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
		tools, err := Build(c, Options{Store: t.TempDir(), Logger: discard})
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

// TestWithdrawnHintCountsNoMore: a reload inherits the hints of a trusted server until the server is asked
// again. From then on only the hints of the newest answer count: a tool that lost its hint, or is not
// listed any more, has no licence.
func TestWithdrawnHintCountsNoMore(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "hints"}, nil)
	add := func(name string, hints *mcp.ToolAnnotations) {
		mcp.AddTool(server, &mcp.Tool{Name: name, Annotations: hints}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	for _, name := range []string{"kept", "withdrawn", "removed"} {
		add(name, &mcp.ToolAnnotations{ReadOnlyHint: true})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	defer web.Close()
	c, err := Parse("", []byte("[[server]]\nid = \"s\"\ntype = \"mcp-url\"\ntrusted = true\nurl = \""+web.URL+"\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	live, err := Start(c, Options{Store: t.TempDir(), Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	read := runtime.Policy{Class: tga.ClassRead, Licence: ledger.Licence{Kind: ledger.ReadOnly}}
	wants := func(when string, withdrawn runtime.Policy) {
		t.Helper()
		for name, want := range map[string]runtime.Policy{"kept": read, "withdrawn": withdrawn, "removed": withdrawn} {
			if got := live.Policy("s", name); got != want {
				t.Errorf("%s, %s has %+v, want %+v", when, name, got, want)
			}
		}
	}
	if err := live.Suggest(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants("at first", read)
	add("withdrawn", nil)
	server.RemoveTools("removed")
	if err := live.Take(c); err != nil {
		t.Fatal(err)
	}
	wants("before it is asked again", read)
	if err := live.Suggest(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants("after it was asked again", runtime.Policy{})
	if err := live.Close(); err != nil {
		t.Error(err)
	}
}
