package engine

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/wal/chain"
)

// Attachment returns a value written with an append, nil where there is none. One whose key was
// destroyed is not there; but an item of a stream is there, without a byte, so that nobody begins
// again what is erased. STORE_UNAVAILABLE: the key cannot be had.
func (db *DB) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error) {
	stored, err := keyspace.AppendAttachment(nil, keyspace.Kind(kind), key)
	if err != nil {
		return nil, err
	}
	if err := db.health.enter(); err != nil {
		return nil, err
	}
	defer db.health.leave()
	value, err := db.index.get(stored)
	if err != nil || value == nil {
		return nil, err
	}
	value, err = sealrules.Open(stored, value, db.index.keys)
	if errors.Is(err, chain.ErrKeyDestroyed) {
		return sealrules.Unread(kind), nil
	}
	return value, err
}

// Attachments yields the attachments of a kind whose key starts with prefix, in key
// order, each as [DB.Attachment] returns it. An error about one of them comes with its key, and those behind
// it follow; an error without a key ends the list.
func (db *DB) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	return func(yield func(chain.Attachment, error) bool) {
		lower, upper, err := keyspace.AttachmentBounds(keyspace.Kind(kind), prefix)
		for err == nil && lower != nil {
			var rows []kv
			var keys chain.Keys
			if err = db.inside(func(o *opened) (err error) {
				keys = o.index.keys
				rows, lower, err = o.index.attachmentPage(lower, upper)
				return err
			}); err != nil {
				break
			}
			for _, row := range rows {
				value, err := sealrules.Open(row.key, row.value, keys)
				if errors.Is(err, chain.ErrKeyDestroyed) {
					if value, err = sealrules.Unread(kind), nil; value == nil {
						continue
					}
				}
				if !yield(chain.Attachment{Kind: kind, Key: row.key[1:], Value: value}, err) {
					return
				}
			}
		}
		if err != nil {
			yield(chain.Attachment{}, err)
		}
	}
}

const attachmentPage = 256

func (x *index) attachmentPage(lower, upper []byte) (rows []kv, next []byte, err error) {
	rows, err = x.page(lower, upper, attachmentPage)
	if len(rows) == attachmentPage {
		next = append(slices.Clone(rows[attachmentPage-1].key), 0)
	}
	return rows, next, err
}

// Stored is [DB.Attachments] with what is stored of the values: sealed, where they are. It is for who copies the store.
func (db *DB) Stored(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	return func(yield func(chain.Attachment, error) bool) {
		lower, upper, err := keyspace.AttachmentBounds(keyspace.Kind(kind), prefix)
		for err == nil && lower != nil {
			var rows []kv
			if err = db.inside(func(o *opened) (err error) {
				rows, lower, err = o.index.attachmentPage(lower, upper)
				return err
			}); err != nil {
				break
			}
			for _, row := range rows {
				if !yield(chain.Attachment{Kind: kind, Key: row.key[1:], Value: row.value}, nil) {
					return
				}
			}
		}
		if err != nil {
			yield(chain.Attachment{}, err)
		}
	}
}
