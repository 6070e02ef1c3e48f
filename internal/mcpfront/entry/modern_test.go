package entry

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/tgad/tgad/internal/mcpfront/frames"
)

// TestRevisionWithoutAHandshakeIsSeen: a revision without a handshake is recognised by the header of a message or by
// its body, alone or in an array, by the order of the revisions' text. The grid has no revision, the known ones, one
// before and one after each, and two that are no dates.
func TestRevisionWithoutAHandshakeIsSeen(t *testing.T) {
	for _, r := range []string{
		"", "1", "2024-11-05", "2025-03-25", "2025-03-26", "2025-03-27", "2025-06-17", "2025-06-18", "2025-06-19",
		"2025-11-24", "2025-11-25", "2025-11-26", "2026-07-27", "2026-07-28", "2026-07-29", "2027-01-01", "DRAFT-2026-v1",
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"` + r + `"}}}`
		nameless := frames.NewFrame([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`))
		for where, got := range map[string]bool{
			"by body":    isModern(nil, frames.NewFrame([]byte(body))),
			"in a batch": isModern(nil, frames.NewFrame([]byte("["+body+"]"))),
			"by header":  isModern(http.Header{"Mcp-Protocol-Version": {r}}, nameless),
		} {
			if want := r >= "2026-07-28"; got != want {
				t.Errorf("revision %q %s: %v", r, where, got)
			}
		}
	}
}

// TestStatusOfEachCode walks the codes that JSON-RPC reserves, and some others.
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
