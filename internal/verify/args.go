package verify

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Args is a JSON object made from a subject. Each member is either a name of the subject,
// or = and a constant in JSON. With a ? after the name, the member is left out if the
// subject has no value.
type Args struct {
	key     string
	members []argsMember
}

type argsMember struct {
	name     string // of the member
	from     string // of the subject; "" = the constant
	optional bool
	constant json.RawMessage
}

// ParseArgs reads the table of an [Args]. key is for errors.
func ParseArgs(key string, table map[string]string, names Names) (*Args, error) {
	a := &Args{key: key}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		m := argsMember{name: name}
		if constant, ok := strings.CutPrefix(table[name], "="); ok {
			if err := tga.Gate([]byte(constant), tga.Limits{}); err != nil {
				return nil, Invalid(key+"."+name, "what follows = is no JSON that can be sent: %w", err)
			}
			m.constant = json.RawMessage(constant)
		} else {
			m.from, m.optional = strings.CutSuffix(table[name], "?")
			if err := names.Check(key+"."+name, m.from); err != nil {
				return nil, err
			}
		}
		a.members = append(a.members, m)
	}
	return a, nil
}

// Names are the names of the subject that members take their values from.
func (a *Args) Names() []string {
	var names []string
	for _, m := range a.members {
		if m.from != "" {
			names = append(names, m.from)
		}
	}
	return names
}

// Build returns the object in canonical form. A number of the arguments keeps its
// value. VALIDATION_ERROR names a value that is missing.
func (a *Args) Build(s Subject) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, m := range a.members {
		value := Doc(m.constant)
		if m.from != "" {
			var err error
			if value, err = s.value(m.from); err != nil {
				return nil, err
			}
		}
		if value == nil {
			if m.optional {
				continue
			}
			return nil, tga.Errorf(tga.ValidationError, "%s.%s: there is no value for %s", a.key, m.name, m.from)
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return tga.Canonicalize(b.Bytes(), tga.Limits{})
}
