// Package mcpfront stands between an MCP client and an MCP tool server. It makes the
// client's tool calls governed calls, and neither side needs to know.
//
// It passes raw JSON-RPC: it reads the envelope of each message, and of tools/call also
// the name and `_meta`. Every other message passes byte for byte in both directions, with
// its id. The shim owns the tool server; the log belongs to a daemon or to the shim.
// Package attempt decides what happens to a call; package entry lets clients in.
//
// # Invariants
//
//	strict   a message that two parsers could read differently is refused [mcpraw.Scanner]            TestAmbiguousMessagesDoNotPass
//	exact    a message that passes arrives byte for byte                  [conv.fromServer]           TestPassThroughIsExact
//	bounded  a message from pipe to pipe takes frames.SpillBytes of memory  [frames.Frames]             TestLongMessagesStream
//	there    the log sees at once that a client is gone                   [paper.Presence]            TestRepeatOverHTTP
//	whole    calls of an array count as delivered when the array is       [conv.deliverIn]            TestBatchIsDeliveredWhole
//	task     a client gets a task's id after its trace and record are stored [call.toTask]            TestOwnTask, TestOwnTaskOutlivesItsShim
//	promised a subscription that was acknowledged lasts until it is ended [subscriptions.acknowledge] TestSubscriptionPasses
//	mirrored a call repeats in headers what its tool's definition says    [catalog.mirrored]          TestHeadersOfTheOfficialServer
//	no orphan a tool server dies with its shim (Linux)                    [mcpraw.Process]            TestToolServerDiesWithItsShim
//
// # What a client sees that the bare server would not send
//
// `_meta` of a served answer has dev.tgad/replayed. If there is no effect to answer a call
// with, the answer is a tool error (isError) with words that a model can act on, and with
// dev.tgad/code and dev.tgad/traceId in its `_meta`. A call that cannot be governed is
// answered with a JSON-RPC error. docs/MCP.md lists all of these answers.
package mcpfront
