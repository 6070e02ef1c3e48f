//go:build unix

package entry

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// Revision 2026-07-28 has two rules for a server over HTTP. The server refuses a request whose
// headers differ from its body: a proxy that routes by the headers must see the same request as
// the server that acts on the body. And some errors have an HTTP status of their own. Clients of
// earlier revisions are not affected.

const versionHeader = "Mcp-Protocol-Version"

// onceHeaders may occur only once: of two, a proxy could read one and the server the other.
var onceHeaders = []string{versionHeader, "Mcp-Method", "Mcp-Name"}

// statusOf is the HTTP status of an answer: 200 unless its error has a status of its own.
func statusOf(answer []byte) int {
	m, code := frames.NewFrame(answer), int64(0)
	if m.Bad == "" && m.Fault.Present() && json.Unmarshal(mcpraw.At(answer[m.Fault.From:m.Fault.To], "/code"), &code) == nil {
		return mcpraw.StatusOf(code)
	}
	return http.StatusOK
}

// Refusal says why a message is refused.
type Refusal struct {
	Status, Code int
	Words        string
	Challenge    *frames.Challenge // its status replaces Status; nil is none
}

func malformed(code int, words string) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Code: code, Words: words}
}

// Mismatch refuses a message with a header that differs from its body.
func Mismatch(header string) *Refusal {
	return malformed(mcpraw.CodeHeaderMismatch, "the header "+header+" is not what the body says")
}

// unfit refuses a malformed message, whatever its revision.
func unfit(m *frames.Frame, status int) *Refusal {
	code := mcpraw.CodeInvalidRequest
	if m.RawID == nil {
		code = mcpraw.CodeParse
	}
	return &Refusal{Status: status, Code: code, Words: "the message does not pass: " + m.Bad}
}

// isModern reports whether a message is of a revision without a handshake, by its header or by
// its body. An array is if one of its messages is.
func isModern(h http.Header, m *frames.Frame) bool {
	if mcpraw.Revision(h.Get(versionHeader)).Stateless() || m.Bad == "" && !m.Batch && mcpraw.RevisionOf(m.Head[m.Params.From:m.Params.To]).Stateless() {
		return true
	}
	if m.Bad == "" && m.Batch {
		for _, e := range frames.Split(m) {
			if !e.Batch && isModern(nil, e) {
				return true
			}
		}
	}
	return false
}

// refused says why a message of the revision is refused, nil if it is not. The headers of
// arguments are compared later, because that needs the tool's definition.
func refused(h http.Header, m *frames.Frame) *Refusal {
	switch {
	case m.Bad != "":
		return unfit(m, http.StatusBadRequest)
	case m.Batch:
		return malformed(mcpraw.CodeInvalidRequest, "this protocol revision has no arrays of messages")
	case m.IsNotification():
		return nil // the revision does not say which headers a notification has
	case !m.IsRequest():
		return malformed(mcpraw.CodeInvalidRequest, "this protocol revision has no answers of a client's")
	}
	for _, name := range onceHeaders {
		if len(h.Values(name)) > 1 {
			return Mismatch(name)
		}
	}
	params := m.Head[m.Params.From:m.Params.To]
	if mcpraw.RevisionOf(params) == "" {
		return malformed(mcpraw.CodeInvalidParams, "the request does not name its protocol revision in _meta")
	}
	if at := mcpraw.Mismatch(h, m.Method, params); at != "" {
		return Mismatch(at)
	}
	if can := mcpraw.At(params, "/_meta/"+tga.EscapeToken(say.MetaCapabilities)); can == nil || can[0] != '{' {
		return malformed(mcpraw.CodeInvalidParams, "the request does not say in _meta what its client can do")
	}
	return nil
}

// answer answers a message with the refusal. id is the message's id, nil if it was not read.
func (r *Refusal) answer(w http.ResponseWriter, id []byte) error {
	raw := []byte(`{"jsonrpc":"2.0",`)
	if id != nil {
		raw = append(append(append(raw, `"id":`...), id...), ',')
	}
	raw = append(raw, `"error":{"code":`+strconv.Itoa(r.Code)+`,"message":`...)
	raw = append(tga.AppendString(raw, "tgad: "+r.Words), "}}"...)
	w.Header().Set("Content-Type", "application/json")
	if r.Challenge.ComesBack() {
		r.Challenge.Head(w)
	} else {
		w.WriteHeader(r.Status)
	}
	_, err := w.Write(raw)
	return err
}

// refuse answers a message that is refused. It ignores a client that is gone by then.
func (f *Front) refuse(w http.ResponseWriter, no *Refusal, id []byte) {
	if err := no.answer(w, id); err != nil {
		f.o.Log.Debug("a refusal was not delivered", "error", err)
	}
}
