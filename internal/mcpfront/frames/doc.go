// Package frames passes JSON-RPC messages byte for byte between a client and a tool server. A frame is
// a message as it came; a long one is kept in a file. The package has the writers of frames, and the
// two transports to a tool server: a process, and streamable HTTP. It knows neither log nor calls.
//
// # Invariants
//
//	not sent   an error is ErrNotSent only if no byte of a message was written       [Upstream]   TestNoByteOfALateCall
//	bounded    a long message takes little memory                                    [Frames]     TestLongMessageTakesLittleMemory
package frames
