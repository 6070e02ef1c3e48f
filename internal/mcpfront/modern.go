//go:build unix

package mcpfront

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/tgad/tgad/internal/mcpfront/frames"
	"github.com/tgad/tgad/internal/mcpfront/say"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/schemas/tga"
)

// What revision 2026-07-28 wants of a server over HTTP: that it refuses a request whose
// headers are not those of its body, since who routes by the headers must not see another
// request than who acts on the body, and that some errors have a status of their own.
// Clients of earlier revisions see nothing of it.

const (
	versionHeader = "Mcp-Protocol-Version"
	paramHeader   = "Mcp-Param-"
)

// onceHeaders may not be there twice: who reads the one need not have read the other.
var onceHeaders = []string{versionHeader, "Mcp-Method", "Mcp-Name"}

// statusOf is the status that an answer goes with: 200 for all that has none of its own.
func statusOf(answer []byte) int {
	m, code := frames.NewFrame(answer), int64(0)
	if m.Bad == "" && m.Fault.Present() && json.Unmarshal(mcpraw.At(answer[m.Fault.From:m.Fault.To], "/code"), &code) == nil {
		return mcpraw.StatusOf(code)
	}
	return http.StatusOK
}

// refusal is why a message is not taken.
type refusal struct {
	status, code int
	words        string
	challenge    *frames.Challenge // sets the status in place of status; nil is none
}

func malformed(code int, words string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: code, words: words}
}

func mismatch(header string) *refusal {
	return malformed(mcpraw.CodeHeaderMismatch, "the header "+header+" is not what the body says")
}

// unfit refuses a message that does not pass, whatever its revision.
func unfit(m *frames.Frame, status int) *refusal {
	code := mcpraw.CodeInvalidRequest
	if m.RawID == nil {
		code = mcpraw.CodeParse
	}
	return &refusal{status: status, code: code, words: "the message does not pass: " + m.Bad}
}

// isModern reports whether a message is of a revision without a handshake, by its header or
// by its body. An array is where one of its messages is.
func isModern(h http.Header, m *frames.Frame) bool {
	if mcpraw.Revision(h.Get(versionHeader)).Stateless() || m.Bad == "" && !m.Batch && mcpraw.RevisionOf(m.Head[m.Params.From:m.Params.To]).Stateless() {
		return true
	}
	if m.Bad == "" && m.Batch {
		for _, e := range splitBatch(m) {
			if !e.Batch && isModern(nil, e) {
				return true
			}
		}
	}
	return false
}

// refused says why a message of the revision is not taken; nil where it may be. The headers
// of single arguments are compared later: for them the tool's definition must be known.
func refused(h http.Header, m *frames.Frame) *refusal {
	switch {
	case m.Bad != "":
		return unfit(m, http.StatusBadRequest)
	case m.Batch:
		return malformed(mcpraw.CodeInvalidRequest, "this protocol revision has no arrays of messages")
	case m.IsNotification():
		return nil // which headers it has the revision does not say
	case !m.IsRequest():
		return malformed(mcpraw.CodeInvalidRequest, "this protocol revision has no answers of a client's")
	}
	for _, name := range onceHeaders {
		if len(h.Values(name)) > 1 {
			return mismatch(name)
		}
	}
	params := m.Head[m.Params.From:m.Params.To]
	if mcpraw.RevisionOf(params) == "" {
		return malformed(mcpraw.CodeInvalidParams, "the request does not name its protocol revision in _meta")
	}
	if at := mcpraw.Mismatch(h, m.Method, params); at != "" {
		return mismatch(at)
	}
	if can := mcpraw.At(params, "/_meta/"+tga.EscapeToken(say.MetaCapabilities)); can == nil || can[0] != '{' {
		return malformed(mcpraw.CodeInvalidParams, "the request does not say in _meta what its client can do")
	}
	return nil
}

// refusedParams compares the headers of a call's arguments with the arguments. A header that
// the tool's definition does not name is nobody's, and so are all of a tool that is in no
// list, of a tool server that lists none, and of a definition that breaks the rules. Where
// the tool server could not be asked the call is refused: its headers may be those of
// another call.
func (k *catalog) refusedParams(ctx context.Context, h http.Header, m *frames.Frame) *refusal {
	if m.Method != "tools/call" {
		return nil
	}
	p, err := parseCall(m.Head[m.Params.From:m.Params.To])
	if err != nil {
		return nil // and so it is refused for that
	}
	marks, err := k.marks(ctx, p)
	if err != nil {
		no := &refusal{status: http.StatusOK, code: mcpraw.CodeGone, words: "the call was not sent: the definition of its tool cannot be had, to compare the headers with: " + err.Error()}
		errors.As(err, &no.challenge)
		return no
	}
	if marks.bad != nil {
		return nil
	}
	for _, mark := range marks.headers {
		if !sameParam(h.Values(paramHeader+mark.Header), mark, p.args) {
			return mismatch(paramHeader + mark.Header)
		}
	}
	return nil
}

// sameParam reports whether the values of a header are that of its argument: none for one
// that is not given, or null.
func sameParam(values []string, mark mcpraw.ParamHeader, args []byte) bool {
	want, err := mcpraw.ParamValues([]mcpraw.ParamHeader{mark}, args)
	if err != nil {
		return false // no header can carry it
	}
	if len(want) == 0 || len(values) != 1 {
		return len(want) == len(values)
	}
	text, ok := headerText(values[0])
	if !ok {
		return false
	}
	return text == want[0].Value || isNumber(args, mark.Path) && integer(text) == want[0].Value
}

// headerText is what the value of a header says: in base64 where it is marked so.
func headerText(v string) (text string, ok bool) {
	const from, to = "=?base64?", "?="
	for i := range len(v) {
		if (v[i] < ' ' || v[i] > '~') && v[i] != '\t' {
			return "", false
		}
	}
	if len(v) < len(from)+len(to) || !strings.HasPrefix(v, from) || !strings.HasSuffix(v, to) {
		return v, true
	}
	b, err := base64.StdEncoding.Strict().DecodeString(v[len(from) : len(v)-len(to)])
	return string(b), err == nil
}

// isNumber reports whether an argument is a number: one is compared by its value, 42.0 is 42.
func isNumber(args []byte, path []string) bool {
	pointer := ""
	for _, name := range path {
		pointer += "/" + tga.ReadableToken(name)
	}
	v := mcpraw.At(args, pointer)
	return len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9')
}

// integer is a number as a header of the shim's would say it; "" for what is none.
func integer(text string) string {
	if text == "" || text[0] == '"' || !json.Valid([]byte(text)) {
		return ""
	}
	all, err := mcpraw.ParamValues([]mcpraw.ParamHeader{{Path: []string{"n"}}}, []byte(`{"n":`+text+`}`))
	if err != nil || len(all) != 1 {
		return ""
	}
	return all[0].Value
}

// answer answers the message of an id with the refusal; nil is none, as where it was not read.
func (r *refusal) answer(w http.ResponseWriter, id []byte) {
	raw := []byte(`{"jsonrpc":"2.0",`)
	if id != nil {
		raw = append(append(append(raw, `"id":`...), id...), ',')
	}
	raw = append(raw, `"error":{"code":`+itoa(r.code)+`,"message":`...)
	raw = append(tga.AppendString(raw, "tgad: "+r.words), "}}"...)
	w.Header().Set("Content-Type", "application/json")
	if r.challenge != nil {
		r.challenge.Head(w)
	} else {
		w.WriteHeader(r.status)
	}
	_, _ = w.Write(raw) // a client that is gone by now needs no answer
}
