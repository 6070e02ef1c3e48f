package search

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// catchUp brings the index up to the appends that are durable now.
func (x *Index) catchUp(ctx context.Context) error {
	newest := x.o.Store.Cursor()
	for at, _, _ := x.stands(); at < newest; {
		began := time.Now()
		touched := map[tga.ID]chain.Leaf{} // the newest append of each trace
		var last chain.Leaf
		for l, err := range x.o.Store.Follow(ctx, at) {
			if err != nil {
				return errors.Join(errStore, err)
			}
			touched[l.TraceID], last = l, l
			if l.Index >= newest || len(touched) == batchTraces {
				break
			}
		}
		if err := x.follow(ctx, touched, &last); err != nil {
			return err
		}
		at = last.Index
		x.advance(at)
		x.rest(ctx, began)
	}
	return nil
}

// make makes the index from every trace, or reads every trace again for an index that exists.
func (x *Index) make(ctx context.Context) (err error) {
	start := time.Now()
	_, made, _ := x.stands()
	var from *chain.Leaf // later appends are followed afterwards
	if !made {
		from = &chain.Leaf{}
		if cursor := x.o.Store.Cursor(); cursor > 0 {
			if *from, err = x.next(ctx, cursor-1); err != nil {
				return err
			}
		}
	}
	x.begin()
	traces, err := x.sweep(ctx, tga.ID{}, lastID)
	if err != nil {
		return err
	}
	if err := x.finish(ctx); err != nil {
		return err
	}
	// Write the position last: an index with a position and without an open erasure is used as it is
	// at the next start.
	if err := x.take(ctx, nil, from); err != nil {
		return err
	}
	if !made {
		x.advance(from.Index)
	}
	x.o.Logger.Info("every trace is in the index of lists", "traces", traces, "after", time.Since(start).Round(time.Millisecond))
	return nil
}

// lastID is the largest id.
var lastID = tga.ID(slices.Repeat([]byte{0xff}, len(tga.ID{})))

// sweep writes the rows of all traces from first to last.
func (x *Index) sweep(ctx context.Context, first, last tga.ID) (traces int, err error) {
	began := time.Now()
	for page, err := range pages(ctx, x.o.Store, before(first)) {
		if err != nil {
			return traces, errors.Join(errStore, err)
		}
		over := slices.IndexFunc(page, func(id tga.ID) bool { return string(id[:]) > string(last[:]) })
		if over >= 0 {
			page = page[:over]
		}
		if err := x.take(ctx, page, nil); err != nil {
			return traces, err
		}
		traces += len(page)
		if over >= 0 {
			break
		}
		x.rest(ctx, began)
		began = time.Now()
	}
	return traces, nil
}

// before returns the largest id below id.
func before(id tga.ID) tga.ID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]--; id[i] != 0xff {
			return id
		}
	}
	return tga.ID{}
}

// pages yields the ids of all traces after an id, in their order.
func pages(ctx context.Context, s Store, after tga.ID) iter.Seq2[[]tga.ID, error] {
	return func(yield func([]tga.ID, error) bool) {
		if r, ok := s.(Reader); ok {
			for {
				page, err := r.Some(ctx, after)
				if err != nil {
					yield(nil, err)
					return
				}
				if len(page) == 0 || !yield(page, nil) {
					return
				}
				after = page[len(page)-1]
			}
		}
		page := make([]tga.ID, 0, batchTraces)
		for l, err := range s.Traces(ctx, after) {
			if err != nil {
				yield(nil, err)
				return
			}
			if page = append(page, l.TraceID); len(page) < batchTraces {
				continue
			}
			if !yield(page, nil) {
				return
			}
			page = page[:0]
		}
		if len(page) > 0 {
			yield(page, nil)
		}
	}
}

// read reads traces from the log. A trace that cannot be read is in no list by index, but in every list by id. If it may become
// readable, because only its key is unavailable now, it is read again later.
func (x *Index) read(ctx context.Context, ids []tga.ID, each func(*chain.Trace)) error {
	if r, ok := x.o.Store.(Reader); ok {
		return r.Read(ctx, ids, each)
	}
	for _, id := range ids {
		switch t, err := x.o.Store.Load(ctx, id); {
		case err == nil:
			each(t)
			delete(x.unread, id)
		case ownFault(err, id) && ctx.Err() == nil:
			x.unread[id] = struct{}{}
		case tga.CodeOf(err) == tga.StoreUnavailable || ctx.Err() != nil:
			return err
		}
	}
	return nil
}

// ownFault reports whether an error says that only this trace cannot be read now, for example because the key ring lacks its key.
func ownFault(err error, id tga.ID) bool {
	var of *tga.Error
	return tga.CodeOf(err) == tga.StoreUnavailable && errors.As(err, &of) && of.TraceID == id
}

func (x *Index) hasUnread() bool {
	x.writing.Lock()
	defer x.writing.Unlock()
	return len(x.unread) > 0
}

// readAgain retries, from time to time, the traces that could not be read.
func (x *Index) readAgain(ctx context.Context) error {
	if time.Since(x.looked) < x.o.Again {
		return nil
	}
	x.looked = time.Now()
	x.writing.Lock()
	ids := slices.Collect(maps.Keys(x.unread))
	x.writing.Unlock()
	for page := range slices.Chunk(ids, batchTraces) {
		began := time.Now()
		if err := x.take(ctx, page, nil); err != nil {
			return err
		}
		x.rest(ctx, began)
	}
	return nil
}

// follow writes the rows of traces with new appends. last is the newest of these appends.
func (x *Index) follow(ctx context.Context, touched map[tga.ID]chain.Leaf, last *chain.Leaf) error {
	rows, ids := make([]Row, 0, len(touched)), make([]tga.ID, 0, len(touched))
	r, _ := x.o.Store.(Reader)
	for id, l := range touched {
		if r != nil {
			if t := r.Known(&l); t != nil {
				rows = append(rows, RowOf(t))
				continue
			}
		}
		ids = append(ids, id)
	}
	return x.takeWith(ctx, rows, ids, last)
}

// take reads traces from the log and writes their rows. If last is not nil, it also writes the position.
func (x *Index) take(ctx context.Context, ids []tga.ID, last *chain.Leaf) error {
	return x.takeWith(ctx, make([]Row, 0, len(ids)), ids, last)
}

// takeWith is take with additional rows, which the caller has made already.
func (x *Index) takeWith(ctx context.Context, rows []Row, ids []tga.ID, last *chain.Leaf) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	if err := x.read(ctx, ids, func(t *chain.Trace) { rows = append(rows, RowOf(t)) }); err != nil {
		return errors.Join(errStore, err)
	}
	return x.o.Table.Put(ctx, rows, last)
}

// again reads the traces again of whose erasure the table has learned by itself.
func (x *Index) again(ctx context.Context) error {
	if x.o.Look == 0 {
		return nil
	}
	for {
		spans, err := x.o.Table.Again(ctx)
		if err != nil || len(spans) == 0 {
			return err
		}
		began := time.Now()
		single := map[tga.ID]struct{}{}
		for _, s := range spans {
			if s.First == s.Last {
				single[s.First] = struct{}{}
				continue
			}
			if _, err := x.sweep(ctx, s.First, s.Last); err != nil {
				return err
			}
		}
		if err := x.take(ctx, slices.Collect(maps.Keys(single)), nil); err != nil {
			return err
		}
		if err := x.o.Table.Done(ctx, spans); err != nil {
			return err
		}
		x.rest(ctx, began)
	}
}
