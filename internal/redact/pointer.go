package redact

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// names reports whether one of the pointers leads to a place.
func names(pointers []string, at []string) bool {
	for _, p := range pointers {
		if leads(p, at) {
			return true
		}
	}
	return false
}

// leads reports whether a pointer leads to a place. Its token "*" matches any member or element.
func leads(pointer string, at []string) bool {
	for _, name := range at {
		rest, ok := strings.CutPrefix(pointer, "/")
		if !ok {
			return false
		}
		token, _, more := strings.Cut(rest, "/")
		pointer = ""
		if more {
			pointer = rest[len(token):]
		}
		if token != "*" && token != tga.EscapeToken(name) {
			return false
		}
	}
	return pointer == ""
}

func pointerOf(at []string) string {
	var out strings.Builder
	for _, name := range at {
		out.WriteByte('/')
		out.WriteString(tga.EscapeToken(name))
	}
	return out.String()
}

func decimal(i int) string { return strconv.Itoa(i) }

// quoted returns a text as a JSON string, without needless escapes.
func quoted(text string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err) // a string can always be written
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
