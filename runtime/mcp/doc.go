// Package mcp dispatches calls to MCP tool servers: a command that speaks MCP on its stdin
// and stdout, or a streamable HTTP endpoint. [Server] is a [runtime.Dispatcher].
//
// The official SDK negotiates the protocol version (2024-11-05 to 2026-07-28). The calls
// themselves travel as raw JSON-RPC: the arguments are sent as the bytes that were
// digested, and a result is returned as the bytes that the server wrote.
//
// # Usage
//
//	notes, err := mcp.New("notes", mcp.Options{Command: []string{"notes-server"}})
//	…
//	defer notes.Close()
//	rt, err := runtime.New(db, dispatch.Router{"notes": notes}, supervisor, options)
//
// [New] starts nothing. The first call starts the command or connects, and so does the first call
// after the server went away. [Server.ListTools] lists the server's tools. [Server.Close] ends the
// child process.
//
// # Invariants
//
//	one write  a call is written at most once; nothing reconnects    [link.exchange]    TestOneWriteOnAConnectionThatDies
//	not sent   ErrNotSent only if no byte of the call was written    [link.exchange]    TestNotSent, TestDoubt
//	not run    or if the server says that it has not begun the call  [answer.reply]     TestRefusalsHTTP, TestCallThatWaitsForAURLHasNotRun
//	exact      no digit of arguments or result changes               [mcpraw.Scanner]   TestNumbersSurvive
//	later      a later attempt's refusal ends no earlier doubt        [answer.reply]     TestLaterAttemptThatFailsEndsNoDoubt
//	final      only a final result is an effect                      [answer.reply]     TestReplies
//	headers    a call has the headers that its tool's definition asks for [Server.mirrored]  TestArgumentsInHeaders
//	told       a stream of changes that broke is requested again         [Server.subscribe]  TestSubscriptionThatBreaks
//	one child  a new child waits until the old one is gone           [mcpraw.WaitLock]  TestNewChildWaitsForTheOld
//	no orphan  the child dies with this process (Linux)              [mcpraw.Process]   TestChildDiesWithItsParent
//
// # What the server sees
//
// `_meta` of each tools/call has dev.tgad/idempotencyKey (the same for every attempt; a
// server may deduplicate by it), dev.tgad/traceId and dev.tgad/attempt. If the send has a
// span, `_meta` also has the span's traceparent, tracestate and baggage.
//
// # Limits
//
// A server of protocol version 2026-07-28 over HTTP may refuse a call because its tool
// definitions have changed since they were read. Then the call counts as not sent, and the
// next call reads the definitions again. HTTP proxies of the environment are not used. If
// the stream of a call breaks, it is not resumed: the call is in doubt. An answer that comes
// after the call was cancelled is logged and dropped; over HTTP that version sends none.
package mcp
