package tga

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestBase64URLHasOneSpelling(t *testing.T) {
	for _, b := range [][]byte{nil, {0}, {255}, {0, 0}, {255, 255}, {1, 2, 3}, bytes.Repeat([]byte{0xfb}, 1000)} {
		s := base64.RawURLEncoding.EncodeToString(b)
		if got, err := DecodeBase64URL(s); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%q: %x (%v), want %x", s, got, err, b)
		}
	}
	for _, s := range []string{
		"A", "AAAAA", "_", // a single last character is no byte
		"AR", "AAB", "A_", "AA_", // bits after the last byte
		"AA==", "AAA=", "=", "AA\n", "A\nA", "\r\nAA", " AA", "AA ", "+A", "/A", "AAA é", "é", "A.A", "AA\x00",
	} {
		if got, err := DecodeBase64URL(s); !errors.Is(err, ValidationError) {
			t.Errorf("%q: %x (%v)", s, got, err)
		}
	}
	// Of all texts of two and of three digits, exactly as many are accepted as there are byte values.
	two, three := 0, 0
	for _, a := range base64URLDigits {
		for _, b := range base64URLDigits {
			if isBase64URL(string([]rune{a, b})) {
				two++
			}
			if a == 'A' && isBase64URL(string([]rune{'A', a, b})) {
				three++
			}
		}
	}
	if two != 1<<8 || three != 1<<4 {
		t.Errorf("%d texts for a byte, and %d for 4 bits", two, three)
	}
}

// TestTokenHasThreeSegments: each segment of a decision's token must be base64url that encodes bytes, at
// every position.
func TestTokenHasThreeSegments(t *testing.T) {
	for _, good := range []string{"aQ.bQ.cQ", "aQA.bQAA.cQAAcQ"} {
		if !isCompactJWS(good) {
			t.Errorf("%q is refused", good)
		}
		for i, part := range strings.Split(good, ".") {
			for _, bad := range []string{"", "a", "aQAAc", "aR", "aQ=", "aQ\n"} {
				all := strings.Split(good, ".")
				all[i] = bad
				if s := strings.Join(all, "."); isCompactJWS(s) {
					t.Errorf("%q is taken, with %q for %q", s, bad, part)
				}
			}
		}
	}
	for _, bad := range []string{"", ".", "..", "aQ", "aQ.bQ", "aQ.bQ.cQ.dQ", "aQ.bQ.cQ.", ".aQ.bQ.cQ"} {
		if isCompactJWS(bad) {
			t.Errorf("%q is taken", bad)
		}
	}
}
