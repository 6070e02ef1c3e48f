package engine

import (
	"bytes"
	"context"
	"iter"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// OpenTraces yields the traces that are not terminal, oldest id first.
func (db *DB) OpenTraces(ctx context.Context) iter.Seq2[chain.OpenTrace, error] {
	return func(yield func(chain.OpenTrace, error) bool) {
		lower, upper := keyspace.OpenBounds()
		for lower != nil {
			list, next, err := db.openPage(ctx, lower, upper)
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

// openPage reads a page of the open index from a view. What the view shows of a trace
// with an append in flight may not be durable, so such a trace is looked at again
// under its lock.
func (db *DB) openPage(ctx context.Context, lower, upper []byte) (list []chain.OpenTrace, next []byte, err error) {
	if err := db.health.enter(); err != nil {
		return nil, nil, err
	}
	defer db.health.leave()
	v := db.order.view(db.p)
	defer func() { err = closeView(v, err) }()
	rows, err := db.page(v, lower, upper, openPage)
	if err != nil {
		return nil, nil, err
	}
	if len(rows) == openPage {
		next = append(slices.Clone(rows[openPage-1].key), 0)
		upper = next
	}
	open := make(map[tga.ID]chain.OpenTrace)
	var ids []tga.ID
	for _, row := range rows {
		id, err := keyspace.ParseOpen(row.key)
		if err != nil {
			return nil, nil, err
		}
		if open[id], err = decodeOpenValue(id, row.value); err != nil {
			return nil, nil, err
		}
		ids = append(ids, id)
	}
	for _, id := range v.traces {
		key := keyspace.AppendOpen(nil, id)
		if bytes.Compare(key, lower) < 0 || bytes.Compare(key, upper) >= 0 {
			continue
		}
		if err := db.openNow(ctx, id, open); err != nil {
			return nil, nil, err
		}
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range slices.Compact(ids) {
		if o, is := open[id]; is {
			list = append(list, o)
		}
	}
	return list, next, nil
}

// openNow sets open[id] to what the index says under the trace's lock.
func (db *DB) openNow(ctx context.Context, id tga.ID, open map[tga.ID]chain.OpenTrace) error {
	if err := db.lockTrace(ctx, id); err != nil {
		return err
	}
	defer db.traces.unlock(id)
	value, err := db.get(db.p, keyspace.AppendOpen(nil, id))
	if err != nil {
		return err
	}
	delete(open, id)
	if value != nil {
		if open[id], err = decodeOpenValue(id, value); err != nil {
			return err
		}
	}
	return nil
}
