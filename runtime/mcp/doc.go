// Package mcp dispatches calls to MCP tool servers: a command that speaks on stdin and
// stdout, or a streamable HTTP endpoint. [Server] is a [runtime.Dispatcher].
//
// The official SDK agrees on the protocol version (2024-11-05 to 2026-07-28). The calls
// themselves travel as raw JSON-RPC: arguments go out as the bytes that were digested,
// results come back as the bytes that the server wrote.
//
// # Invariants
//
//	one write  a call is written at most once; nothing reconnects    [link.exchange]    TestOneWriteOnAConnectionThatDies
//	not sent   ErrNotSent only where no byte of the call was written [link.exchange]    TestNotSent, TestDoubt
//	exact      no digit of arguments or result changes               [scanner]          TestNumbersSurvive, FuzzScanner
//	later      a later attempt's refusal ends no earlier doubt        [answer.reply]     TestLaterAttemptThatFailsEndsNoDoubt
//	final      only a final result is an effect                      [answer.reply]     TestReplies
//	one child  a new child waits until the old one is gone           [waitLock]         TestNewChildWaitsForTheOld
//	no orphan  the child dies with this process (Linux)              [child.run]        TestChildDiesWithItsParent
//
// # What the server sees
//
// `_meta` of each tools/call carries dev.tgad/idempotencyKey (the same for every
// attempt; a server may deduplicate by it), dev.tgad/traceId and dev.tgad/attempt.
//
// # Limits
//
// A server of protocol version 2026-07-28 over HTTP that wants arguments mirrored in
// Mcp-Param headers refuses the call. HTTP proxies of the environment are not used. A
// stream that breaks is not resumed: the call is in doubt. An answer that comes after
// the call was cancelled is logged and dropped.
package mcp
