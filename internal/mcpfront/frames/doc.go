// Package frames passes JSON-RPC messages byte for byte between a client and a tool server: frames
// as they came, long ones by way of a file; what writes them; and the two ways to a tool server,
// a process and streamable HTTP. It knows of no log and no call.
//
// # Invariants
//
//	not sent   an error says ErrNotSent only where no byte of a message went out     [Upstream]   TestNoByteOfALateCall
//	bounded    a long message takes little memory                                    [Frames]     TestLongMessageTakesLittleMemory
package frames
