package ui

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestRequestSaysWhatIsLeftOfIt: a person who decides sees the purpose of the call, and is told if arguments
// were removed before they were stored.
func TestRequestSaysWhatIsLeftOfIt(t *testing.T) {
	a := &tga.Artifact{Request: &tga.ActionRequest{Intent: "a refund <b>", Proposal: tga.Proposal{Args: []byte(`{"card":"…"}`)}}}
	page := func() string {
		var b strings.Builder
		if err := asks(a).Render(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := page(); !strings.Contains(got, "a refund &lt;b&gt;") || !strings.Contains(got, "card") || strings.Contains(got, words.redacted) {
		t.Errorf("whole: %s", got)
	}
	a.Meta = tga.Meta{tga.MetaRedacted: true}
	if got := page(); !strings.Contains(got, words.redacted) {
		t.Errorf("redacted: %s", got)
	}
}
