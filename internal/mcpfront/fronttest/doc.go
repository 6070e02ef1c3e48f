// Package fronttest has what the tests of the MCP front share: a log, a tool server that keeps a journal, clients on
// stdin and stdout and over HTTP, and processes that can be killed at a point of a call.
package fronttest
