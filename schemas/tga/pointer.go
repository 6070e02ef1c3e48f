package tga

import (
	"strings"
	"unicode/utf8"
)

// mostToken bounds a name in the JSON Pointer of an error, so that the error stays readable.
const mostToken = 128

// A Replacer works in one pass and replaces no text twice. So "~01" becomes "~1" and not "/",
// as RFC 6901 §4 requires.
var (
	pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
	pointerMarks   = strings.NewReplacer("~1", "/", "~0", "~")
)

// EscapeToken writes a name as a reference token of a JSON Pointer (RFC 6901).
func EscapeToken(name string) string { return pointerEscapes.Replace(name) }

// UnescapeToken reads a reference token of a JSON Pointer.
func UnescapeToken(token string) string { return pointerMarks.Replace(token) }

// ReadableToken is [EscapeToken] for an error: it cuts a name over 128 bytes and appends "…".
func ReadableToken(name string) string {
	if len(name) > mostToken {
		cut := mostToken
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "…"
	}
	return EscapeToken(name)
}

// under prepends a reference token to e's pointer. Each caller on the way out adds its own.
func (e *Error) under(token string) *Error {
	e.Pointer = "/" + ReadableToken(token) + e.Pointer
	return e
}
