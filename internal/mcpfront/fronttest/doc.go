// Package fronttest is what the tests of the MCP front share: a log and a tool server that keeps a journal, clients on
// stdin and stdout and over HTTP, and processes that are killed at a point of a call.
package fronttest
