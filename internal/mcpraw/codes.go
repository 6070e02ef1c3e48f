package mcpraw

import "net/http"

// Codes of JSON-RPC errors.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeNoMethod       = -32601
	CodeInvalidParams  = -32602 // also: no such tool

	// Codes of revision 2026-07-28.
	CodeHeaderMismatch = -32020 // a header is not what the body, or the tool's definition, says
	CodeCapability     = -32021 // the client does not declare a capability that the request uses
	CodeUnsupported    = -32022 // the revision is not spoken

	// The reference implementations produce these two on the client's side. A server that is
	// itself a proxy may pass them on.
	CodeGone     = -32000 // connection closed
	codeTimedOut = -32001 // request timed out

	codeWantsURL = -32042 // of revision 2025-11-25: a person must open a URL first
)

// Meaning is what an answer to tools/call says about the call.
type Meaning uint8

// Meanings of an answer.
const (
	IsEffect   Meaning = iota // the tool has run, or has failed: record the answer
	IsRefusal                 // the server did not accept the call
	IsDoubt                   // the answer does not say what happened
	WantsInput                // input_required: the client continues the call with another message
	IsTask                    // the call continues as a task
	WantsURL                  // the call did not run: a person opens a URL first, and then the client makes it again
)

// codes has, for an error code, its meaning in an answer to tools/call, the reason if that is
// neither an effect nor a refusal, and the HTTP status that revision 2026-07-28 gives it, if any. The revision's status of
// CodeInvalidParams is left out: it is for requests that lack a required member, which a tool
// server's answer never is about.
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
	codeWantsURL:       {WantsURL, "a person must open a URL first: ", 0},
}

// MeaningOf returns the meaning of an error code in an answer to tools/call, and the reason why it is
// neither an effect nor a refusal. A code that is not in the table is the tool's own failure: the server answered, so the
// answer is recorded and the call is not sent again.
func MeaningOf(code int64) (_ Meaning, why string) { return codes[code].meaning, codes[code].why }

// StatusOf is the HTTP status of an answer with an error code, 200 if the code has no status of
// its own.
func StatusOf(code int64) int {
	if s := codes[code].status; s != 0 {
		return s
	}
	return http.StatusOK
}
