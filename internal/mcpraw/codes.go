package mcpraw

import "net/http"

// Codes of JSON-RPC errors.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeNoMethod       = -32601
	CodeInvalidParams  = -32602 // also: no such tool

	// Of revision 2026-07-28.
	CodeHeaderMismatch = -32020 // a header is not what the body, or the tool's definition, says
	CodeCapability     = -32021 // the client does not declare what it uses
	CodeUnsupported    = -32022 // the revision is not spoken

	// The reference implementations make these two up on the client's side. A server that
	// is itself a proxy passes them on.
	CodeGone     = -32000 // connection closed
	codeTimedOut = -32001 // request timed out

	codeWantsURL = -32042 // a person is to open a URL first
)

// Meaning is what an answer to tools/call says about the call.
type Meaning uint8

// Meanings of an answer.
const (
	IsEffect   Meaning = iota // the tool has run, or failed: record it
	IsRefusal                 // the server did not take the call
	IsDoubt                   // it does not say what happened
	WantsInput                // input_required: the call goes on with another message
	IsTask                    // the call goes on as a task
)

// codes says of an error what it means in an answer to tools/call, why a doubt is one, and
// the HTTP status that revision 2026-07-28 gives it, if any. That of CodeInvalidParams is
// for requests that lack what each must have, which no answer of a tool server's is.
var codes = map[int64]struct {
	meaning Meaning
	why     string
	status  int
}{
	CodeParse:          {IsRefusal, "", 0},
	CodeInvalidRequest: {IsRefusal, "", 0},
	CodeNoMethod:       {IsRefusal, "", http.StatusNotFound},
	CodeInvalidParams:  {IsRefusal, "", 0},
	CodeHeaderMismatch: {IsRefusal, "", http.StatusBadRequest},
	CodeCapability:     {IsRefusal, "", http.StatusBadRequest},
	CodeUnsupported:    {IsRefusal, "", http.StatusBadRequest},
	CodeGone:           {IsDoubt, "the server does not know what happened: ", 0},
	codeTimedOut:       {IsDoubt, "the server does not know what happened: ", 0},
	codeWantsURL:       {IsDoubt, "it is not a final effect: ", 0},
}

// MeaningOf says what the code of an error means in an answer to tools/call, and for a doubt
// why it is one. A code that is not in the table is the tool's own failure: the server
// answered, so it is recorded and not sent again.
func MeaningOf(code int64) (_ Meaning, why string) { return codes[code].meaning, codes[code].why }

// StatusOf is the HTTP status that an error of a code goes with: 200 where it has none of
// its own.
func StatusOf(code int64) int {
	if s := codes[code].status; s != 0 {
		return s
	}
	return http.StatusOK
}
