package mcpraw

import "testing"

// TestWhoCanBeAskedByForm walks the ways in which a client says what it can ask its person.
func TestWhoCanBeAskedByForm(t *testing.T) {
	for capabilities, want := range map[string]bool{
		"": false, "null": false, "{}": false, `{"sampling":{}}`: false, `{"elicitation":null}`: false,
		`{"elicitation":{}}`: true, `{"elicitation":{"form":{}}}`: true, `{"elicitation":{"form":{},"url":{}}}`: true,
		`{"elicitation":{"url":{}}}`: false, `{"elicitation":{"novel":{}}}`: true,
	} {
		if got := AsksByForm([]byte(capabilities)); got != want {
			t.Errorf("%s: %v, want %v", capabilities, got, want)
		}
	}
}

// TestRevisions walks the known revisions, and unknown ones before, between and after them.
func TestRevisions(t *testing.T) {
	for _, r := range []string{
		"", "1", "2024-11-05", "2025-03-25", "2025-03-26", "2025-03-27", "2025-06-17", "2025-06-18", "2025-06-19",
		"2025-11-24", "2025-11-25", "2025-11-26", "2026-07-27", "2026-07-28", "2026-07-29", "2027-01-01", "DRAFT-2026-v1",
	} {
		rev, agreed := Revision(r), Revision("2025-11-25")
		if r == "2025-03-26" || r == "2025-06-18" {
			agreed = rev
		}
		if rev.Stateless() != (r >= "2026-07-28") || rev.Elicits() != (r >= "2025-06-18" && r < "2026-07-28") ||
			rev.ModalQuestions() != (r >= "2025-11-25") || rev.Agree() != agreed {
			t.Errorf("%q: stateless %v, elicits %v, modal %v, agrees on %s", r, rev.Stateless(), rev.Elicits(), rev.ModalQuestions(), rev.Agree())
		}
		if got := RevisionOf([]byte(`{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + r + `"}}`)); got != rev {
			t.Errorf("%q is read as %q", r, got)
		}
	}
	for _, none := range []string{"", "null", "{}", `{"_meta":null}`, `{"_meta":{"io.modelcontextprotocol/protocolVersion":true}}`, `{"protocolVersion":"2026-07-28"}`} {
		if got := RevisionOf([]byte(none)); got != "" {
			t.Errorf("%s is read as %q", none, got)
		}
	}
}
