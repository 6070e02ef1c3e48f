package client

import (
	"strconv"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// name is a string of a request that identifies something; at is its place in the request.
type name struct{ at, text string }

// exact refuses a name that JSON cannot hold unchanged. Encoded as JSON, two different keys that are not UTF-8
// could become the same key, and the second call would be answered with the record of the first.
//
// Members that only describe something are not checked: bytes in intent and hint that are not UTF-8 become U+FFFD.
// lock and executor are paths, which the daemon compares with nothing.
func exact(names ...name) error {
	for _, n := range names {
		if !utf8.ValidString(n.text) {
			return tga.Errorf(tga.ValidationError, "%q: invalid UTF-8", n.text[:min(len(n.text), 64)]).At(n.at)
		}
	}
	return nil
}

func namesOfCall(m *wire.CallRequest) []name {
	all := []name{
		{"/tool_server", m.ToolServer}, {"/tool_name", m.ToolName}, {"/idempotency_key", m.IdempotencyKey},
		{"/namespace", m.Namespace}, {"/risk_level", m.RiskLevel}, {"/scope", m.Scope}, {"/step", m.Step},
	}
	for i, r := range m.Resources {
		at := "/resources/" + strconv.Itoa(i)
		all = append(all, name{at + "/kind", r.Kind}, name{at + "/id", r.ID})
	}
	for k, v := range m.Meta {
		text, _ := v.(string)
		all = append(all, name{"/meta", k}, name{"/meta", text})
	}
	return all
}

func namesOfBegin(m *wire.BeginRequest) []name {
	all := append(namesOfCall(&m.CallRequest), name{"/begin_id", m.BeginID}, name{"/licence", m.Licence})
	if c := m.Connection; c != nil {
		all = append(all, name{"/connection/id", c.ID}, name{"/connection/subject", c.Subject})
	}
	return all
}

func namesOfKeep(m *wire.KeepRequest) []name {
	return []name{{"/tool_server", m.ToolServer}, {"/namespace", m.Namespace}, {"/name", m.Name}}
}
