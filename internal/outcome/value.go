package outcome

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// value is a JSON value in its original bytes. It is parsed one level at a time, only where a
// pointer leads: an answer may be 64 MiB long, and a number must not be read as a double.
type value struct {
	raw      []byte
	opened   bool
	members  map[string]*value
	elements []*value
}

// documents are the values that pointers lead into, by their first token.
type documents map[string]*value

// parse returns the value of a JSON text, nil if raw is no JSON text.
func parse(raw []byte) *value {
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return nil
	}
	return &value{raw: bytes.TrimSpace(raw)}
}

func (v *value) kind() byte { return v.raw[0] }

// twice stands for a member whose name is in its object more than once: nobody can tell which
// value is meant.
var twice = &value{raw: []byte("?"), opened: true}

// find returns the value that p leads to, nil if there is none. absent says that the
// document exists and the value does not.
func (d documents) find(p pointer) (v *value, absent bool) {
	v = d[p[0]]
	absent = v != nil
	for _, token := range p[1:] {
		if v == nil {
			return nil, absent
		}
		v = v.step(token)
	}
	switch {
	case v == twice:
		return nil, false
	case v == nil || v.kind() == 'n':
		return nil, absent
	}
	return v, false
}

// step returns the member or element of v that token names, nil if there is none.
func (v *value) step(token string) *value {
	v.open()
	switch v.kind() {
	case '?':
		return twice
	case '{':
		return v.members[token]
	case '[':
		// RFC 6901 §4: digits without a leading zero; "-" is the element after the last.
		n := 0
		for i, c := range []byte(token) {
			if c < '0' || c > '9' || i > 0 && token[0] == '0' || n > len(v.elements) {
				return nil
			}
			n = 10*n + int(c-'0')
		}
		if token != "" && n < len(v.elements) {
			return v.elements[n]
		}
	}
	return nil
}

// open splits an object or array into its values. parse has checked that the text is valid, so
// nothing here can fail.
func (v *value) open() {
	if v.opened {
		return
	}
	v.opened = true
	switch v.kind() {
	case '{':
		v.members = map[string]*value{}
		eachMember(v.raw, func(name string, raw []byte) {
			if v.members[name] != nil {
				v.members[name] = twice
				return
			}
			v.members[name] = &value{raw: raw}
		})
	case '[':
		var elements []json.RawMessage
		if json.Unmarshal(v.raw, &elements) != nil {
			return
		}
		for _, raw := range elements {
			v.elements = append(v.elements, &value{raw: raw})
		}
	}
}

// eachMember calls f with the members of a valid object, in their order.
func eachMember(object []byte, f func(name string, raw []byte)) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return
		}
		f(name.(string), raw)
	}
}

// text returns the content of a string, or a number or boolean in its original spelling.
func (v *value) text() (string, error) {
	switch v.kind() {
	case '"':
		// The gate refuses half a surrogate pair, which encoding/json would replace.
		if err := tga.Gate(v.raw, tga.Limits{}); err != nil {
			return "", err
		}
		var s string
		err := json.Unmarshal(v.raw, &s)
		return s, err
	case '{':
		return "", errors.New("is an object")
	case '[':
		return "", errors.New("is an array")
	}
	return string(v.raw), nil
}

// documentsOf returns what rules of a tool see of a call and its answer.
func documentsOf(form string, args, result []byte) documents {
	d := documents{docArgs: parse(args)}
	answer := parse(result)
	if form != FormMCP {
		d[docResult] = answer
		return d
	}
	if answer == nil || answer.kind() != '{' {
		return d
	}
	if s := answer.step("structuredContent"); s != nil && s.kind() == '{' {
		d[docResult] = s
	} else if content := answer.step("content"); content != nil {
		d[docResult] = onlyJSON(content)
	} else if code := answer.step("code"); code != nil && (code.kind() == '-' || code.kind() >= '0' && code.kind() <= '9') {
		d[docError] = answer
	}
	return d
}

// onlyJSON returns the only text of an MCP result that is a JSON object or array. If there are
// two, nobody can tell which is meant. A bare number or word is not taken as JSON: it may be prose.
func onlyJSON(content *value) *value {
	var found *value
	content.open()
	for _, block := range content.elements {
		kind, text := block.step("type"), block.step("text")
		if kind == nil || text == nil || text.kind() != '"' {
			continue
		}
		if s, err := kind.text(); err != nil || s != "text" {
			continue
		}
		s, err := text.text()
		if err != nil {
			continue
		}
		v := parse([]byte(s))
		if v == nil || v.kind() != '{' && v.kind() != '[' {
			continue
		}
		if found != nil {
			return nil
		}
		found = v
	}
	return found
}
