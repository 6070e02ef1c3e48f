package message

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// place is a value of the input and its position, so that an error can name it by a JSON Pointer.
// The zero place is a member that is absent.
//
// encoding/json alone would ignore the case of names, take the last of two members with the same
// name, and turn half a surrogate pair into U+FFFD. In each of these three ways, the filter and
// the model could see different content.
type place struct {
	raw json.RawMessage
	at  string
}

// mostDepth bounds how deep the input may nest. The formats themselves need eight levels; the
// rest is for the arguments of tools.
const mostDepth = 128

// rootOf checks that raw is one JSON text.
func rootOf(raw []byte) (place, error) {
	if !utf8.Valid(raw) {
		return place{}, tga.Errorf(tga.ValidationError, "the message is not UTF-8")
	}
	if depthOf(raw) > mostDepth {
		return place{}, tga.Errorf(tga.LimitExceeded, "the message nests deeper than %d", mostDepth)
	}
	if !json.Valid(raw) {
		return place{}, tga.Errorf(tga.ValidationError, "the message is not JSON: %s", syntaxOf(raw))
	}
	return place{raw: bytes.TrimSpace(raw)}, nil
}

// syntaxOf says where a text stops being JSON, without repeating any of it.
func syntaxOf(raw []byte) string {
	var v json.RawMessage
	switch err := json.Unmarshal(raw, &v).(type) {
	case *json.SyntaxError:
		return "byte " + strconv.FormatInt(err.Offset, 10)
	default:
		return "it does not parse"
	}
}

// depthOf returns the most brackets that are open at once, outside of strings. raw need not be
// valid JSON.
func depthOf(raw []byte) (most int) {
	open, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			open++
			most = max(most, open)
		case c == '}' || c == ']':
			open--
		}
	}
	return most
}

// is reports whether the value starts like kind: one of { [ " or another JSON byte.
func (p place) is(kind byte) bool { return len(p.raw) > 0 && p.raw[0] == kind }

// absent reports whether the value is missing or null.
func (p place) absent() bool { return len(p.raw) == 0 || p.is('n') }

func (p place) wrong(format string, args ...any) error {
	return tga.Errorf(tga.ValidationError, format, args...).At(p.at)
}

func (p place) over(format string, args ...any) error {
	return tga.Errorf(tga.LimitExceeded, format, args...).At(p.at)
}

// object returns the members by name.
func (p place) object() (map[string]place, error) {
	if !p.is('{') {
		return nil, p.wrong("want an object")
	}
	d := json.NewDecoder(bytes.NewReader(p.raw))
	if _, err := d.Token(); err != nil {
		return nil, p.wrong("%w", err)
	}
	all := map[string]place{}
	for d.More() {
		token, err := d.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return nil, p.wrong("want a member's name")
		}
		m := place{at: p.at + "/" + tga.ReadableToken(name)}
		if err := d.Decode(&m.raw); err != nil {
			return nil, m.wrong("%w", err)
		}
		if _, twice := all[name]; twice {
			return nil, m.wrong("the member is there twice")
		}
		all[name] = m
	}
	return all, nil
}

// array returns the elements: LIMIT_EXCEEDED if there are more than most.
func (p place) array(most int) ([]place, error) {
	if !p.is('[') {
		return nil, p.wrong("want an array")
	}
	d := json.NewDecoder(bytes.NewReader(p.raw))
	if _, err := d.Token(); err != nil {
		return nil, p.wrong("%w", err)
	}
	var all []place
	for d.More() {
		if len(all) == most {
			return nil, p.over("more than %d elements", most)
		}
		e := place{at: p.at + "/" + strconv.Itoa(len(all))}
		if err := d.Decode(&e.raw); err != nil {
			return nil, e.wrong("%w", err)
		}
		all = append(all, e)
	}
	return all, nil
}

// text returns a string's value; "" for a member that is absent.
func (p place) text() (string, error) {
	if p.absent() {
		return "", nil
	}
	if !p.is('"') {
		return "", p.wrong("want a string")
	}
	// Gate refuses strings that decoding would change.
	if err := tga.Gate(p.raw, tga.Limits{MaxBytes: tga.MostBytes}); err != nil {
		return "", p.wrong("want a string of whole characters")
	}
	var s string
	if err := json.Unmarshal(p.raw, &s); err != nil {
		return "", p.wrong("%w", err)
	}
	return s, nil
}

// need returns a string that must be present and not empty.
func (p place) need() (string, error) {
	s, err := p.text()
	if err == nil && s == "" {
		err = p.wrong("want a string that is not empty")
	}
	return s, err
}

// flag returns a boolean; false for a member that is absent.
func (p place) flag() (bool, error) {
	switch string(p.raw) {
	case "", "null", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, p.wrong("want true or false")
}

// child returns a member, or a place without a value that an error can name.
func (p place) child(of map[string]place, name string) place {
	if m, ok := of[name]; ok {
		return m
	}
	return place{at: p.at + "/" + tga.ReadableToken(name)}
}
