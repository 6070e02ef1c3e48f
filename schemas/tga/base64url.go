package tga

import (
	"encoding/base64"
	"strings"
)

// DecodeBase64URL decodes base64url without padding (RFC 4648 §5, RFC 7515 §2) in the one
// spelling that its bytes have. VALIDATION_ERROR for anything else: a lone last character,
// which encodes no byte, bits set after the last byte, padding, a line break.
//
// Package base64 passes over line breaks, so two texts could mean the same bytes, and the
// digest of a token would not name what the token says.
func DecodeBase64URL(s string) ([]byte, error) {
	if !isBase64URL(s) {
		return nil, Errorf(ValidationError, "the text of %d characters is not valid base64url", len(s))
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, Errorf(ValidationError, "base64url: %w", err)
	}
	return b, nil
}

const base64URLDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// isBase64URL reports whether [DecodeBase64URL] takes s. "" is no bytes.
func isBase64URL(s string) bool {
	last := 0
	for i := range len(s) {
		if last = strings.IndexByte(base64URLDigits, s[i]); last < 0 {
			return false
		}
	}
	switch len(s) % 4 {
	case 1:
		return false // 6 bits are no byte
	case 2:
		return last&0b1111 == 0
	case 3:
		return last&0b11 == 0
	}
	return true
}

// isCompactJWS accepts three base64url segments (RFC 7515 §7.1), none of them empty.
func isCompactJWS(s string) bool {
	parts := 0
	for segment := range strings.SplitSeq(s, ".") {
		if parts++; segment == "" || !isBase64URL(segment) {
			return false
		}
	}
	return parts == 3
}
