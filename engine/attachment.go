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

// Attachment returns a value that was written with an append, nil if there is none. If the data
// key of the value was destroyed, it returns nil too. An item of a stream is an exception: it is
// returned as an empty value, so that no caller begins an erased stream again.
// STORE_UNAVAILABLE: the data key is not available.
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

// Attachments yields the attachments of a kind whose key starts with prefix, in key order, each as
// [DB.Attachment] returns it. An error about one attachment comes with its key, and the list goes
// on after it. An error without a key ends the list.
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

// Stored is [DB.Attachments] with the values as they are stored, sealed or not. It is for copying a store.
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
