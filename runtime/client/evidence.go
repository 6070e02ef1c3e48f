package client

import (
	"context"
	"iter"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// HeaderCheckpoint says how far the tree of the store has come, "<appends> <head>", in an answer
// of a daemon that signs checkpoints. In a request it is what the client has seen before: where the
// tree did not grow from that, the answer is STATE_CHECKSUM_MISMATCH.
const HeaderCheckpoint = "Tgad-Checkpoint"

// Receipt says where a trace stands in the tree of its store: GET /v1/traces/{id}/receipt.
type Receipt = runtime.Receipt

// SignedCheckpoint is the newest signed checkpoint of a store: GET /v1/checkpoint.
type SignedCheckpoint struct {
	Key        string   `json:"key"` // public, that signed first
	HandOvers  []string `json:"hand_overs,omitempty"`
	Checkpoint string   `json:"checkpoint"` // signed note
}

// EvidenceRequest asks for a file that proves what happened: POST /v1/bundle.
type EvidenceRequest struct {
	TraceIDs []tga.ID   `json:"trace_ids,omitempty"` // absent = every trace since a time
	Since    tga.Millis `json:"since,omitempty"`     // absent = the beginning
	// After and Most choose appends by their index instead of a time: those behind After, at most
	// so many; Most 0 is all of them.
	After int64  `json:"after,omitempty"`
	Most  int64  `json:"most,omitempty"`
	Old   string `json:"old,omitempty"` // an older checkpoint, from which the file proves that it grew
}

// Proofs asks a daemon that signs checkpoints for what proves to others what happened.
type Proofs struct{ c *Client }

// Proofs returns the part of the client that is about proofs.
func (c *Client) Proofs() Proofs { return Proofs{c} }

// Receipt returns the receipt of a trace. NOT_FOUND: there is no such trace, or the store signs no
// checkpoints.
func (p Proofs) Receipt(ctx context.Context, trace tga.ID) (Receipt, error) {
	var r Receipt
	err := p.c.ask(ctx, get(tracePath(trace, "/receipt")), &r)
	return r, err
}

// Checkpoint returns the newest signed checkpoint of the store. NOT_FOUND: there is none.
func (p Proofs) Checkpoint(ctx context.Context) (SignedCheckpoint, error) {
	var s SignedCheckpoint
	err := p.c.ask(ctx, get("/v1/checkpoint"), &s)
	return s, err
}

// Tile returns a tile of the store's tree, which the newest checkpoint covers, by its path in C2SP
// tlog-tiles, such as "tile/0/000.p/5"; of the path "checkpoint" the newest signed checkpoint.
func (p Proofs) Tile(ctx context.Context, path string) ([]byte, error) {
	raw, _, err := p.c.bytes(ctx, get("/"+path))
	return raw, err
}

// Export yields the lines of an evidence file, as [Client.Export] does.
func (p Proofs) Export(ctx context.Context, m EvidenceRequest) iter.Seq2[[]byte, error] {
	return ended(ctx, p.c, post("/v1/bundle", m))
}
