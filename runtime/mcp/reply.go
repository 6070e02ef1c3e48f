package mcp

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/internal/mcpanswer"
	"github.com/tgad/tgad/internal/mcpraw"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// answer is the answer to one request. It has a result, an error member (fault), or in refused
// the reason why the server did not accept the request at all.
type answer struct {
	result  capture
	fault   capture // the error member
	refused string
	busy    bool          // the server refused because it is busy: it may take the same request later
	ended   bool          // the server refused because it has ended the session
	after   time.Duration // Retry-After of a server that refused
}

// reply turns the answer to an attempt into what the runtime records. An error other than
// ErrNotSent means doubt: the call reached the server, and the answer does not say what happened.
//
// From the second attempt on, a refusal says only that this attempt did nothing. An earlier
// attempt may have run, and to record the refusal as the call's effect would end that doubt with
// a guess. So such a refusal is ErrNotSent, and in the ledger the earlier attempt stays in doubt.
//
// A server that has ended the session says nothing about the call. It wants the call in a new
// session, so this refusal too is ErrNotSent: as the effect it would answer each repeat of the key.
func (a *answer) reply(attempt uint32) (runtime.Reply, error) {
	switch {
	case a.refused != "" && (attempt > 1 || a.ended):
		e := tga.Errorf(tga.ToolError, "%w", notSent("the server refused this attempt: %s", clip.Runes(a.refused, mcpanswer.MaxMessage)))
		e.RetryAfter = a.after
		return runtime.Reply{}, e
	case a.refused != "":
		return runtime.Reply{
			Status: tga.StatusDenied, Class: ledger.ClassPermanent,
			ErrorCode: string(tga.ToolError), ErrorMessage: clip.Runes(a.refused, mcpanswer.MaxMessage),
			RetryAfter: a.after,
		}, nil
	case a.result.present && a.fault.present:
		return runtime.Reply{}, fmt.Errorf("reply has both a result and an error")
	case a.result.truncated():
		return a.result.reply(), nil
	case a.fault.truncated():
		return a.fault.reply(), nil
	case a.fault.present:
		return read(mcpanswer.ReadFault(a.fault.data, attempt), &a.fault, attempt)
	case a.result.present:
		return read(mcpanswer.ReadResult(a.result.data), &a.result, attempt)
	}
	return runtime.Reply{}, fmt.Errorf("reply has neither a result nor an error")
}

// answerIn is the answer that a message is. JSON-RPC 1.0 has both members, of which one is null.
func answerIn(m *message) *answer {
	a := &answer{result: m.result, fault: m.fault}
	switch {
	case !a.result.present || !a.fault.present:
	case string(a.fault.data) == "null":
		a.fault = capture{}
	case string(a.result.data) == "null":
		a.result = capture{}
	}
	return a
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

// reply returns what is recorded for an answer that is too long to keep.
func (c *capture) reply() runtime.Reply { return mcpanswer.Truncated(c.bytes, c.digest(), c.limit) }

// read turns a parsed answer into the reply to an attempt.
func read(said mcpanswer.Answer, c *capture, attempt uint32) (runtime.Reply, error) {
	switch said.Meaning {
	case mcpraw.IsEffect:
	case mcpraw.IsRefusal:
		if attempt > 1 {
			return runtime.Reply{}, notSent("the server refused this attempt: %s", said.Why)
		}
	case mcpraw.WantsURL:
		// Nobody at this end can open it. The code keeps the call from being tried again at once, and from counting as a failure of the server.
		return runtime.Reply{}, tga.Errorf(tga.ValidationError, "%w", notSent("the server has not run this attempt: %s", said.Why))
	default:
		return runtime.Reply{}, fmt.Errorf("the reply does not say what happened: %s", said.Why)
	}
	r := said.Reply
	r.Result, r.ResultBytes, r.ResultDigest = c.data, c.bytes, c.digest()
	return r, nil
}
