package frames

import (
	"encoding/json"
	"slices"

	"github.com/tgad/tgad/internal/mcpraw"
)

// Limits of an array of messages.
const (
	MaxBatch      = 256
	maxBatchBytes = 16 << 20
)

// MaxCancel bounds a notice that a request was given up.
const MaxCancel = 1 << 10

// OwesAnswer reports whether a message of a batch is answered. One that does not pass is,
// under no id if need be.
func OwesAnswer(f *Frame) bool { return f.Bad != "" || f.Batch || f.IsRequest() }

// WantsAnswer reports whether a client waits for an answer to a message.
func WantsAnswer(f *Frame) bool {
	if !f.Batch {
		return f.IsRequest()
	}
	all := Split(f)
	return all == nil || slices.ContainsFunc(all, OwesAnswer)
}

// Split returns the messages of a batch, nil where it is none that passes.
func Split(f *Frame) []*Frame {
	defer f.Close()
	raw, err := f.Bytes(mcpraw.Span{From: 0, To: f.Size}, maxBatchBytes)
	if err != nil {
		return nil
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || len(items) > MaxBatch {
		return nil
	}
	var all []*Frame
	for _, item := range items {
		all = append(all, NewFrame(item))
	}
	return all
}

// Replace makes a message with other bytes in one place.
func Replace(m *Frame, at mcpraw.Span, with []byte) *Frame {
	return Splice(m.Head, at, with)
}

// Splice is a message of bytes with others in one place.
func Splice(raw []byte, at mcpraw.Span, with []byte) *Frame {
	return NewFrame(slices.Concat(raw[:at.From], with, raw[at.To:]))
}
