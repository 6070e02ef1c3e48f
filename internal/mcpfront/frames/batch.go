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

// MaxCancel is the longest params of notifications/cancelled, in bytes. A longer one is ignored.
const MaxCancel = SpillBytes

// OwesAnswer reports whether a message of a batch gets an answer. A malformed message gets one,
// with a null id if its own id is not known.
func OwesAnswer(f *Frame) bool { return f.Bad != "" || f.Batch || f.IsRequest() }

// WantsAnswer reports whether a client waits for an answer to a message.
func WantsAnswer(f *Frame) bool {
	if !f.Batch {
		return f.IsRequest()
	}
	all := Split(f)
	return all == nil || slices.ContainsFunc(all, OwesAnswer)
}

// Split returns the messages of a batch, nil if the batch is malformed or too long.
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

// Replace returns a message with other bytes in one place. m must be wholly in memory.
func Replace(m *Frame, at mcpraw.Span, with []byte) *Frame {
	return Splice(m.Head, at, with)
}

// Splice makes a message of raw with other bytes in one place.
func Splice(raw []byte, at mcpraw.Span, with []byte) *Frame {
	return NewFrame(slices.Concat(raw[:at.From], with, raw[at.To:]))
}
