package runtime

import (
	"context"

	"github.com/tgad/tgad/schemas/tga"
)

// Receipt proves the position of a trace in the signed tree of its store. docs/FORMAT.md describes
// the texts and bytes.
type Receipt struct {
	TraceID    tga.ID        `json:"trace_id"`
	Key        string        `json:"key"`                  // public key that signed first
	HandOvers  []string      `json:"hand_overs,omitempty"` // signed notes that lead from Key to the current key
	Checkpoint string        `json:"checkpoint,omitempty"` // signed note; absent where none covers the trace yet
	Leaves     []ReceiptLeaf `json:"leaves"`
	Pending    int           `json:"pending,omitempty"` // leaves that no checkpoint covers yet
}

// ReceiptLeaf is one append to the trace.
type ReceiptLeaf struct {
	Index int64    `json:"index"`           // in the order of the store, from 1
	Leaf  []byte   `json:"leaf"`            // its 121 bytes
	Proof [][]byte `json:"proof,omitempty"` // hashes that lead from the leaf to the head of the checkpoint
}

// Receipt returns the receipt of a trace. A caller keeps it, to prove later that the store had
// the trace. NOT_FOUND: there is no such trace, or nothing signs checkpoints of the store, because
// [Options].Receipt is not set.
func (rt *Runtime) Receipt(ctx context.Context, trace tga.ID) (r Receipt, err error) {
	defer rt.goOn(&err)
	if rt.opts.Receipt == nil {
		return Receipt{}, tga.Errorf(tga.NotFound, "nothing signs checkpoints of the store: Options.Receipt is not set").In(trace)
	}
	return rt.opts.Receipt(ctx, trace)
}
