package mcpfront

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/runtime"
)

// mirrors are the annotations of the tools' definitions, as they were last listed.
type mirrors struct {
	mu    sync.Mutex
	tools map[string]mirror
	whole bool // all the tools are in it
	age   int  // how often they were forgotten
}

// mirror is what one definition says.
type mirror struct {
	headers []mcpraw.ParamHeader
	bad     error // why the tool is not to be offered
	hint    string
}

func readMirror(definition []byte) (m mirror) {
	m.headers, m.bad = mcpraw.ParamHeaders(mcpraw.At(definition, "/inputSchema"))
	for _, h := range []struct{ at, means string }{{"readOnlyHint", runtime.HintReadOnly}, {"idempotentHint", runtime.HintIdempotent}} {
		if m.hint == "" && string(mcpraw.At(definition, "/annotations/"+h.at)) == "true" {
			m.hint = h.means
		}
	}
	return m
}

func (m *mirrors) learn(page []definition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tools == nil {
		m.tools = map[string]mirror{}
	}
	for _, d := range page {
		m.tools[d.name] = readMirror(d.raw)
	}
}

// since is when a list begins that [mirrors.all] is said of.
func (m *mirrors) since() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.age
}

// all says that every tool has been learnt. Of a list in the course of which its first
// pages were forgotten it is not true.
func (m *mirrors) all(since int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.whole = m.whole || m.age == since
}

// forget makes the next call look at the definitions again.
func (m *mirrors) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tools, m.whole = nil, false
	m.age++
}

func (m *mirrors) of(tool string) (_ mirror, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.tools[tool]
	return found, ok || m.whole
}

// mirroredOf are the headers of a message's arguments, as they are sent.
func mirroredOf(headers []mcpraw.ParamHeader, params []byte) []mcpraw.ParamValue {
	if len(headers) == 0 {
		return nil
	}
	// What mirrored let through can be carried; a key that was put in is a string.
	values, _ := mcpraw.ParamValues(headers, mcpraw.At(params, "/arguments"))
	return values
}

// equalHeaders reports whether two definitions want the same arguments in headers.
func equalHeaders(a, b []mcpraw.ParamHeader) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errors.Join(errX, errY) == nil && bytes.Equal(x, y)
}

// offered takes the tools out of a list that a client over HTTP must not see: those whose
// annotations break the rules for headers. All else stays as it came.
func offered(f *frames.Frame, log *slog.Logger) *frames.Frame {
	if !f.Result.Present() || int64(len(f.Head)) != f.Size {
		return f // of one that is too long the calls are refused
	}
	result, err := f.Bytes(f.Result, frames.SpillBytes)
	from, to, ok := mcpraw.Locate(result, "/tools")
	if err != nil || !ok {
		return f
	}
	var list []json.RawMessage
	if json.Unmarshal(result[from:to], &list) != nil {
		return f
	}
	kept, left := []byte{'['}, 0
	for _, raw := range list {
		if m := readMirror(raw); m.bad != nil {
			log.Warn("a tool is not offered: its definition breaks the rules for headers",
				"tool", mcpraw.ScalarText(mcpraw.At(raw, "/name")), "error", m.bad)
			left++
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, raw...)
	}
	if left == 0 {
		return f
	}
	at := mcpraw.Span{From: f.Result.From + int64(from), To: f.Result.From + int64(to)}
	return frames.Replace(f, at, append(kept, ']'))
}
