// Package httpcall sends tool calls to an HTTP tool server: a POST of the arguments
// as JSON, with the idempotency key in a header.
//
// It makes exactly one transport write per dispatch. Each dispatch has a connection
// of its own, over HTTP/1.1, without proxy, cookies, compression or redirects. Go's
// client sends a POST that carries an Idempotency-Key a second time when a reused
// connection dies under it; a connection that is never reused cannot. While calls follow
// each other their connections are made ahead of them; [Server.Close] closes the waiting ones.
//
// # Invariants
//
//	once     one dispatch, at most one request on the wire        [Server.Dispatch]  TestOneRequestPerDispatch
//	unsent   ErrNotSent only where no byte of the request left    [onwire.Request]   TestClassification
//	unused   no request goes to a connection that had one, or     [wire.Write]       TestUnaskedBytes, TestServerThatClosesWhileIdleCausesNoDoubt
//	         on which the server closed or spoke before
//	name     one spelling of a tool's name leads to it                [Server.Check]     TestOneSpellingOfAName
//	key      two keys never look alike, each can be read back        [KeyText]          TestKeyTextIsReversible
//	bytes    the answer is kept exactly, or counted and digested  [readAnswer]       TestAnswerLimit
//
// # Request
//
//	POST {URL}/{tool, or its configured path}
//	Content-Type: application/json
//	Idempotency-Key: {the call's key, the same for every attempt; see KeyText}
//	Tgad-Trace-Id, Tgad-Tool-Call-Id: {ids}
//	Tgad-Attempt: {number of this attempt}
//	traceparent, tracestate, baggage: {those of the send's span, where there is one}
package httpcall
