package tga

import (
	"strings"
	"unicode/utf8"
)

// mostToken bounds a name in a JSON Pointer, so that an error stays readable.
const mostToken = 128

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// under prepends a reference token to e's pointer while e travels outward.
func (e *Error) under(token string) *Error {
	if len(token) > mostToken {
		cut := mostToken
		for !utf8.RuneStart(token[cut]) {
			cut--
		}
		token = token[:cut] + "…"
	}
	e.Pointer = "/" + pointerEscapes.Replace(token) + e.Pointer
	return e
}
