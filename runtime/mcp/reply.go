package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// answer is what came back for one request: exactly one of the two members is present,
// or refused says why the server did not take the request at all.
type answer struct {
	result  capture
	fault   capture // the error member
	refused string
}

// replyCodes says what a JSON-RPC error code of tools/call means. A code that is not
// here is the tool's own failure: the server answered, so it is recorded and not sent
// again.
var replyCodes = map[int64]replyMeaning{
	-32700: refusedBefore, // parse error
	-32600: refusedBefore, // invalid request
	-32601: refusedBefore, // no such method
	-32602: refusedBefore, // no such tool, or bad arguments
	-32020: refusedBefore, // 2026-07-28: a header contradicts the body
	-32021: refusedBefore, // 2026-07-28: a client capability is missing
	-32022: refusedBefore, // 2026-07-28: protocol version not supported

	// The reference implementations make these two up on the client's side. A server
	// that is itself a proxy passes them on: it does not know what happened behind it.
	-32000: unknownFate, // connection closed
	-32001: unknownFate, // request timed out

	-32042: notFinal, // the server wants a person to open a URL first
}

type replyMeaning uint8

const (
	toolFailed replyMeaning = iota
	refusedBefore
	unknownFate
	notFinal
)

// Longest texts that an effect may carry (docs/FORMAT.md).
const maxMessage = 200

// reply turns the answer to an attempt into what the runtime records. An error means
// doubt: the call reached the server and what came back does not say what happened.
//
// From the second attempt on, a refusal says that this attempt did nothing, and
// nothing of an earlier one that may have run. To record it as the call's effect would
// end that doubt with a guess. It is ErrNotSent, and the ledger knows what is left in
// doubt.
func (a *answer) reply(attempt uint32) (runtime.Reply, error) {
	switch {
	case a.refused != "" && attempt > 1:
		return runtime.Reply{}, notSent("the server refused this attempt: %s", clip(a.refused, maxMessage))
	case a.refused != "":
		return runtime.Reply{
			Status: tga.StatusDenied, Class: ledger.ClassPermanent,
			ErrorCode: string(tga.ToolError), ErrorMessage: clip(a.refused, maxMessage),
		}, nil
	case a.result.present && a.fault.present:
		return runtime.Reply{}, fmt.Errorf("reply has both a result and an error")
	case a.result.truncated():
		return truncated(&a.result), nil
	case a.fault.truncated():
		return truncated(&a.fault), nil
	case a.fault.present:
		return a.faultReply(attempt)
	case a.result.present:
		return a.resultReply()
	}
	return runtime.Reply{}, fmt.Errorf("reply has neither a result nor an error")
}

// control returns the result of a request that is not a call: handshake, list.
func (a *answer) control() (json.RawMessage, error) {
	switch {
	case a.refused != "":
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: a.refused}
	case a.result.truncated(), a.fault.truncated():
		return nil, tga.Errorf(tga.LimitExceeded, "answer of %d bytes is over the limit of %d",
			max(a.result.bytes, a.fault.bytes), a.result.limit)
	case a.fault.present:
		fault := new(jsonrpc.Error)
		if err := json.Unmarshal(a.fault.data, fault); err != nil {
			return nil, fmt.Errorf("reply's error member: %w", err)
		}
		return nil, fault
	case !json.Valid(a.result.data):
		return nil, fmt.Errorf("reply's result is no JSON")
	}
	return a.result.data, nil
}

func truncated(c *capture) runtime.Reply {
	return runtime.Reply{
		Status: tga.StatusError, Truncated: true, ResultBytes: c.bytes, ResultDigest: c.digest(),
		ErrorCode:    string(tga.LimitExceeded),
		ErrorMessage: fmt.Sprintf("answer of %d bytes is over the limit of %d", c.bytes, c.limit),
	}
}

func whole(c *capture) runtime.Reply {
	return runtime.Reply{Result: c.data, ResultBytes: c.bytes, ResultDigest: c.digest()}
}

func (a *answer) faultReply(attempt uint32) (runtime.Reply, error) {
	var fault struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(a.fault.data, &fault); err != nil {
		return runtime.Reply{}, fmt.Errorf("reply's error member: %w", err)
	}
	said := fmt.Sprintf("JSON-RPC error %d: %s", fault.Code, fault.Message)
	switch replyCodes[fault.Code] {
	case unknownFate:
		return runtime.Reply{}, fmt.Errorf("server does not know what happened: %s", clip(said, maxMessage))
	case notFinal:
		return runtime.Reply{}, fmt.Errorf("reply is not a final effect: %s", clip(said, maxMessage))
	case refusedBefore:
		if attempt > 1 {
			return runtime.Reply{}, notSent("the server refused this attempt: %s", clip(said, maxMessage))
		}
		r := whole(&a.fault)
		r.Status, r.Class = tga.StatusFailure, ledger.ClassPermanent
		r.ErrorCode, r.ErrorMessage = string(tga.ValidationError), clip(said, maxMessage)
		return r, nil
	}
	if attempt > 1 {
		return runtime.Reply{}, fmt.Errorf("attempt failed, an earlier one may have run: %s", clip(said, maxMessage))
	}
	r := whole(&a.fault)
	r.Status = tga.StatusFailure
	r.ErrorCode, r.ErrorMessage = string(tga.ToolError), clip(said, maxMessage)
	return r, nil
}

func (a *answer) resultReply() (runtime.Reply, error) {
	// A map and not a struct: encoding/json would take "iserror" for isError.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(a.result.data, &members); err != nil {
		return runtime.Reply{}, fmt.Errorf("reply's result is no JSON object: %w", err)
	}
	if members == nil {
		return runtime.Reply{}, fmt.Errorf("reply's result is null")
	}
	// 2026-07-28 has results that end the request and not the call. The tool may act
	// later, so recording one as the effect would close the ledger's row too early.
	kind := "complete"
	if raw, ok := members["resultType"]; ok {
		if err := json.Unmarshal(raw, &kind); err != nil {
			return runtime.Reply{}, fmt.Errorf("reply's resultType: %w", err)
		}
	}
	if kind != "complete" {
		return runtime.Reply{}, fmt.Errorf("reply is not a final effect: resultType is %q", clip(kind, maxMessage))
	}
	failed := false
	if raw, ok := members["isError"]; ok {
		if err := json.Unmarshal(raw, &failed); err != nil {
			return runtime.Reply{}, fmt.Errorf("reply's isError: %w", err)
		}
	}
	r := whole(&a.result)
	r.Status = tga.StatusSuccess
	if failed {
		r.Status = tga.StatusFailure
		r.ErrorCode, r.ErrorMessage = string(tga.ToolError), clip(firstText(members["content"]), maxMessage)
	}
	return r, nil
}

// firstText returns the first text of a result's content. It is for people: content
// of another form gives "".
func firstText(content json.RawMessage) string {
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &blocks) != nil {
		return ""
	}
	for _, b := range blocks {
		if b.Type == "text" {
			return b.Text
		}
	}
	return ""
}

// clip returns the first n characters of s, as valid UTF-8.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
