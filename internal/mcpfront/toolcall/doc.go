// Package toolcall reads a tools/call as a client writes it and makes the form that the tool server gets. It also makes the
// questions to the person at a client and reads the person's answers. It does no I/O.
package toolcall
