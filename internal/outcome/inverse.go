package outcome

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// inverse is an Inverse ready for use.
type inverse struct {
	server, tool string
	args         node
}

// node is a JSON value with references in its strings: exactly one of the fields is set.
type node struct {
	literal  []byte // as it was written
	text     *template
	members  []member
	elements []node
	kind     byte // '{' and '[' tell empty ones apart
}

type member struct {
	name []byte // a JSON string
	node node
}

func (t *tool) compileInverse(c *Tool, at string) (*inverse, error) {
	u := &inverse{server: c.Inverse.Server, tool: c.Inverse.Tool}
	if u.server == "" {
		u.server = c.Server
	}
	switch {
	case !tga.CleanName(u.server):
		return nil, wrong(at, "server", "%.80q is no server's name", u.server)
	case !tga.CleanName(u.tool):
		return nil, wrong(at, "name", "%.80q is no tool's name", u.tool)
	case len(c.Inverse.Args) > maxTemplate:
		return nil, wrong(at, "args", "has %d bytes, at most %d", len(c.Inverse.Args), maxTemplate)
	}
	raw := []byte(c.Inverse.Args)
	// The gate also applies to the template, numbers included, because the arguments that
	// it makes must pass the gate.
	if err := tga.Gate(raw, tga.Limits{}); err != nil {
		return nil, wrong(at, "args", "%w", err)
	}
	v := parse(raw)
	if v.kind() != '{' {
		return nil, wrong(at, "args", "is no object")
	}
	var err error
	if u.args, err = compileNode(v, t.documents()); err != nil {
		return nil, wrong(at, "args", "%w", err)
	}
	return u, nil
}

func compileNode(v *value, names []string) (node, error) {
	v.open()
	n := node{kind: v.kind()}
	var failed error
	below := func(v *value) node {
		sub, err := compileNode(v, names)
		if err != nil && failed == nil {
			failed = err
		}
		return sub
	}
	switch n.kind {
	case '{':
		eachMember(v.raw, func(name string, raw []byte) {
			quoted, err := quote(name)
			if err != nil && failed == nil {
				failed = err
			}
			n.members = append(n.members, member{quoted, below(&value{raw: raw})})
		})
	case '[':
		for _, e := range v.elements {
			n.elements = append(n.elements, below(e))
		}
	case '"':
		s, err := v.text()
		if err != nil {
			return n, err
		}
		t, err := parseTemplate(s, names)
		if err != nil {
			return n, err
		}
		n.text = &t
	default:
		n.literal = v.raw
	}
	return n, failed
}

// quote returns s as a JSON string.
func quote(s string) ([]byte, error) {
	if !utf8.ValidString(s) { // encoding/json would replace invalid bytes
		return nil, fmt.Errorf("%.80q is not UTF-8", s)
	}
	return json.Marshal(s)
}

// fill appends the value that n makes with the values of d.
func (n *node) fill(dst []byte, d documents) ([]byte, error) {
	var err error
	switch {
	case n.kind == '{':
		dst = append(dst, '{')
		for i := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(dst, n.members[i].name...), ':')
			if dst, err = n.members[i].node.fill(dst, d); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case n.kind == '[':
		dst = append(dst, '[')
		for i := range n.elements {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = n.elements[i].fill(dst, d); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case n.text == nil:
		return append(dst, n.literal...), nil
	}
	if at, ok := n.text.whole(); ok {
		v, _ := d.find(at)
		if v == nil {
			return nil, nothing(at)
		}
		return append(dst, v.raw...), nil
	}
	s, _, err := n.text.text(d)
	if err != nil {
		return nil, err
	}
	raw, err := quote(s)
	return append(dst, raw...), err
}

// Inverse returns the call that undoes call, whose effect has the answer result. It is
// [runtime.Trust.Inverse]. ok is false if none is configured. A reference that leads
// nowhere is SCHEMA_VIOLATION. A value that no call may carry (a repeated member,
// half a surrogate pair, a number that a double cannot hold) is VALIDATION_ERROR: with
// another value in its place, it would be another call. Args has values in their original
// spelling.
func (r *Rules) Inverse(call *tga.ToolCall, _ *tga.ToolEffect, result []byte) (in runtime.Inverse, ok bool, err error) {
	p := &call.Call
	t := r.find(p.ToolServer, p.ToolName)
	if t == nil || t.inverse == nil {
		return runtime.Inverse{}, false, nil
	}
	fail := func(err error) (runtime.Inverse, bool, error) {
		return runtime.Inverse{}, false, tga.Errorf(codeOr(err), "arguments of %s on %s, which undoes %s on %s: %w", t.inverse.tool, t.inverse.server, p.ToolName, p.ToolServer, err)
	}
	args, err := t.inverse.args.fill(nil, documentsOf(t.form, p.Args, result))
	if err != nil {
		return fail(err)
	}
	if err := tga.Gate(args, tga.Limits{}); err != nil {
		return fail(err)
	}
	return runtime.Inverse{Server: t.inverse.server, Tool: t.inverse.tool, Args: args}, true, nil
}
