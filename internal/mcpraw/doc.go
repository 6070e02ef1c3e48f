// Package mcpraw holds the code that all transports to an MCP tool server share. It reads raw
// JSON-RPC messages without decoding them, lists the protocol's revisions and error codes, and
// runs a tool server that is a process.
//
// A message is scanned while it arrives. Its members are found as spans of its bytes, so they
// are never decoded and encoded again. encoding/json would need the whole message in memory,
// would take "Method" for "method", and would turn 9007199254740993 into …992.
//
// # Invariants
//
//	exact      a member is the bytes that the peer wrote                     [Scanner]         FuzzScanner
//	strict     a message that two parsers could read differently is bad      [Scanner.Finish]  TestScanner
//	one child  a process is started only once its lock is free               [StartProcess]    runtime/mcp TestNewChildWaitsForTheOld
//	no orphan  a process dies with its parent (Linux)                        [Process]         runtime/mcp TestChildDiesWithItsParent
package mcpraw
