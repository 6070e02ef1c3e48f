package manifest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// Limits of a manifest.
const (
	MaxBytes = 1 << 20 // of the text
	MaxNodes = 100_000 // values in total; an alias counts at each use
	MaxDepth = 64      // of nesting
)

type kind int

const (
	isNull kind = iota
	isText
	isNumber
	isBool
	isList
	isObject
)

func (k kind) String() string {
	return [...]string{"null", "text", "a number", "true or false", "a list", "an object"}[k]
}

// node is a value of a manifest, whichever syntax it was written in.
type node struct {
	kind    kind
	text    string // of a scalar, as written
	number  string // of a number, in JSON's form; "" if it has none
	fields  []field
	items   []*node
	line    int // from 1
	column  int // from 1, in characters
	pointer string
	// used says that the value was read. Values that were not read are listed as ignored.
	used bool
}

type field struct {
	name  string
	value *node
}

func (n *node) child(name string) *node {
	if n == nil {
		return nil
	}
	for _, f := range n.fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// at returns the value at a dotted path, nil if there is none or it is null.
func (n *node) at(path string) *node {
	for name := range strings.SplitSeq(path, ".") {
		n = n.child(name)
	}
	if n == nil || n.kind == isNull {
		return nil
	}
	return n
}

// useAll marks a value and everything in it as used.
func (n *node) useAll() {
	n.used = true
	for _, f := range n.fields {
		f.value.useAll()
	}
	for _, i := range n.items {
		i.useAll()
	}
}

// touched reports whether anything in n was read.
func (n *node) touched() bool {
	if n.used {
		return true
	}
	for _, f := range n.fields {
		if f.value.touched() {
			return true
		}
	}
	for _, i := range n.items {
		if i.touched() {
			return true
		}
	}
	return false
}

// ignored appends the pointers of the topmost values that were not read.
func (n *node) ignored(list []string) []string {
	if !n.touched() {
		if n.kind == isNull {
			return list
		}
		return append(list, n.pointer)
	}
	for _, f := range n.fields {
		list = f.value.ignored(list)
	}
	for _, i := range n.items {
		list = i.ignored(list)
	}
	return list
}

// json returns the value as JSON, with numbers as they are written.
func (n *node) json() (json.RawMessage, error) {
	switch n.kind {
	case isNull:
		return json.RawMessage("null"), nil
	case isNumber:
		if n.number == "" {
			return nil, n.mistake(tga.ValidationError, "%s is not a number of JSON", n.text)
		}
		return json.RawMessage(n.number), nil
	case isBool:
		return json.RawMessage(n.text), nil
	case isText:
		return quote(n.text), nil
	}
	open, end := "[", "]"
	if n.kind == isObject {
		open, end = "{", "}"
	}
	b := []byte(open)
	add := func(v *node) error {
		raw, err := v.json()
		b = append(b, raw...)
		return err
	}
	for i, v := range n.items {
		if i > 0 {
			b = append(b, ',')
		}
		if err := add(v); err != nil {
			return nil, err
		}
	}
	for i, f := range n.fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quote(f.name)...), ':')
		if err := add(f.value); err != nil {
			return nil, err
		}
	}
	return append(b, end...), nil
}

func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return b
}

func (n *node) mistake(code tga.Code, format string, args ...any) *Mistake {
	return &Mistake{Line: n.line, Column: n.column, Code: code, Pointer: n.pointer, Message: fmt.Sprintf(format, args...)}
}

// jsonNumber is the grammar of RFC 8259 §6.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func under(pointer, name string) string { return pointer + "/" + tga.ReadableToken(name) }

// builder counts the values of a text.
type builder struct{ nodes int }

// grow counts one more node, before it is made, and checks the limits.
func (b *builder) grow(line, column, depth int, pointer string) error {
	at := &node{line: line, column: column, pointer: pointer}
	if b.nodes++; b.nodes > MaxNodes {
		return at.mistake(tga.LimitExceeded, "the manifest has more than %d values, aliases counted at each use", MaxNodes)
	}
	if depth > MaxDepth {
		return at.mistake(tga.LimitExceeded, "the manifest is nested deeper than %d", MaxDepth)
	}
	return nil
}

// parse makes a tree of each document of a manifest. It reads a text that is valid JSON as JSON,
// anything else as YAML: JSON in real manifests (tabs, surrogate escapes) is not always valid
// YAML.
func parse(raw []byte) ([]*node, error) {
	top := &node{line: 1, column: 1}
	if len(raw) > MaxBytes {
		return nil, top.mistake(tga.LimitExceeded, "the manifest has %d bytes, %d are allowed", len(raw), MaxBytes)
	}
	raw = []byte(strings.TrimPrefix(string(raw), "\ufeff"))
	for i, line := 0, 1; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size == 1 {
			return nil, (&node{line: line, column: 1}).mistake(tga.ValidationError, "the manifest is not UTF-8")
		}
		if r == '\n' {
			line++
		}
		i += size
	}
	var b builder
	if json.Valid(raw) {
		root, err := b.fromJSON(raw)
		return []*node{root}, err
	}
	return b.fromYAML(raw)
}
