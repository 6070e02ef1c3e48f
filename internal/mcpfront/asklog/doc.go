// Package asklog is how an MCP front asks the log: what it may ask, for how long it asks again, and the shelf on which
// the log's store keeps what a front notes of its tool server.
package asklog
