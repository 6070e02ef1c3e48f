package handshake

import (
	"testing"

	"github.com/tgad/tgad/internal/mcpraw"
)

// TestWhatEachHandshakeGets checks everything that depends on the revision of a handshake against the order of the
// revisions' text: for no revision, the known ones, one beside each, and one that is no date.
func TestWhatEachHandshakeGets(t *testing.T) {
	for _, r := range []string{
		"", "1", "2025-03-25", "2025-03-26", "2025-06-17", "2025-06-18", "2025-06-19", "2025-11-25", "2026-07-27", "2026-07-28", "2026-07-29", "DRAFT-2026-v1",
	} {
		o := Memory{done: true, agreed: mcpraw.Revision(r), initialize: []byte(`{"capabilities":{"elicitation":{}}}`)}
		if got, want := o.Elicits(), r >= "2025-06-18" && r < "2026-07-28"; got != want {
			t.Errorf("a handshake of %q: elicits is %v", r, got)
		}
	}
}
