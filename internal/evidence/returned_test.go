package evidence_test

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestKeyThatGaveUpDoesNotSignAgain: no verifier believes a key that comes back, so the start is refused, and
// leaves nothing that keeps the right key from the next one.
func TestKeyThatGaveUpDoesNotSignAgain(t *testing.T) {
	s := newStand(t)
	first, second := s.options.Signer, newKey(t)
	s.open()
	s.append(1)
	s.close()
	s.options.Signer, s.options.Former = second, &first
	s.open()
	s.close()
	s.options.Signer, s.options.Former = first, &second
	for range 2 {
		if err := s.tryOpen(); tga.CodeOf(err) != tga.PermissionDenied || !strings.Contains(err.Error(), "make a new key") {
			t.Fatalf("the key before comes back: %v", err)
		}
	}
	s.options.Signer, s.options.Former = second, nil
	s.open()
	defer s.close()
	s.append(2)
	s.covered()
}
