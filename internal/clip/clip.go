// Package clip cuts texts to a length. Each function says what it counts, and none cuts a
// character.
package clip

import (
	"strings"
	"unicode/utf8"
)

// Bytes returns a text of at most n bytes unchanged. Of a longer text it returns the first n
// bytes, without those that are not valid UTF-8.
func Bytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// Runes returns the first n characters of s, as valid UTF-8.
func Runes(s string, n int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// Short returns at most n characters of s, as valid UTF-8. If it cuts s, the last character is
// "…". n is at least 1.
func Short(s string, n int) string {
	if !utf8.ValidString(s) {
		s = string([]rune(s)) // each bad byte becomes U+FFFD
	}
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return Runes(s, n-1) + "…"
}
