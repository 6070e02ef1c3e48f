// Package mcpfront stands between an MCP client and an MCP tool server and makes the
// client's tool calls governed ones, without either of them knowing.
//
// It passes raw JSON-RPC: of a message it reads the envelope, and of tools/call the
// name and `_meta`. What is not tools/call goes through byte for byte, both ways, ids
// and all. The shim owns the tool server; the log is a daemon's. What becomes of a call
// is decided in package attempt, and how clients come in is package entry.
//
// # Invariants
//
//	strict   a message that two parsers could read apart does not pass    [mcpraw.Scanner]            TestAmbiguousMessagesDoNotPass
//	exact    what passes arrives byte for byte                            [conv.fromServer]           TestPassThroughIsExact
//	bounded  one message takes at most frames.SpillBytes of memory          [frames.Frames]             TestLongMessagesStream
//	there    a client is seen to be gone the moment that it is            [paper.Presence]            TestRepeatOverHTTP
//	whole    the calls of an array are delivered when the array is        [conv.deliverIn]            TestBatchIsDeliveredWhole
//	task     a task's id is told once its trace and record are stored     [call.toTask]               TestOwnTask, TestOwnTaskOutlivesItsShim
//	promised a subscription that was acknowledged lasts until it is ended [subscriptions.acknowledge] TestSubscriptionPasses
//	mirrored a call repeats in headers what its tool's definition says    [catalog.mirrored]          TestHeadersOfTheOfficialServer
//	no orphan a tool server dies with its shim (Linux)                    [mcpraw.Process]            TestToolServerDiesWithItsShim
//
// # What a client sees that the bare server would not send
//
// `_meta` of a served answer has dev.tgad/replayed. A call that cannot be answered with
// an effect is answered with a tool error (isError) in words that a model can act on,
// with dev.tgad/code and dev.tgad/traceId in its `_meta`; a call that is not governable
// with a JSON-RPC error. docs/MCP.md lists them all.
package mcpfront
