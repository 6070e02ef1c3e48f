// Package client talks to a tgad daemon over its unix socket.
//
// It gives the methods of [runtime.Runtime] to a process that does not hold the store,
// with the same requests, results and errors: a refusal by the daemon comes back as the
// [tga.Error] that it made. The messages of the wire are here too, for the daemon and for
// programs that look at what travels; schemas/wire/openapi.yaml describes them for other
// languages.
//
// # Invariants
//
//	bytes  stored and given JSON is spliced, never re-encoded  [Append]      TestSplicedBytesAreExact
//	names  a member is matched byte for byte, unknown refused  [Decode]      TestDecodeIsClosed
//	codes  an error crosses the socket with all its facts      [ProblemOf]   TestProblemRoundTrip
package client
