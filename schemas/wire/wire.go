// Package wire has the messages of the daemon's socket, for client and daemon, their codec, and the
// description of the API (openapi.yaml), from which parts of the clients in Python and TypeScript are generated.
// A test of internal/daemon compares the description with the running daemon.
//
// # Invariants
//
//	bytes  stored and given JSON is spliced, never re-encoded  [Append]      TestSplicedBytesAreExact
//	names  a member is matched byte for byte, unknown refused  [Decode]      TestDecodeIsClosed
//	codes  an error keeps all its facts across the socket      [ProblemOf]   TestProblemRoundTrip
package wire

import _ "embed"

// OpenAPI is the API in OpenAPI 3.1.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Names of the wire's headers and of the host that a request must name.
const (
	Host          = "tgad"
	HeaderClient  = "Tgad-Client"  // name of the client, for people; required under /v1
	HeaderTimeout = "Tgad-Timeout" // how long the answer may take, as "250ms" or "1m30s"
	ProblemType   = "application/problem+json"
	NDJSONType    = "application/x-ndjson"
)

// HeaderCheckpoint is the newest checkpoint of the store's tree, "<appends> <head>", in an answer of
// a daemon that signs checkpoints. In a request it is a checkpoint that the client has seen before.
// If the tree is no continuation of that checkpoint, the answer is STATE_CHECKSUM_MISMATCH.
const HeaderCheckpoint = "Tgad-Checkpoint"

// HeaderReceipt, with any value, requests a receipt in each call of the answer. A daemon that does not sign
// checkpoints ignores it.
const HeaderReceipt = "Tgad-Receipt"
