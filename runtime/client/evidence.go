package client

import (
	"context"
	"iter"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Receipt proves the position of a trace in the tree of its store: GET /v1/traces/{id}/receipt.
type Receipt = runtime.Receipt

// Proofs asks a daemon that signs checkpoints for proofs that others can verify.
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
func (p Proofs) Checkpoint(ctx context.Context) (wire.SignedCheckpoint, error) {
	var s wire.SignedCheckpoint
	err := p.c.ask(ctx, get("/v1/checkpoint"), &s)
	return s, err
}

// Tile returns a tile of the store's tree, as far as the newest checkpoint covers it, by its path in C2SP
// tlog-tiles, such as "tile/0/000.p/5". For the path "checkpoint" it returns the newest signed checkpoint.
func (p Proofs) Tile(ctx context.Context, path string) ([]byte, error) {
	raw, _, err := p.c.bytes(ctx, get("/"+path))
	return raw, err
}

// Export yields the lines of an evidence file, as [Client.Export] does.
func (p Proofs) Export(ctx context.Context, m wire.EvidenceRequest) iter.Seq2[[]byte, error] {
	return ended(ctx, p.c, post("/v1/bundle", m))
}
