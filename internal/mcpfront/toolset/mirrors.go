package toolset

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

// Mirrors holds the annotations of the tools' definitions that were listed last.
type Mirrors struct {
	mu    sync.Mutex
	tools map[string]Mirror
	whole bool // tools has all tools of the server
	age   int  // how often the annotations were forgotten
}

// Mirror holds the annotations of one definition.
type Mirror struct {
	Headers []mcpraw.ParamHeader
	Bad     error // why the tool must not be offered; nil if it may be
	Hint    string
}

func readMirror(definition []byte) (m Mirror) {
	m.Headers, m.Bad = mcpraw.ParamHeaders(mcpraw.At(definition, "/inputSchema"))
	for _, h := range []struct{ at, means string }{{"readOnlyHint", runtime.HintReadOnly}, {"idempotentHint", runtime.HintIdempotent}} {
		if m.Hint == "" && string(mcpraw.At(definition, "/annotations/"+h.at)) == "true" {
			m.Hint = h.means
		}
	}
	return m
}

// Learn remembers the annotations of a part of a list.
func (m *Mirrors) Learn(page []Definition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tools == nil {
		m.tools = map[string]Mirror{}
	}
	for _, d := range page {
		m.tools[d.Name] = readMirror(d.Raw)
	}
}

// Since returns a mark of now. Call it before a list, and [Mirrors.All] with the mark after it.
func (m *Mirrors) Since() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.age
}

// All says that every tool of a list has been learnt. It has no effect if the annotations were
// forgotten since the list began: then its first pages are missing.
func (m *Mirrors) All(since int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.whole = m.whole || m.age == since
}

// Forget makes the next call read the definitions again.
func (m *Mirrors) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tools, m.whole = nil, false
	m.age++
}

// Of returns the annotations of a tool. known says that the tool was listed, or that all tools of the server were.
func (m *Mirrors) Of(tool string) (_ Mirror, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.tools[tool]
	return found, ok || m.whole
}

// MirroredOf returns the headers of a message's arguments.
func MirroredOf(headers []mcpraw.ParamHeader, params []byte) []mcpraw.ParamValue {
	if len(headers) == 0 {
		return nil
	}
	// No error: mirrored has checked the arguments, and a key that was added is a string.
	values, _ := mcpraw.ParamValues(headers, mcpraw.At(params, "/arguments"))
	return values
}

// EqualHeaders reports whether two definitions want the same arguments in headers.
func EqualHeaders(a, b []mcpraw.ParamHeader) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errors.Join(errX, errY) == nil && bytes.Equal(x, y)
}

// Offered removes the tools from a list whose annotations break the rules for headers. All else
// stays unchanged.
func Offered(f *frames.Frame, log *slog.Logger) *frames.Frame {
	if !f.Result.Present() || int64(len(f.Head)) != f.Size {
		return f // the list is too long to change; calls of such a tool are refused
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
		if m := readMirror(raw); m.Bad != nil {
			log.Warn("a tool is not offered: its definition breaks the rules for headers",
				"tool", mcpraw.ScalarText(mcpraw.At(raw, "/name")), "error", m.Bad)
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
