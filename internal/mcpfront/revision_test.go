package mcpfront

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
)

// grid are revisions: none, those that are spoken, one between and one beyond each, and two
// that are no dates.
var grid = []string{
	"", "1", "2024-11-05", "2025-03-25", "2025-03-26", "2025-03-27", "2025-06-17", "2025-06-18", "2025-06-19",
	"2025-11-24", "2025-11-25", "2025-11-26", "2026-07-27", "2026-07-28", "2026-07-29", "2027-01-01", "DRAFT-2026-v1",
}

// saying is params whose `_meta` names a revision, and a client that can do all.
func saying(revision string) []byte {
	return []byte(`{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"` + revision +
		`","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}`)
}

// TestWhatEachRevisionGets compares everything that depends on the revision that a request
// names with the order of the revisions' text.
func TestWhatEachRevisionGets(t *testing.T) {
	for _, r := range grid {
		modern := r >= "2026-07-28"
		p, err := parseCall(saying(r))
		if err != nil {
			t.Fatal(err)
		}
		f := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + string(saying(r)) + `}`))
		nameless := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
		header := http.Header{"Mcp-Protocol-Version": {r}}
		at := &conv{s: &Shim{opts: Options{URL: "http://localhost"}}}
		at.tools.c = at
		m := at.message(f)
		for name, got := range map[string]bool{
			"message.stateless":      m.Stateless() && m.Version == p.revision(),
			"isModern by body":       isModern(nil, f),
			"isModern by header":     isModern(header, nameless),
			"protocol":               string(p.protocol()) != "{}",
			"say.ToolError":          strings.Contains(string(say.ToolError(p.revision(), "X", "", "")), `"resultType":"complete"`),
			"say.Text":               strings.Contains(string(say.Text(p.revision(), "")), `"resultType":"complete"`),
			"call.inRequest":         p.inRequest(),
			"asksInRequest":          asksInRequest(f),
			"declaresTasks":          declaresTasks(p.raw),
			"mirrors":                at.tools.mirrors(p),
			"headers are looked at":  mcpraw.Mismatch(http.Header{}, "tools/call", p.raw) != "",
			"headers that lack body": mcpraw.Mismatch(header, "tools/call", []byte("{}")) != "",
		} {
			if got != modern {
				t.Errorf("revision %q: %s is %v", r, name, got)
			}
		}
		for _, line := range []string{"bare", "a batch"} {
			inside := f
			if line == "a batch" {
				inside = frames.NewFrame([]byte(`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + string(saying(r)) + `}]`))
			}
			if isModern(nil, inside) != modern {
				t.Errorf("revision %q in %s: %v", r, line, !modern)
			}
		}
		for _, agreed := range grid {
			if got, want := strings.Contains(string(p.form(mcpraw.Revision(agreed), "", "", "")), `"mode":"form"`), modern || agreed >= "2025-11-25"; got != want {
				t.Errorf("revision %q after a handshake of %q: the question says its mode: %v", r, agreed, got)
			}
		}
	}
}

// TestWhatEachHandshakeGets is the same for the revision of the handshake.
func TestWhatEachHandshakeGets(t *testing.T) {
	for _, r := range grid {
		o := opening{done: true, agreed: mcpraw.Revision(r), initialize: []byte(`{"capabilities":{"elicitation":{}}}`)}
		if got, want := o.elicits(), r >= "2025-06-18" && r < "2026-07-28"; got != want {
			t.Errorf("a handshake of %q: elicits is %v", r, got)
		}
	}
}

// TestStatusOfEachCode walks the codes that JSON-RPC keeps for itself, and some beside them.
func TestStatusOfEachCode(t *testing.T) {
	own := map[int]int{-32020: 400, -32021: 400, -32022: 400, -32601: 404}
	for code := -32800; code < -31900; code++ {
		want := own[code]
		if want == 0 {
			want = 200
		}
		answer := `{"jsonrpc":"2.0","id":1,"error":{"code":` + strconv.Itoa(code) + `,"message":"no"}}`
		if got := statusOf([]byte(answer)); got != want {
			t.Errorf("%s has the status %d, want %d", answer, got, want)
		}
	}
	for _, answer := range []string{`{"jsonrpc":"2.0","id":1,"result":{"code":-32601}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":"-32601"}}`, `{"jsonrpc":"2.0","id":1,"error":{}}`, `no`} {
		if got := statusOf([]byte(answer)); got != 200 {
			t.Errorf("%s has the status %d", answer, got)
		}
	}
}
