// Package asklog makes the requests of an MCP front to the log. It says which requests there are and how long they are
// repeated, and it has the shelf: values about a tool server that the log's store keeps for a front.
package asklog
