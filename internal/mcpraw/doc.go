// Package mcpraw holds what every way to an MCP tool server shares: it reads raw
// JSON-RPC messages without decoding them, has the protocol's revisions and the codes of its
// errors, and runs a tool server that is a process.
//
// A message is looked at while it arrives. Its members are found as spans of its bytes;
// nothing is rounded, folded or written anew. encoding/json would need the whole message
// at hand, take "Method" for "method", and turn 9007199254740993 into …992.
//
// # Invariants
//
//	exact      a member is the bytes that the peer wrote                     [Scanner]         FuzzScanner
//	strict     a message that two parsers could read apart is marked bad     [Scanner.Finish]  TestScanner
//	one child  a process is started once nobody holds its lock               [StartProcess]    runtime/mcp TestNewChildWaitsForTheOld
//	no orphan  a process dies with the one that started it (Linux)           [Process]         runtime/mcp TestChildDiesWithItsParent
package mcpraw
