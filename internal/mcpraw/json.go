package mcpraw

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Member is one member of a JSON object: its name, and where in the object's bytes its value is.
type Member struct {
	Name     string
	From, To int // begin and end of the value
	Start    int // position of the name's opening quote
}

// Members lists the members of an object in their order. It refuses a name that occurs twice, and
// a name that differs only in case from a name in strict.
func Members(raw []byte, strict ...string) ([]Member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	t, err := d.Token()
	if err != nil || t != json.Delim('{') {
		return nil, tga.Errorf(tga.ValidationError, "want an object")
	}
	var all []Member
	seen := map[string]bool{}
	for d.More() {
		start := int(d.InputOffset())
		t, err := d.Token()
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "%w", err)
		}
		name := t.(string) // More was true inside an object, so the token is a name
		if seen[name] {
			return nil, tga.Errorf(tga.ValidationError, "the member is there twice").At("/" + tga.ReadableToken(name))
		}
		seen[name] = true
		for _, s := range strict {
			if name != s && strings.EqualFold(name, s) {
				return nil, tga.Errorf(tga.ValidationError, "the member looks like %s", s).At("/" + tga.ReadableToken(name))
			}
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, tga.Errorf(tga.ValidationError, "%w", err).At("/" + tga.ReadableToken(name))
		}
		to := int(d.InputOffset())
		for raw[start] != '"' {
			start++ // skip the comma and white space before the name
		}
		all = append(all, Member{Name: name, From: to - len(value), To: to, Start: start})
	}
	if _, err := d.Token(); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "%w", err)
	}
	return all, nil
}

// ScalarText is the text of a JSON string, or a number as it is written. It is "" for any other
// value.
func ScalarText(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	switch c := v[0]; {
	case c == '"':
		return Text(v)
	case c == '-' || c >= '0' && c <= '9':
		return string(v)
	}
	return ""
}

// Text is the text of a JSON string, "" for any other value. It is for names and URIs, which the protocol
// wants as strings: 7 is not "7".
func Text(v []byte) string {
	var s string
	if len(v) == 0 || v[0] != '"' || json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// At returns the value at a JSON Pointer (RFC 6901) in a document, nil if there is none.
func At(doc []byte, pointer string) []byte {
	from, to, ok := Locate(doc, pointer)
	if !ok {
		return nil
	}
	return doc[from:to]
}

// Locate returns the position of the value at a JSON Pointer.
func Locate(doc []byte, pointer string) (from, to int, ok bool) {
	from, to = 0, len(doc)
	for pointer != "" {
		token, rest, more := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
		if pointer = ""; more {
			pointer = "/" + rest
		}
		f, t, found := inside(doc[from:to], tga.UnescapeToken(token))
		if !found {
			return 0, 0, false
		}
		from, to = from+f, from+t
	}
	return from, to, to > from
}

// inside finds one member of an object, or one item of an array.
func inside(doc []byte, token string) (from, to int, ok bool) {
	if trimmed := bytes.TrimLeft(doc, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		d := json.NewDecoder(bytes.NewReader(doc))
		if _, err := d.Token(); err != nil {
			return 0, 0, false
		}
		for i := uint64(0); d.More(); i++ {
			var item json.RawMessage
			if d.Decode(&item) != nil {
				return 0, 0, false
			}
			if to := int(d.InputOffset()); string(strconv.AppendUint(nil, i, 10)) == token {
				return to - len(item), to, true
			}
		}
		return 0, 0, false
	}
	all, err := Members(doc)
	if err != nil {
		return 0, 0, false
	}
	for _, m := range all {
		if m.Name == token {
			return m.From, m.To, true
		}
	}
	return 0, 0, false
}
