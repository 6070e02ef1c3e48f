package engine

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/wal/chain"
)

// Attachment returns a value written with an append, nil where there is none.
func (db *DB) Attachment(ctx context.Context, kind chain.AttachmentKind, key []byte) ([]byte, error) {
	stored, err := keyspace.AppendAttachment(nil, keyspace.Kind(kind), key)
	if err != nil {
		return nil, err
	}
	if err := db.health.enter(); err != nil {
		return nil, err
	}
	defer db.health.leave()
	return db.settled(ctx, string(stored), func() ([]byte, error) { return db.get(db.p, stored) })
}

// settled returns what read finds under key once it is durable.
func (db *DB) settled(ctx context.Context, key string, read func() ([]byte, error)) ([]byte, error) {
	for {
		// Read first, then ask: an append is in flight from before Pebble shows it until
		// it is durable, so what was read of one that is not in flight is durable.
		value, err := read()
		pending := db.order.writes(key)
		if err != nil || pending == nil {
			return value, err
		}
		if err := db.inFlight(ctx, pending); err != nil {
			return nil, err
		}
	}
}

// inFlight waits for an append of which nobody may be told yet.
func (db *DB) inFlight(ctx context.Context, pending <-chan struct{}) error {
	select {
	case <-pending:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-db.health.poisoned:
		return db.health.sick()
	}
}

// Attachments yields the attachments of a kind whose key starts with prefix, in key
// order.
func (db *DB) Attachments(ctx context.Context, kind chain.AttachmentKind, prefix []byte) iter.Seq2[chain.Attachment, error] {
	return func(yield func(chain.Attachment, error) bool) {
		lower, upper, err := keyspace.AttachmentBounds(keyspace.Kind(kind), prefix)
		watched := string(slices.Clone(lower))
		for err == nil && lower != nil {
			var rows []kv
			if rows, lower, err = db.attachmentPage(ctx, lower, upper, watched); err != nil {
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

const attachmentPage = 256

// attachmentPage reads from a view in which every key that starts with watched is
// durable: it waits for the appends in flight that touch one.
func (db *DB) attachmentPage(ctx context.Context, lower, upper []byte, watched string) (rows []kv, next []byte, err error) {
	if err := db.health.enter(); err != nil {
		return nil, nil, err
	}
	defer db.health.leave()
	for {
		v := db.order.view(db.p)
		var pending <-chan struct{}
		for key, done := range v.keys {
			if strings.HasPrefix(key, watched) {
				pending = done
				break
			}
		}
		if pending == nil {
			rows, err = db.page(v, lower, upper, attachmentPage)
			if len(rows) == attachmentPage {
				next = append(slices.Clone(rows[attachmentPage-1].key), 0)
			}
			return rows, next, closeView(v, err)
		}
		if err := closeView(v, nil); err != nil {
			return nil, nil, err
		}
		if err := db.inFlight(ctx, pending); err != nil {
			return nil, nil, err
		}
	}
}
