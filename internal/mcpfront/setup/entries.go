package setup

import (
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/tailscale/hujson"

	"github.com/tgad/tgad/schemas/tga"
)

// span is a part of a file, in bytes.
type span struct{ from, to int }

// token is a string in a file: its position, with the quotes, and its value.
type token struct {
	span
	text string
}

// entry is a tool server in a client's file.
type entry struct {
	name    string
	command *token
	args    []token
	list    *span  // position of the list of args; for TOML only its beginning is known
	inline  bool   // TOML: the entry is an inline table
	odd     string // why the entry cannot be changed; "" = it can
}

// words returns the command and its arguments.
func (e *entry) words() []string {
	words := []string{e.command.text}
	for _, a := range e.args {
		words = append(words, a.text)
	}
	return words
}

const (
	atAddress = "it is at an address: the client itself signs in there. tgad mcp config --url prints the lines for tgad"
	oddForm   = "its command and args are not in the form that is known"
)

// entriesOf finds the tool servers of a file.
func entriesOf(raw []byte, p Place) ([]*entry, error) {
	var all []*entry
	var err error
	if p.TOML {
		all, err = tomlEntries(raw, p.Table)
	} else {
		all, err = jsonEntries(raw, p.Table)
	}
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "%s: %w", p.File, err)
	}
	seen := map[string]bool{}
	for _, e := range all {
		if seen[e.name] {
			return nil, tga.Errorf(tga.ValidationError, "%s has %q twice", p.File, e.name)
		}
		seen[e.name] = true
		if e.command == nil && e.odd == "" {
			e.odd = atAddress
		}
	}
	return all, nil
}

// jsonEntries reads JSON that may have comments and trailing commas, as some clients allow.
func jsonEntries(raw []byte, table []string) (all []*entry, err error) {
	root, err := hujson.Parse(raw)
	if err != nil {
		return nil, err
	}
	at := &root
	for _, step := range table {
		if twice(at, step) {
			return nil, tga.Errorf(tga.ValidationError, "%s occurs twice", step)
		}
		if at = memberOf(at, step); at == nil {
			return nil, nil
		}
	}
	servers, ok := at.Value.(*hujson.Object)
	if !ok {
		return nil, tga.Errorf(tga.ValidationError, "%s is no object", strings.Join(table, "."))
	}
	for i := range servers.Members {
		m := &servers.Members[i]
		e := &entry{name: m.Name.Value.(hujson.Literal).String()}
		all = append(all, e)
		if _, ok := m.Value.Value.(*hujson.Object); !ok || twice(&m.Value, "command") || twice(&m.Value, "args") {
			e.odd = oddForm
			continue
		}
		e.readJSON(&m.Value)
	}
	return all, nil
}

// readJSON reads the members command and args.
func (e *entry) readJSON(v *hujson.Value) {
	if c := memberOf(v, "command"); c != nil {
		if t, ok := jsonString(c); ok {
			e.command = &t
		} else {
			e.odd = oddForm
		}
	}
	a := memberOf(v, "args")
	if a == nil {
		return
	}
	list, ok := a.Value.(*hujson.Array)
	if !ok {
		e.odd = oddForm
		return
	}
	e.list = &span{a.StartOffset, a.EndOffset}
	for i := range list.Elements {
		t, ok := jsonString(&list.Elements[i])
		if !ok {
			e.odd = oddForm
		}
		e.args = append(e.args, t)
	}
}

func memberOf(v *hujson.Value, name string) *hujson.Value {
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	for i := range o.Members {
		if o.Members[i].Name.Value.(hujson.Literal).String() == name {
			return &o.Members[i].Value
		}
	}
	return nil
}

// twice reports whether an object has a member more than once: a client may read either.
func twice(v *hujson.Value, name string) bool {
	o, ok := v.Value.(*hujson.Object)
	n := 0
	for i := 0; ok && i < len(o.Members); i++ {
		if o.Members[i].Name.Value.(hujson.Literal).String() == name {
			n++
		}
	}
	return n > 1
}

func jsonString(v *hujson.Value) (token, bool) {
	l, ok := v.Value.(hujson.Literal)
	if !ok || l.Kind() != '"' {
		return token{}, false
	}
	return token{span{v.StartOffset, v.EndOffset}, l.String()}, true
}

// tomlFile collects the tool servers of a TOML file.
type tomlFile struct {
	p     unstable.Parser
	raw   []byte
	table []string
	all   []*entry
}

func tomlEntries(raw []byte, table []string) ([]*entry, error) {
	var whole map[string]any
	if err := toml.Unmarshal(raw, &whole); err != nil {
		return nil, err
	}
	f := tomlFile{raw: raw, table: table}
	f.p.Reset(raw)
	var prefix []string
	for f.p.NextExpression() {
		n := f.p.Expression()
		switch n.Kind {
		case unstable.Table, unstable.ArrayTable:
			prefix, _ = keyParts(n)
			f.entry(prefix)
		case unstable.KeyValue:
			f.keyValue(n, prefix, false)
		}
	}
	return f.all, f.p.Error()
}

func keyParts(n *unstable.Node) (parts []string, end int) {
	for it := n.Key(); it.Next(); {
		k := it.Node()
		parts, end = append(parts, string(k.Data)), int(k.Raw.Offset+k.Raw.Length)
	}
	return parts, end
}

// entry returns the tool server that a path names or leads into, nil if there is none.
func (f *tomlFile) entry(path []string) *entry {
	n := len(f.table)
	if len(path) <= n || !slices.Equal(path[:n], f.table) {
		return nil
	}
	for _, e := range f.all {
		if e.name == path[n] {
			return e
		}
	}
	e := &entry{name: path[n]}
	f.all = append(f.all, e)
	return e
}

func (f *tomlFile) keyValue(n *unstable.Node, prefix []string, inline bool) {
	parts, end := keyParts(n)
	path, v := slices.Concat(prefix, parts), n.Value()
	if v.Kind == unstable.InlineTable {
		f.entry(path)
		for it := v.Children(); it.Next(); {
			f.keyValue(it.Node(), path, true)
		}
		return
	}
	e := f.entry(path)
	if e == nil || len(path) != len(f.table)+2 {
		return
	}
	switch key := path[len(path)-1]; {
	case key == "command" && v.Kind == unstable.String:
		e.command, e.inline = &token{f.spanOf(v), string(v.Data)}, inline
	case key == "args" && v.Kind == unstable.Array:
		at := end
		for f.raw[at] != '[' { // skip blanks and =
			at++
		}
		e.list = &span{at, 0}
		for it := v.Children(); it.Next(); {
			if c := it.Node(); c.Kind == unstable.String {
				e.args = append(e.args, token{f.spanOf(c), string(c.Data)})
			} else if c.Kind != unstable.Comment {
				e.odd = oddForm
			}
		}
	case key == "command" || key == "args":
		e.odd = oddForm
	}
}

func (f *tomlFile) spanOf(n *unstable.Node) span {
	return span{int(n.Raw.Offset), int(n.Raw.Offset + n.Raw.Length)}
}
