package mcpshim

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Names in `_meta`. The key is the same for every attempt of one call; a tool server may
// deduplicate by it.
const (
	MetaKey      = "dev.tgad/idempotencyKey"
	MetaScope    = "dev.tgad/scope" // from a client: names the conversation
	metaTrace    = "dev.tgad/traceId"
	metaAttempt  = "dev.tgad/attempt"
	metaReplayed = "dev.tgad/replayed"
	metaDigest   = "dev.tgad/entryDigest"
	metaCode     = "dev.tgad/code"

	metaVersion = "io.modelcontextprotocol/protocolVersion"
)

// stateless is the first protocol revision whose results say of which type they are.
const stateless = "2026-07-28"

// member is one member of a JSON object: its name, and where its value stands.
type member struct {
	name     string
	from, to int // of the value
	start    int // of the name's opening quote
}

// members lists the members of an object in their order. A name that comes twice is
// refused, and one that differs in case alone from a name in strict.
func members(raw []byte, strict ...string) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	t, err := d.Token()
	if err != nil || t != json.Delim('{') {
		return nil, tga.Errorf(tga.ValidationError, "want an object")
	}
	var all []member
	seen := map[string]bool{}
	for d.More() {
		start := int(d.InputOffset())
		t, err := d.Token()
		if err != nil {
			return nil, tga.Errorf(tga.ValidationError, "%w", err)
		}
		name := t.(string) // More was true inside an object, so the token is a name
		if seen[name] {
			return nil, tga.Errorf(tga.ValidationError, "the member is there twice").At("/" + pointerToken(name))
		}
		seen[name] = true
		for _, s := range strict {
			if name != s && strings.EqualFold(name, s) {
				return nil, tga.Errorf(tga.ValidationError, "the member looks like %s", s).At("/" + pointerToken(name))
			}
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, tga.Errorf(tga.ValidationError, "%w", err).At("/" + pointerToken(name))
		}
		to := int(d.InputOffset())
		for raw[start] != '"' {
			start++ // the comma and white space before it
		}
		all = append(all, member{name: name, from: to - len(value), to: to, start: start})
	}
	if _, err := d.Token(); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "%w", err)
	}
	return all, nil
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func pointerToken(name string) string { return pointerEscapes.Replace(clip(name, 128)) }

// callParams is what is read of the params of a tools/call.
type callParams struct {
	raw     []byte
	members []member
	tool    string
	args    []byte // nil where there are none
	meta    []byte // nil where there is none
	// input is what the client adds when it repeats a call that wanted input: the
	// members inputResponses and requestState. They belong to what is asked.
	input []byte

	metaMembers []member
}

// parseCall reads the params of a tools/call. It decodes neither the arguments nor any
// other member.
func parseCall(raw []byte) (*callParams, error) {
	p := &callParams{raw: raw}
	var err error
	if p.members, err = members(raw, "name", "arguments", "_meta", "inputResponses", "requestState", "task"); err != nil {
		return nil, under("/params", err)
	}
	named := false
	for _, m := range p.members {
		v := raw[m.from:m.to]
		switch m.name {
		case "name":
			if v[0] != '"' || json.Unmarshal(v, &p.tool) != nil {
				return nil, tga.Errorf(tga.ValidationError, "want a string").At("/params/name")
			}
			named = true
		case "arguments":
			p.args = v
		case "_meta":
			p.meta = v
		case "inputResponses", "requestState", "task":
			p.input = append(append(append(p.input, m.name...), '='), v...)
			p.input = append(p.input, 0)
		}
	}
	if !named {
		return nil, tga.Errorf(tga.ValidationError, "the member is required").At("/params/name")
	}
	if string(p.meta) == "null" {
		p.meta = nil
	}
	if p.meta != nil {
		if p.metaMembers, err = members(p.meta); err != nil {
			return nil, under("/params/_meta", err)
		}
	}
	return p, nil
}

// under puts a pointer before that of a validation error.
func under(at string, err error) error {
	if e, ok := err.(*tga.Error); ok {
		return e.At(at + e.Pointer)
	}
	return err
}

// metaValue returns a member of `_meta`.
func (p *callParams) metaValue(name string) []byte {
	for _, m := range p.metaMembers {
		if m.name == name {
			return p.meta[m.from:m.to]
		}
	}
	return nil
}

// metaText returns a member of `_meta` as text: a string, or a number as it is written.
func (p *callParams) metaText(name string) string {
	return scalarText(p.metaValue(name))
}

// scalarText is the text of a JSON string, or a number as it is written; "" for anything
// else.
func scalarText(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	switch c := v[0]; {
	case c == '"':
		var s string
		if json.Unmarshal(v, &s) == nil {
			return s
		}
	case c == '-' || c >= '0' && c <= '9':
		return string(v)
	}
	return ""
}

// govern returns the params as the tool server gets them: with the key, the trace and
// the attempt in `_meta`, and the key where the tool's server wants it as well, unless the
// caller has put something there. Every other byte stays.
func (p *callParams) govern(key, trace string, attempt uint32, tool Tool) []byte {
	ours := []byte(`"` + metaTrace + `":`)
	ours = appendString(ours, trace)
	ours = append(ours, `,"`+metaAttempt+`":`...)
	ours = appendUint(ours, uint64(attempt))
	if key != "" {
		ours = append(ours, `,"`+MetaKey+`":`...)
		ours = appendString(ours, key)
		if tool.KeyMeta != "" && p.metaValue(tool.KeyMeta) == nil {
			ours = append(appendString(append(ours, ','), tool.KeyMeta), ':')
			ours = appendString(ours, key)
		}
	}
	out := make([]byte, 0, len(p.raw)+len(ours)+64)
	done := 0
	for _, m := range p.members {
		switch {
		case m.name == "_meta":
			out = append(out, p.raw[done:m.from]...)
			out = p.appendMeta(out, ours)
			done = m.to
		case m.name == "arguments" && tool.KeyArgument != "" && key != "":
			out = append(out, p.raw[done:m.from]...)
			out = appendKeyArgument(out, p.args, tool.KeyArgument, key)
			done = m.to
		}
	}
	out = append(out, p.raw[done:]...)
	if p.hasMeta() {
		return out
	}
	// The first member is there: a name is required.
	open := bytes.IndexByte(out, '{') + 1
	rest := out[open:]
	spliced := append(append(append(make([]byte, 0, len(out)+len(ours)+16), out[:open]...), `"_meta":{`...), ours...)
	return append(append(spliced, `},`...), rest...)
}

func (p *callParams) hasMeta() bool {
	for _, m := range p.members {
		if m.name == "_meta" {
			return true
		}
	}
	return false
}

// appendMeta appends `_meta` with our members in place of those of an outer shim.
func (p *callParams) appendMeta(out, ours []byte) []byte {
	out = append(append(out, '{'), ours...)
	for _, m := range p.metaMembers {
		switch m.name {
		case MetaKey, metaTrace, metaAttempt:
			continue
		}
		out = append(out, ',')
		out = append(out, p.meta[m.start:m.to]...)
	}
	return append(out, '}')
}

// appendKeyArgument appends the arguments with the key under a pointer. Where the object
// that is to hold it is not there, they stay as they are.
func appendKeyArgument(out, args []byte, pointer, key string) []byte {
	last := strings.LastIndexByte(pointer, '/')
	from, to, ok := locate(args, pointer[:max(last, 0)])
	if !ok || last < 0 {
		return append(out, args...)
	}
	all, err := members(args[from:to])
	name := pointerMarks.Replace(pointer[last+1:])
	for _, m := range all {
		if m.name == name {
			err = errTaken
		}
	}
	if err != nil {
		return append(out, args...)
	}
	open := from + bytes.IndexByte(args[from:to], '{') + 1
	out = append(out, args[:open]...)
	out = append(appendString(out, name), ':')
	out = appendString(out, key)
	if len(all) > 0 {
		out = append(out, ',')
	}
	return append(out, args[open:]...)
}

var errTaken = tga.Errorf(tga.ValidationError, "the caller has filled the member")

// at returns the value under a JSON Pointer (RFC 6901) in a document; nil where there
// is none.
func at(doc []byte, pointer string) []byte {
	from, to, ok := locate(doc, pointer)
	if !ok {
		return nil
	}
	return doc[from:to]
}

var pointerMarks = strings.NewReplacer("~1", "/", "~0", "~")

// locate finds where the value under a JSON Pointer stands.
func locate(doc []byte, pointer string) (from, to int, ok bool) {
	from, to = 0, len(doc)
	for pointer != "" {
		token, rest, more := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
		if pointer = ""; more {
			pointer = "/" + rest
		}
		f, t, found := inside(doc[from:to], pointerMarks.Replace(token))
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
			if to := int(d.InputOffset()); string(appendUint(nil, i)) == token {
				return to - len(item), to, true
			}
		}
		return 0, 0, false
	}
	all, err := members(doc)
	if err != nil {
		return 0, 0, false
	}
	for _, m := range all {
		if m.name == token {
			return m.from, m.to, true
		}
	}
	return 0, 0, false
}
