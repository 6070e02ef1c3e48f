package toolcall

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/internal/onwire"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Names in `_meta`. The key is the same for every attempt of one call, so a tool server can
// deduplicate by it.
const (
	MetaKey     = "dev.tgad/idempotencyKey"
	MetaScope   = "dev.tgad/scope" // set by a client: keeps apart calls that are otherwise identical
	metaAttempt = "dev.tgad/attempt"

	proposedKey = "idempotencyKey" // a member of params, as SEP-3182 proposed
)

// MaxParams is the longest params of a tools/call, in bytes. The log limits the arguments, and the
// other members need not be longer.
const MaxParams = 32 << 20

// Params are the parsed params of a tools/call.
type Params struct {
	Raw     []byte
	members []mcpraw.Member
	Tool    string
	Args    []byte // nil if there are none
	meta    []byte // nil if there is none
	// Input has the members by which a client continues a call that wanted input
	// (inputResponses, requestState) or asks for a task (task). Messages with different input
	// are different messages of a call.
	Input []byte
	// Proposed is the member idempotencyKey, which SEP-3182 proposed; nil if there is none.
	Proposed []byte

	metaMembers []mcpraw.Member
}

// Around returns the bytes before and after the params of a message.
func Around(f *frames.Frame) (head, tail []byte, err error) {
	if head, err = f.Bytes(mcpraw.Span{From: 0, To: f.Params.From}, frames.SpillBytes); err != nil {
		return nil, nil, err
	}
	tail, err = f.Bytes(mcpraw.Span{From: f.Params.To, To: f.Size}, frames.SpillBytes)
	return head, tail, err
}

// Parse reads the params of a tools/call. Of the members it decodes only name.
func Parse(raw []byte) (*Params, error) {
	p := &Params{Raw: raw}
	var err error
	if p.members, err = mcpraw.Members(raw, "name", "arguments", "_meta", "inputResponses", "requestState", "task", proposedKey); err != nil {
		return nil, Under("/params", err)
	}
	named := false
	for _, m := range p.members {
		v := raw[m.From:m.To]
		switch m.Name {
		case "name":
			if v[0] != '"' || json.Unmarshal(v, &p.Tool) != nil {
				return nil, tga.Errorf(tga.ValidationError, "want a string").At("/params/name")
			}
			named = true
		case "arguments":
			p.Args = v
		case "_meta":
			p.meta = v
		case proposedKey:
			p.Proposed = v
		case "inputResponses", "requestState", "task":
			p.Input = append(append(append(p.Input, m.Name...), '='), v...)
			p.Input = append(p.Input, 0)
		}
	}
	if !named {
		return nil, tga.Errorf(tga.ValidationError, "the member is required").At("/params/name")
	}
	if string(p.meta) == "null" {
		p.meta = nil
	}
	if p.meta != nil {
		if p.metaMembers, err = mcpraw.Members(p.meta); err != nil {
			return nil, Under("/params/_meta", err)
		}
	}
	return p, nil
}

// Under puts a JSON Pointer before the pointer of a [tga.Error].
func Under(at string, err error) error {
	if e, ok := err.(*tga.Error); ok {
		return e.At(at + e.Pointer)
	}
	return err
}

// MetaValue returns a member of `_meta`.
func (p *Params) MetaValue(name string) []byte {
	for _, m := range p.metaMembers {
		if m.Name == name {
			return p.meta[m.From:m.To]
		}
	}
	return nil
}

// MetaText returns the text of a member of `_meta`: a string, or a number as it is written.
func (p *Params) MetaText(name string) string {
	return mcpraw.ScalarText(p.MetaValue(name))
}

// Revision is the protocol revision that the request itself names.
func (p *Params) Revision() mcpraw.Revision {
	return mcpraw.Revision(p.MetaText(mcpraw.MetaRevision))
}

// Protocol makes the params of another request of the same sender. They have the members of
// `_meta` that a revision without a handshake wants in each request. It returns "{}" if the
// revision has a handshake.
func (p *Params) Protocol() []byte {
	b := []byte(`{"_meta":{`)
	for _, name := range []string{mcpraw.MetaRevision, say.MetaClientInfo, say.MetaCapabilities} {
		if v := p.MetaValue(name); v != nil {
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(append(tga.AppendString(b, name), ':'), v...)
		}
	}
	if !p.Revision().Stateless() {
		return []byte("{}")
	}
	return append(b, "}}"...)
}

// ProtocolOf is [Params.Protocol] for the params of any request.
func ProtocolOf(params []byte) []byte {
	p := Params{meta: mcpraw.At(params, "/_meta")}
	if p.meta != nil {
		if all, err := mcpraw.Members(p.meta); err == nil { // else it says nothing
			p.metaMembers = all
		}
	}
	return p.Protocol()
}

// Govern returns the params that the tool server gets. It puts the key, the trace, the attempt
// and the span sc of the send (if any) into `_meta`. It also puts the key into the places that
// tool names, unless the caller has filled them. It replaces the arguments by args, their
// canonical form, so that the tool gets the bytes that were digested. Every other byte stays.
func (p *Params) Govern(args []byte, key, trace string, attempt uint32, tool Tool, sc runtime.SpanContext) []byte {
	ours := []byte(`"` + say.MetaTrace + `":`)
	ours = tga.AppendString(ours, trace)
	ours = append(ours, `,"`+metaAttempt+`":`...)
	ours = strconv.AppendUint(ours, uint64(attempt), 10)
	if key != "" {
		ours = append(ours, `,"`+MetaKey+`":`...)
		ours = tga.AppendString(ours, key)
		if tool.KeyMeta != "" && p.MetaValue(tool.KeyMeta) == nil {
			ours = append(tga.AppendString(append(ours, ','), tool.KeyMeta), ':')
			ours = tga.AppendString(ours, key)
		}
	}
	ours = onwire.AppendSpan(ours, tool.KeyMeta, sc)
	out := make([]byte, 0, len(p.Raw)+len(ours)+64)
	done := 0
	for _, m := range p.members {
		switch {
		case m.Name == "_meta":
			out = append(out, p.Raw[done:m.From]...)
			out = p.appendMeta(out, ours, sc != runtime.SpanContext{})
			done = m.To
		case m.Name == proposedKey && key != "" && mcpraw.ScalarText(p.Proposed) != key:
			out = append(out, p.Raw[done:m.From]...)
			out = tga.AppendString(out, key)
			done = m.To
		case m.Name == "arguments":
			out = append(out, p.Raw[done:m.From]...)
			if tool.KeyArgument != "" && key != "" {
				out = appendKeyArgument(out, args, tool.KeyArgument, key)
			} else {
				out = append(out, args...)
			}
			done = m.To
		}
	}
	out = append(out, p.Raw[done:]...)
	if p.hasMeta() {
		return out
	}
	// out has at least one member, because name is required.
	open := bytes.IndexByte(out, '{') + 1
	rest := out[open:]
	spliced := append(append(append(make([]byte, 0, len(out)+len(ours)+16), out[:open]...), `"_meta":{`...), ours...)
	return append(append(spliced, `},`...), rest...)
}

func (p *Params) hasMeta() bool {
	for _, m := range p.members {
		if m.Name == "_meta" {
			return true
		}
	}
	return false
}

// appendMeta appends `_meta` with our members. It drops the same members of an outer shim.
func (p *Params) appendMeta(out, ours []byte, spans bool) []byte {
	out = append(append(out, '{'), ours...)
	for _, m := range p.metaMembers {
		switch m.Name {
		case MetaKey, say.MetaTrace, metaAttempt:
			continue
		}
		if spans && slices.Contains(onwire.SpanNames[:], m.Name) {
			continue // ours has the span context of this send
		}
		out = append(out, ',')
		out = append(out, p.meta[m.Start:m.To]...)
	}
	return append(out, '}')
}

// appendKeyArgument appends the arguments with the key at a JSON Pointer. The arguments stay
// unchanged if the object for the key is absent, or if the member is filled already.
func appendKeyArgument(out, args []byte, pointer, key string) []byte {
	last := strings.LastIndexByte(pointer, '/')
	from, to, ok := mcpraw.Locate(args, pointer[:max(last, 0)])
	if !ok || last < 0 {
		return append(out, args...)
	}
	all, err := mcpraw.Members(args[from:to])
	name := tga.UnescapeToken(pointer[last+1:])
	for _, m := range all {
		if m.Name == name {
			err = errTaken
		}
	}
	if err != nil {
		return append(out, args...)
	}
	open := from + bytes.IndexByte(args[from:to], '{') + 1
	out = append(out, args[:open]...)
	out = append(tga.AppendString(out, name), ':')
	out = tga.AppendString(out, key)
	if len(all) > 0 {
		out = append(out, ',')
	}
	return append(out, args[open:]...)
}

var errTaken = tga.Errorf(tga.ValidationError, "the caller has filled the member")
