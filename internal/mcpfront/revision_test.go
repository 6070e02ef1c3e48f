package mcpfront

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/owntask"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpfront/toolcall"
	"github.com/tgad/tgad/internal/mcpraw"
)

// grid has no revision, the known revisions, one before and one after each, and two that are no
// dates.
var grid = []string{
	"", "1", "2024-11-05", "2025-03-25", "2025-03-26", "2025-03-27", "2025-06-17", "2025-06-18", "2025-06-19",
	"2025-11-24", "2025-11-25", "2025-11-26", "2026-07-27", "2026-07-28", "2026-07-29", "2027-01-01", "DRAFT-2026-v1",
}

// saying makes params whose `_meta` names a revision and all capabilities of a client.
func saying(revision string) []byte {
	return []byte(`{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"` + revision +
		`","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}`)
}

// TestWhatEachRevisionGets checks everything that depends on the revision of a request against the
// order of the revisions' text.
func TestWhatEachRevisionGets(t *testing.T) {
	for _, r := range grid {
		modern := r >= "2026-07-28"
		p, err := toolcall.Parse(saying(r))
		if err != nil {
			t.Fatal(err)
		}
		f := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + string(saying(r)) + `}`))
		header := http.Header{"Mcp-Protocol-Version": {r}}
		at := &conv{s: &Shim{opts: Options{URL: "http://localhost"}}}
		at.tools.c = at
		m := at.message(f)
		for name, got := range map[string]bool{
			"message.stateless":      m.Stateless() && m.Version == p.Revision(),
			"protocol":               string(p.Protocol()) != "{}",
			"say.ToolError":          strings.Contains(string(say.ToolError(p.Revision(), "X", "", "")), `"resultType":"complete"`),
			"say.Text":               strings.Contains(string(say.Text(p.Revision(), "")), `"resultType":"complete"`),
			"call.inRequest":         p.InRequest(),
			"asksInRequest":          toolcall.AsksInRequest(f),
			"declaresTasks":          owntask.Declared(p.Raw),
			"mirrors":                at.tools.mirrors(p),
			"headers are looked at":  mcpraw.Mismatch(http.Header{}, "tools/call", p.Raw) != "",
			"headers that lack body": mcpraw.Mismatch(header, "tools/call", []byte("{}")) != "",
		} {
			if got != modern {
				t.Errorf("revision %q: %s is %v", r, name, got)
			}
		}
		for _, agreed := range grid {
			if got, want := strings.Contains(string(p.Form(mcpraw.Revision(agreed), "", "", "")), `"mode":"form"`), modern || agreed >= "2025-11-25"; got != want {
				t.Errorf("revision %q after a handshake of %q: the question says its mode: %v", r, agreed, got)
			}
		}
	}
}
