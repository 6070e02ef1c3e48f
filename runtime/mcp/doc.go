// Package mcp dispatches calls to MCP tool servers: a command that speaks on stdin and
// stdout, or a streamable HTTP endpoint. [Server] is a [runtime.Dispatcher].
//
// The official SDK agrees on the protocol version (2024-11-05 to 2026-07-28). The calls
// themselves travel as raw JSON-RPC: arguments go out as the bytes that were digested,
// results come back as the bytes that the server wrote.
//
// # Usage
//
//	notes, err := mcp.New("notes", mcp.Options{Command: []string{"notes-server"}})
//	…
//	defer notes.Close()
//	rt, err := runtime.New(db, dispatch.Router{"notes": notes}, supervisor, options)
//
// [New] starts nothing: the first call starts the command or connects, and the first one after it
// went away does so again. [Server.ListTools] reads what the server offers. [Server.Close] ends the
// child.
//
// # Invariants
//
//	one write  a call is written at most once; nothing reconnects    [link.exchange]    TestOneWriteOnAConnectionThatDies
//	not sent   ErrNotSent only where no byte of the call was written [link.exchange]    TestNotSent, TestDoubt
//	exact      no digit of arguments or result changes               [mcpraw.Scanner]   TestNumbersSurvive
//	later      a later attempt's refusal ends no earlier doubt        [answer.reply]     TestLaterAttemptThatFailsEndsNoDoubt
//	final      only a final result is an effect                      [answer.reply]     TestReplies
//	headers    a call repeats in headers what its tool's definition says [Server.mirrored]   TestArgumentsInHeaders
//	told       changes are heard again after a stream of them broke      [Server.subscribe]  TestSubscriptionThatBreaks
//	one child  a new child waits until the old one is gone           [mcpraw.WaitLock]  TestNewChildWaitsForTheOld
//	no orphan  the child dies with this process (Linux)              [mcpraw.Process]   TestChildDiesWithItsParent
//
// # What the server sees
//
// `_meta` of each tools/call carries dev.tgad/idempotencyKey (the same for every
// attempt; a server may deduplicate by it), dev.tgad/traceId and dev.tgad/attempt; traceparent, tracestate and
// baggage are those of the send's span, where there is one.
//
// # Limits
//
// A call that a server of protocol version 2026-07-28 over HTTP refuses because its
// definitions have changed since they were read is not sent; the next one reads them
// again. HTTP proxies of the environment are not used. The stream of a call that breaks is
// not resumed: the call is in doubt. An answer that comes after the call was cancelled is
// logged and dropped; over HTTP that version has none.
package mcp
