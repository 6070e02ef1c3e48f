package manifest

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// jsonReader makes a tree of a text that [json.Valid] accepts.
type jsonReader struct {
	*builder
	raw []byte
	dec *json.Decoder
	// The position up to which lines and columns were counted.
	offset, line, start int
}

func (b *builder) fromJSON(raw []byte) (*node, error) {
	r := &jsonReader{builder: b, raw: raw, dec: json.NewDecoder(bytes.NewReader(raw)), line: 1}
	r.dec.UseNumber()
	return r.value("", 0)
}

// place returns the line and column at which the next token begins.
func (r *jsonReader) place() (line, column int) {
	end := int(r.dec.InputOffset())
	for end < len(r.raw) && bytes.IndexByte([]byte(" \t\r\n,:"), r.raw[end]) >= 0 {
		end++
	}
	for ; r.offset < end; r.offset++ {
		if r.raw[r.offset] == '\n' {
			r.line, r.start = r.line+1, r.offset+1
		}
	}
	return r.line, utf8.RuneCount(r.raw[r.start:end]) + 1
}

func (r *jsonReader) value(pointer string, depth int) (*node, error) {
	line, column := r.place()
	if err := r.grow(line, column, depth, pointer); err != nil {
		return nil, err
	}
	n := &node{line: line, column: column, pointer: pointer}
	token, err := r.dec.Token()
	if err != nil {
		return nil, n.mistake(tga.ValidationError, "%v", err)
	}
	switch t := token.(type) {
	case nil:
		n.kind, n.text = isNull, "null"
	case bool:
		n.kind, n.text = isBool, strconv.FormatBool(t)
	case string:
		n.kind, n.text = isText, t
	case json.Number:
		n.kind, n.text, n.number = isNumber, t.String(), t.String()
	case json.Delim:
		if t == '[' {
			return n, r.list(n, depth)
		}
		return n, r.object(n, depth)
	}
	return n, nil
}

func (r *jsonReader) list(n *node, depth int) error {
	n.kind = isList
	for r.dec.More() {
		v, err := r.value(under(n.pointer, strconv.Itoa(len(n.items))), depth+1)
		if err != nil {
			return err
		}
		n.items = append(n.items, v)
	}
	_, err := r.dec.Token()
	return err
}

func (r *jsonReader) object(n *node, depth int) error {
	n.kind = isObject
	lines := map[string]int{}
	for r.dec.More() {
		line, column := r.place()
		token, err := r.dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // names are strings, because the text is valid JSON
		pointer := under(n.pointer, name)
		if first, dup := lines[name]; dup {
			return (&node{line: line, column: column, pointer: pointer}).mistake(tga.ValidationError, "%q stands here a second time, the first is in line %d", name, first)
		}
		lines[name] = line
		v, err := r.value(pointer, depth+1)
		if err != nil {
			return err
		}
		n.fields = append(n.fields, field{name, v})
	}
	_, err := r.dec.Token()
	return err
}
