// Package toolcall is a tools/call as a client writes it and as a tool server gets it: the params that are read and the
// members that are put in, and the questions to the person at a client with the words that come back. It does no I/O.
package toolcall
