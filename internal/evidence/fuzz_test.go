package evidence_test

import (
	"testing"

	"github.com/tgad/tgad/internal/evidence"
)

// FuzzSeen: what a client may say that it has seen has one spelling.
func FuzzSeen(f *testing.F) {
	f.Add(evidence.Seen{Size: 12}.String())
	f.Add("1 x")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := evidence.ParseSeen(text); err == nil && (s.String() != text || s.Size < 0) {
			t.Errorf("%q is read as %v", text, s)
		}
	})
}
