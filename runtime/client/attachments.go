package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"iter"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
	"github.com/tgad/tgad/wal/chain"
)

// Attachments yields the values of a kind whose key starts with prefix, in key order. Kinds
// that the daemon does not show are NOT_FOUND.
func (c *Client) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	return func(yield func(chain.Attachment, error) bool) {
		var name string
		for n, k := range wire.AttachmentKinds {
			if k == kind {
				name = n
			}
		}
		if name == "" {
			yield(chain.Attachment{}, tga.Errorf(tga.NotFound, "attachments of the kind %q are not on the wire", rune(kind)))
			return
		}
		for a, err := range stream[wire.Attachment](ctx, c, get("/v1/attachments", "kind", name, "prefix", hex.EncodeToString(prefix))) {
			if !yield(chain.Attachment{Kind: kind, Key: a.Key, Value: a.Value}, err) {
				return
			}
		}
	}
}

// Attachment returns one such value, nil if there is none.
func (c *Client) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) (value []byte, err error) {
	// Read to the end of the answer, so that the connection can be used again.
	for a, err := range c.Attachments(ctx, kind, key) {
		if err != nil {
			return nil, err
		}
		if bytes.Equal(a.Key, key) {
			value = a.Value
		}
	}
	return value, nil
}
