package engine

import (
	"context"
	"iter"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/wal/chain"
)

// OpenTraces yields the traces that are not terminal, in the order of their ids, oldest first.
func (db *DB) OpenTraces(ctx context.Context) iter.Seq2[chain.OpenTrace, error] {
	return func(yield func(chain.OpenTrace, error) bool) {
		lower, upper := keyspace.OpenBounds()
		for lower != nil {
			var list []chain.OpenTrace
			var next []byte
			err := db.inside(func(o *opened) (err error) {
				list, next, err = o.index.openPage(ctx, lower, upper)
				return err
			})
			for _, o := range list {
				if !yield(o, nil) {
					return
				}
			}
			if err != nil {
				yield(chain.OpenTrace{}, err)
				return
			}
			lower = next
		}
	}
}

const openPage = 512

// openPage reads a page of the open index.
func (x *index) openPage(ctx context.Context, lower, upper []byte) (list []chain.OpenTrace, next []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	rows, err := x.page(lower, upper, openPage)
	if err != nil {
		return nil, nil, err
	}
	if len(rows) == openPage {
		next = append(slices.Clone(rows[openPage-1].key), 0)
	}
	for _, row := range rows {
		id, err := keyspace.ParseOpen(row.key)
		if err != nil {
			return nil, nil, err
		}
		o, err := decodeOpenValue(id, row.value)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, o)
	}
	return list, next, nil
}
