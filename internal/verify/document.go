package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// Doc is a JSON text that somebody else wrote.
type Doc []byte

// ParseDoc takes one JSON text in valid UTF-8. Numbers may be of any size: they are
// compared as they are written.
func ParseDoc(raw []byte) (Doc, error) {
	switch {
	case !utf8.Valid(raw):
		return nil, fmt.Errorf("answer of %d bytes is no UTF-8", len(raw))
	case !json.Valid(raw):
		return nil, fmt.Errorf("answer of %d bytes is no JSON", len(raw))
	}
	return Doc(bytes.TrimSpace(raw)), nil
}

// Lookup returns the bytes of the value that a JSON Pointer (RFC 6901) names. ok is false
// if there is none. If an object on the way has the member twice, Lookup returns an error,
// because JSON parsers disagree on which of the two counts.
func (d Doc) Lookup(pointer string) (value Doc, ok bool, err error) {
	if pointer == "" {
		return d, len(d) > 0, nil
	}
	if value = d; len(d) == 0 {
		return nil, false, nil
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = tga.UnescapeToken(token)
		switch value[0] {
		case '{':
			value, err = value.member(token)
		case '[':
			value, err = value.element(token)
		default:
			value = nil
		}
		if value == nil || err != nil {
			return nil, false, err
		}
	}
	return value, true, nil
}

func (d Doc) member(name string) (found Doc, err error) {
	in := json.NewDecoder(bytes.NewReader(d))
	if _, err := in.Token(); err != nil {
		return nil, err
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return nil, err
		}
		if key != name {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("answer names the member %.80q twice", name)
		}
		found = Doc(value)
	}
	return found, nil
}

func (d Doc) element(token string) (Doc, error) {
	n, err := strconv.ParseUint(token, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != token {
		return nil, nil // "-", "01", a name: no element
	}
	in := json.NewDecoder(bytes.NewReader(d))
	if _, err := in.Token(); err != nil {
		return nil, err
	}
	for ; in.More(); n-- {
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return nil, err
		}
		if n == 0 {
			return Doc(value), nil
		}
	}
	return nil, nil
}

// Text returns a string's characters, or a number, true, false or null as it is
// written; ok is false for an object and an array.
func (d Doc) Text() (text string, ok bool) {
	switch {
	case len(d) == 0 || d[0] == '{' || d[0] == '[':
		return "", false
	case d[0] != '"':
		return string(d), true
	}
	return text, json.Unmarshal(d, &text) == nil
}

// Is reports whether text denotes the value. Changes and configurations have only texts,
// so a string equals a number that is written the same way. Two numbers are equal if
// their values are, provided that canonical JSON loses no digit of them.
func (d Doc) Is(text string) bool {
	have, ok := d.Text()
	if !ok {
		return false
	}
	if have == text {
		return true
	}
	if d[0] == '"' || d[0] > '9' { // a string or a word
		return false
	}
	a, errA := tga.Canonicalize(d, tga.Limits{})
	b, errB := tga.Canonicalize([]byte(text), tga.Limits{})
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// ValidPointer reports whether a text is a JSON Pointer: empty, or / and tokens in
// which ~ stands only as ~0 and ~1.
func ValidPointer(p string) bool {
	if p == "" {
		return true
	}
	rest := strings.ReplaceAll(strings.ReplaceAll(p, "~0", ""), "~1", "")
	return p[0] == '/' && !strings.Contains(rest, "~") && utf8.ValidString(p)
}
