package runtime

import (
	"context"

	"github.com/tgad/tgad/schemas/tga"
)

// Receipt says where a trace stands in the signed tree of its store. What the texts and bytes are
// is in docs/FORMAT.md.
type Receipt struct {
	TraceID    tga.ID        `json:"trace_id"`
	Key        string        `json:"key"`                  // public, that signed first
	HandOvers  []string      `json:"hand_overs,omitempty"` // signed notes, from it to the key of now
	Checkpoint string        `json:"checkpoint,omitempty"` // signed note; absent where none covers the trace yet
	Leaves     []ReceiptLeaf `json:"leaves"`
	Pending    int           `json:"pending,omitempty"` // leaves that no checkpoint covers yet
}

// ReceiptLeaf is one append to the trace.
type ReceiptLeaf struct {
	Index int64    `json:"index"`           // in the order of the store, from 1
	Leaf  []byte   `json:"leaf"`            // its 121 bytes
	Proof [][]byte `json:"proof,omitempty"` // hashes that lead from it to the head of the checkpoint
}

// Receipt returns the receipt of a trace: what its caller keeps, to show later that the store had
// the trace. NOT_FOUND: there is no such trace, or nothing signs checkpoints of the store, since
// [Options].Receipt is not set.
func (rt *Runtime) Receipt(ctx context.Context, trace tga.ID) (r Receipt, err error) {
	defer rt.goOn(&err)
	if rt.opts.Receipt == nil {
		return Receipt{}, tga.Errorf(tga.NotFound, "nothing signs checkpoints of the store: Options.Receipt is not set").In(trace)
	}
	return rt.opts.Receipt(ctx, trace)
}
