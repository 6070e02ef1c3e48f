// Package wire has the messages of the daemon's socket, for client and daemon alike, their codec, and the
// description of the API for other languages: clients in Python and TypeScript are generated from it. A test of
// internal/daemon holds the description to the running daemon.
//
// # Invariants
//
//	bytes  stored and given JSON is spliced, never re-encoded  [Append]      TestSplicedBytesAreExact
//	names  a member is matched byte for byte, unknown refused  [Decode]      TestDecodeIsClosed
//	codes  an error crosses the socket with all its facts      [ProblemOf]   TestProblemRoundTrip
package wire

import _ "embed"

// OpenAPI is the API in OpenAPI 3.1.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Names of the wire's headers and of the host that a request must name.
const (
	Host          = "tgad"
	HeaderClient  = "Tgad-Client"  // who asks, in words; required under /v1
	HeaderTimeout = "Tgad-Timeout" // how long the answer may take, as "250ms" or "1m30s"
	ProblemType   = "application/problem+json"
	NDJSONType    = "application/x-ndjson"
)

// HeaderCheckpoint says how far the tree of the store has come, "<appends> <head>", in an answer
// of a daemon that signs checkpoints. In a request it is what the client has seen before: where the
// tree did not grow from that, the answer is STATE_CHECKSUM_MISMATCH.
const HeaderCheckpoint = "Tgad-Checkpoint"

// HeaderReceipt, with any value, asks that each call of the answer carries its receipt, where the daemon signs checkpoints.
const HeaderReceipt = "Tgad-Receipt"
