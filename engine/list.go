package engine

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Listed is a trace in a list of all.
type Listed = chain.Listed

// Traces yields every trace after an id, in the order of ids, including finished and archived
// traces. Of an archive segment it unpacks only the lists. It may or may not yield a trace that
// begins meanwhile. An error ends the list.
func (db *DB) Traces(ctx context.Context, after tga.ID) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		after := after // each range begins there
		for more := true; more; {
			var page []Listed
			if err := db.inside(func(o *opened) (err error) {
				page, more, err = o.traces.page(ctx, after)
				return err
			}); err != nil {
				yield(Listed{}, err)
				return
			}
			for _, l := range page {
				if !yield(l, nil) {
					return
				}
				after = l.TraceID
			}
		}
	}
}

const listPage = 256

// page reads the next traces after an id. more is false if these are the last ones.
func (t *traces) page(ctx context.Context, after tga.ID) (page []Listed, more bool, err error) {
	var ids []tga.ID
	unarchived := map[tga.ID]bool{}
	last := tga.ID(bytes.Repeat([]byte{0xff}, 16)) // both kinds were read up to here
	v := t.index.view()                            // one view for both kinds: meanwhile a trace may be archived or brought back
	defer func() { err = closeView(v, err) }()
	for _, kind := range []keyspace.Kind{keyspace.Entry, keyspace.Tombstone} {
		lower, _ := keyspace.Bounds(kind)
		from := append(append(slices.Clone(lower[:1]), after[:]...), bytes.Repeat([]byte{0xff}, 16)...)
		found, next, err := v.traceIDs(kind, from, listPage)
		if err != nil {
			return nil, false, err
		}
		if next != nil {
			more = true
			if end := found[len(found)-1]; bytes.Compare(end[:], last[:]) < 0 {
				last = end
			}
		}
		ids = append(ids, found...)
		for _, id := range found {
			if kind == keyspace.Entry {
				unarchived[id] = true
			}
		}
	}
	slices.SortFunc(ids, func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range slices.Compact(ids) {
		if bytes.Compare(id[:], last[:]) > 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		l, err := t.list(ctx, id, !unarchived[id])
		if err != nil {
			var of *tga.Error
			keyless := errors.As(err, &of) && of.TraceID == id && t.health.sick() == nil // as when the ring lacks its key
			if tga.CodeOf(err) == tga.StoreUnavailable && !keyless || ctx.Err() != nil {
				return nil, false, err
			}
			l = Listed{Listing: chain.Listing{OpenTrace: chain.OpenTrace{TraceID: id}}, Err: err}
		}
		page = append(page, l)
	}
	return page, more, nil
}

// list returns the line of a list for a trace that has an entry or a tombstone. archived says
// that it has only a tombstone.
func (t *traces) list(ctx context.Context, id tga.ID, archived bool) (l Listed, err error) {
	if err := t.lock(ctx, id); err != nil {
		return l, err
	}
	defer t.unlock(id)
	f, ok := t.cache.get(id)
	if !ok { // do not cache: a list of all traces would evict the traces in use
		if archived {
			// The entries were already removed when the tombstone was found.
			shown, ok, err := t.index.archivedListing(id)
			if err != nil {
				return l, recoveryFailed(id, err)
			}
			if ok {
				return Listed{Listing: shown}, nil
			}
			// The trace was erased meanwhile, which writes its entries back to the store.
		}
		if f, err = t.index.replay(id); err != nil {
			return l, err
		}
	}
	if f.Head.Seq == 0 {
		return l, damaged("trace %s has no entry", id).In(id)
	}
	return Listed{Listing: f.Listing()}, nil
}
