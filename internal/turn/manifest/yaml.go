package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/tgad/tgad/schemas/tga"
)

func (b *builder) fromYAML(raw []byte) ([]*node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var roots []*node
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, syntax(err)
		}
		if len(doc.Content) == 1 && doc.Content[0].Tag == "!!null" && doc.Content[0].Value == "" {
			continue // an empty document, between two "---" or behind the last
		}
		root, err := b.yaml(doc.Content[0], "", 0, nil)
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	if len(roots) == 0 {
		return nil, (&node{line: 1, column: 1}).mistake(tga.ValidationError, "the manifest is empty")
	}
	return roots, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax adds the position to an error of the YAML library, which has the line but not the
// column.
func syntax(err error) error {
	at := &node{line: 1, column: 1}
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil {
			at.line = line
		}
		text = text[len(m[0]):]
	}
	return at.mistake(tga.ValidationError, "neither JSON nor YAML: %s", text)
}

// yaml copies a value of the library. open has the anchors that are being copied: an alias to one
// of them would never end.
func (b *builder) yaml(y *yaml.Node, pointer string, depth int, open []*yaml.Node) (*node, error) {
	line, column := y.Line, y.Column
	if y.Kind == yaml.AliasNode {
		for _, o := range open {
			if o == y.Alias {
				return nil, (&node{line: line, column: column, pointer: pointer}).mistake(tga.ValidationError, "the anchor %q holds itself", y.Value)
			}
		}
		y = y.Alias
	}
	if err := b.grow(line, column, depth, pointer); err != nil {
		return nil, err
	}
	n := &node{line: line, column: column, pointer: pointer}
	if y.Anchor != "" {
		open = append(open[:len(open):len(open)], y)
	}
	switch y.Kind {
	case yaml.ScalarNode:
		n.scalar(y)
		return n, nil
	case yaml.SequenceNode:
		n.kind = isList
		for i, item := range y.Content {
			v, err := b.yaml(item, under(pointer, strconv.Itoa(i)), depth+1, open)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, v)
		}
		return n, nil
	case yaml.MappingNode:
		n.kind = isObject
		return n, b.mapping(n, y, depth, open)
	}
	return nil, n.mistake(tga.ValidationError, "a value of an unknown kind")
}

func (n *node) scalar(y *yaml.Node) {
	n.text = y.Value
	switch y.Tag {
	case "!!null":
		n.kind = isNull
	case "!!bool":
		n.kind, n.text = isBool, map[bool]string{true: "true", false: "false"}[yamlBool(y)]
	case "!!int", "!!float":
		n.kind, n.number = isNumber, yamlNumber(y)
	default: // also times and dates, which are text in manifests
		n.kind = isText
	}
}

func yamlBool(y *yaml.Node) bool {
	var v bool
	return y.Decode(&v) == nil && v
}

// yamlNumber returns the JSON form of a number, "" if it has none (.inf, .nan).
func yamlNumber(y *yaml.Node) string {
	if jsonNumber.MatchString(y.Value) {
		return y.Value
	}
	var v any
	if err := y.Decode(&v); err != nil {
		return ""
	}
	if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
		return ""
	}
	raw, err := json.Marshal(v)
	if err != nil || !jsonNumber.Match(raw) {
		return ""
	}
	return string(raw)
}

func (b *builder) mapping(n *node, y *yaml.Node, depth int, open []*yaml.Node) error {
	lines := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i < len(y.Content); i += 2 {
		key, value := y.Content[i], y.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return (&node{line: y.Content[i].Line, column: y.Content[i].Column, pointer: n.pointer}).mistake(tga.ValidationError, "a name is %s, and must be text", map[bool]string{true: "a list", false: "an object"}[key.Kind == yaml.SequenceNode])
		}
		if key.Tag == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if first, dup := lines[key.Value]; dup {
			return (&node{line: y.Content[i].Line, column: y.Content[i].Column, pointer: under(n.pointer, key.Value)}).mistake(tga.ValidationError, "%q stands here a second time, the first is in line %d", key.Value, first)
		}
		lines[key.Value] = y.Content[i].Line
		v, err := b.yaml(value, under(n.pointer, key.Value), depth+1, open)
		if err != nil {
			return err
		}
		n.fields = append(n.fields, field{key.Value, v})
	}
	for _, from := range merged {
		if err := b.merge(n, from, lines, depth, open); err != nil {
			return err
		}
	}
	return nil
}

// merge adds the fields of a "<<" that n does not have. A field of n itself wins, and so does a
// field of an earlier source.
func (b *builder) merge(n *node, from *yaml.Node, lines map[string]int, depth int, open []*yaml.Node) error {
	v, err := b.yaml(from, under(n.pointer, "<<"), depth+1, open)
	if err != nil {
		return err
	}
	sources := []*node{v}
	if v.kind == isList {
		sources = v.items
	}
	for _, s := range sources {
		if s.kind != isObject {
			return s.mistake(tga.ValidationError, "<< merges objects, and this is %s", s.kind)
		}
		for _, f := range s.fields {
			if _, has := lines[f.name]; has {
				continue
			}
			lines[f.name] = f.value.line
			f.value.move(under(n.pointer, f.name))
			n.fields = append(n.fields, f)
		}
	}
	return nil
}

// move sets the pointer of n, which was read at the source of a merge, to its place in the
// target.
func (n *node) move(pointer string) {
	n.pointer = pointer
	for _, f := range n.fields {
		f.value.move(under(pointer, f.name))
	}
	for i, item := range n.items {
		item.move(under(pointer, strconv.Itoa(i)))
	}
}
