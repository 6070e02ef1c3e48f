package mcpshim

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"

	"github.com/tgad/tgad/runtime/mcp/mcpraw"
)

// Revision 2025-03-26 lets a client send several messages as one array. They are taken
// apart: each goes to the tool server on its own, and the answers to its requests go
// back as one array.

// Limits of a batch.
const (
	maxBatch      = 256
	maxBatchBytes = 16 << 20
)

// batchReply collects the answers to a batch.
type batchReply struct {
	mu   sync.Mutex
	want int
	got  [][]byte
}

// add takes one answer. It returns the whole array once all are there.
func (b *batchReply) add(parts ...io.WriterTo) ([]byte, error) {
	var buf bytes.Buffer
	for _, p := range parts {
		if _, err := p.WriteTo(&buf); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, buf.Bytes())
	if len(b.got) < b.want {
		return nil, nil
	}
	return append(append([]byte{'['}, bytes.Join(b.got, []byte{','})...), ']'), nil
}

// fromBatch takes a client's batch apart.
func (c *conv) fromBatch(f *frame) {
	all := splitBatch(f)
	if all == nil {
		c.fail([]byte("null"), nil, codeInvalidRequest, "", "", "the batch is empty, no JSON, or too long")
		return
	}
	b := &batchReply{}
	for _, e := range all {
		// A message that does not pass is answered too, under no id if need be.
		if e.Bad != "" || e.Batch || e.IsRequest() {
			b.want++
		}
	}
	for _, e := range all {
		if e.Batch {
			e.Bad, e.Batch = "a batch stands in it", false
		}
		c.fromClient(e, b)
	}
}

// splitBatch returns the messages of a batch, nil where it is none that passes.
func splitBatch(f *frame) []*frame {
	defer f.close()
	raw, err := f.bytes(mcpraw.Span{From: 0, To: f.size}, maxBatchBytes)
	if err != nil {
		return nil
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || len(items) > maxBatch {
		return nil
	}
	var all []*frame
	for _, item := range items {
		all = append(all, newFrame(item))
	}
	return all
}
