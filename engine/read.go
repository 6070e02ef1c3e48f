package engine

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/segment"
)

// fold returns a trace as it is on disk, the empty one where the id was never used.
// The trace's lock is held.
func (db *DB) fold(id tga.ID) (fold, error) {
	if f, ok := db.cache.get(id); ok {
		return f, nil
	}
	f, err := db.replay(db.p, id)
	if err == nil && f.Head.Seq > 0 {
		db.cache.put(id, f)
	}
	return f, err
}

// replay reads and checks a trace from genesis. A trace has at most four entries, so
// there is no shorter way that a checkpoint would open, and this one proves more.
//
// A fault is STATE_RECOVERY_FAILED wrapping its cause. It concerns this trace alone:
// the others go on.
func (db *DB) replay(r reader, id tga.ID) (fold, error) {
	rows, err := db.rows(r, id)
	if err != nil {
		return fold{}, recoveryFailed(id, err)
	}
	t, err := wal.Replay(id, rows.decodeEntries(), func(yield func(tga.Note, error) bool) {
		for n, err := range rows.decodeNotes() {
			if !yield(n.Note, err) {
				return
			}
		}
	})
	if err != nil {
		return fold{}, recoveryFailed(id, err)
	}
	return fold{Trace: t, segment: rows.segment}, nil
}

func recoveryFailed(id tga.ID, err error) error {
	switch tga.CodeOf(err) {
	case tga.StoreUnavailable, tga.FormatTooNew, tga.StateRecoveryFailed:
		return err // the trace may be good and this process cannot read it, or it is said already
	}
	out := tga.Errorf(tga.StateRecoveryFailed, "trace %s: %w", id, err).In(id)
	out.Where = "stored"
	var cause *tga.Error
	if errors.As(err, &cause) {
		out.Seq, out.Note, out.WantDigest, out.GotDigest = cause.Seq, cause.Note, cause.WantDigest, cause.GotDigest
	}
	return out
}

// rows is what the store has of a trace, not yet decoded: its entry and note frames,
// or where it is archived the segment's record.
type rows struct {
	db             *DB
	r              reader
	id             tga.ID
	entries, notes []kv
	archived       *segment.Trace
	segment        uint64
	spilled        func(seq uint64) // told of each entry that has chunks; may be nil
}

// rows reads the frames of a trace. Between the commit of a segment and the removal of
// the entries both are there; the entries count then.
func (db *DB) rows(r reader, id tga.ID) (rows, error) {
	out := rows{db: db, r: r, id: id}
	var err error
	lower, upper := keyspace.EntryBounds(id)
	if out.entries, err = db.page(r, lower, upper, 0); err != nil {
		return out, err
	}
	if len(out.entries) == 0 {
		out.archived, out.segment, err = db.archived(r, id)
		return out, err
	}
	lower, upper = keyspace.NoteBounds(id)
	out.notes, err = db.page(r, lower, upper, 0)
	return out, err
}

// decodeEntries yields the entries in the order of their keys, each checked for itself
// and against its key. It ends with the first error.
func (rs rows) decodeEntries() iter.Seq2[wal.Entry, error] {
	return func(yield func(wal.Entry, error) bool) {
		if rs.archived != nil {
			for _, e := range rs.archived.Entries {
				if !yield(e, nil) {
					return
				}
			}
			return
		}
		for _, row := range rs.entries {
			e, err := rs.decodeEntry(row)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (rs rows) decodeEntry(row kv) (wal.Entry, error) {
	id, seq, err := keyspace.ParseEntry(row.key)
	if err != nil {
		return wal.Entry{}, err
	}
	e, err := wal.DecodeFrame(row.value, func(size int64) ([]byte, error) {
		if rs.spilled != nil {
			rs.spilled(seq)
		}
		return rs.db.spill(rs.r, id, seq, size)
	})
	if err == nil && (e.TraceID != id || e.Seq != seq) {
		err = damaged("entry %d of trace %s lies under the key of entry %d of trace %s", e.Seq, e.TraceID, seq, id).In(id)
	}
	return e, err
}

// decodeNotes yields the notes as decodeEntries does the entries.
func (rs rows) decodeNotes() iter.Seq2[segment.Note, error] {
	return func(yield func(segment.Note, error) bool) {
		if rs.archived != nil {
			for _, n := range rs.archived.Notes {
				if !yield(n, nil) {
					return
				}
			}
			return
		}
		for _, row := range rs.notes {
			n, err := decodeNote(row)
			if !yield(n, err) || err != nil {
				return
			}
		}
	}
}

func decodeNote(row kv) (n segment.Note, err error) {
	id, number, err := keyspace.ParseNote(row.key)
	if err != nil {
		return n, err
	}
	if n.Note, n.Committed, n.Epoch, err = wal.DecodeNoteFrame(row.value); err != nil {
		return n, err
	}
	if n.TraceID != id || n.Number != number {
		return n, damaged("note %d of trace %s lies under the key of note %d of trace %s", n.Number, n.TraceID, number, id).In(id)
	}
	return n, nil
}

// spill reads the chunks of an entry. They are numbered without a gap.
func (db *DB) spill(r reader, id tga.ID, seq uint64, size int64) ([]byte, error) {
	lower, upper := keyspace.ChunkBounds(id, seq)
	out := make([]byte, 0, min(size, maxBatch))
	next := uint16(0)
	err := db.scan(r, lower, upper, func(key, value []byte) error {
		_, _, chunk, err := keyspace.ParseChunk(key)
		if err != nil {
			return err
		}
		if chunk != next || int64(len(out)+len(value)) > size {
			return damaged("chunk %d of entry %d of trace %s, after %d bytes of %d", chunk, seq, id, len(out), size).In(id)
		}
		next++
		out = append(out, value...)
		return nil
	})
	return out, err
}

// entryAt reads one entry without its trace's lock. The caller knows that it is
// durable.
func (db *DB) entryAt(id tga.ID, seq uint64) (e wal.Entry, err error) {
	// A read view: without the lock, the trace may be archived meanwhile.
	v := view{Snapshot: db.p.NewSnapshot()}
	defer func() { err = closeView(v, err) }()
	rows, err := db.rows(v, id)
	if err != nil {
		return wal.Entry{}, recoveryFailed(id, err)
	}
	for e, err := range rows.decodeEntries() {
		if err != nil {
			return wal.Entry{}, recoveryFailed(id, err)
		}
		if e.Seq == seq {
			return e, nil
		}
	}
	return wal.Entry{}, recoveryFailed(id, damaged("trace %s has no entry %d", id, seq).In(id))
}

// Load returns a trace as it is on disk. NOT_FOUND: it has no entry.
// STATE_RECOVERY_FAILED, wrapping the cause: an entry or note fails a check.
func (db *DB) Load(ctx context.Context, id tga.ID) (*wal.Trace, error) {
	if err := db.health.enter(); err != nil {
		return nil, err
	}
	defer db.health.leave()
	if err := db.lockTrace(ctx, id); err != nil {
		return nil, err
	}
	defer db.traces.unlock(id)
	f, err := db.fold(id)
	if err != nil {
		return nil, err
	}
	if f.Head.Seq == 0 {
		return nil, tga.Errorf(tga.NotFound, "trace %s has no entry", id).In(id)
	}
	return f.Clone(), nil
}

// State returns the execution state of a trace; last sequence number 0 where it has no
// entry.
func (db *DB) State(ctx context.Context, id tga.ID) (tga.ExecutionState, error) {
	t, err := db.Load(ctx, id)
	if tga.CodeOf(err) == tga.NotFound {
		return wal.NewTrace(id).State(), nil
	}
	if err != nil {
		return tga.ExecutionState{}, err
	}
	return t.State(), nil
}

// Entries yields the entries of a trace after a sequence number, in order.
func (db *DB) Entries(ctx context.Context, id tga.ID, after uint64) iter.Seq2[wal.Entry, error] {
	return func(yield func(wal.Entry, error) bool) {
		list, err := db.readTrace(ctx, id, func() (list []wal.Entry, err error) {
			rows, err := db.rows(db.p, id)
			if err != nil {
				return nil, err
			}
			for e, err := range rows.decodeEntries() {
				if err != nil {
					return list, err
				}
				if e.Seq > after {
					list = append(list, e)
				}
			}
			return list, nil
		})
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(wal.Entry{}, err)
		}
	}
}

// readTrace runs read under the trace's lock. A trace is small (four entries, bounded
// answers), so it is read at once and nothing is held while the caller looks at it.
func (db *DB) readTrace(ctx context.Context, id tga.ID, read func() ([]wal.Entry, error)) ([]wal.Entry, error) {
	if err := db.health.enter(); err != nil {
		return nil, err
	}
	defer db.health.leave()
	if err := db.lockTrace(ctx, id); err != nil {
		return nil, err
	}
	defer db.traces.unlock(id)
	list, err := read()
	if err != nil {
		err = recoveryFailed(id, err)
	}
	return list, err
}

// Notes yields the notes of a trace after a number, in order.
func (db *DB) Notes(ctx context.Context, id tga.ID, after uint32) iter.Seq2[tga.Note, error] {
	return func(yield func(tga.Note, error) bool) {
		t, err := db.Load(ctx, id)
		if err != nil {
			if tga.CodeOf(err) != tga.NotFound {
				yield(tga.Note{}, err)
			}
			return
		}
		for _, n := range t.Notes {
			if n.Number > after && !yield(n, nil) {
				return
			}
		}
	}
}

// OpenTraces yields the traces that are not terminal, oldest id first.
func (db *DB) OpenTraces(ctx context.Context) iter.Seq2[wal.OpenTrace, error] {
	return func(yield func(wal.OpenTrace, error) bool) {
		lower, upper := keyspace.OpenBounds()
		for lower != nil {
			list, next, err := db.openPage(ctx, lower, upper)
			for _, o := range list {
				if !yield(o, nil) {
					return
				}
			}
			if err != nil {
				yield(wal.OpenTrace{}, err)
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
func (db *DB) openPage(ctx context.Context, lower, upper []byte) (list []wal.OpenTrace, next []byte, err error) {
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
	open := make(map[tga.ID]wal.OpenTrace)
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
func (db *DB) openNow(ctx context.Context, id tga.ID, open map[tga.ID]wal.OpenTrace) error {
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

// NewestTS returns a time not before any commit time and any ts stored. It does not go
// back, over a restart either: a clock behind it licenses nothing.
func (db *DB) NewestTS() tga.Millis { return tga.Millis(max(db.newest.Load(), db.newestTS.Load())) }

// now returns the clock, but never a time before the newest commit time, which it
// raises. The ts of an entry that a caller made is no clock: one from the far future
// stays in its trace.
func (db *DB) now() tga.Millis {
	return tga.Millis(raise(&db.newest, int64(tga.MillisOf(db.opts.Clock()))))
}

// raise makes a at least v and returns the larger.
func raise(a *atomic.Int64, v int64) int64 {
	for {
		old := a.Load()
		if v <= old {
			return old
		}
		if a.CompareAndSwap(old, v) {
			return v
		}
	}
}

// Secret returns 32 random bytes made with the store, from which permits are derived.
func (db *DB) Secret() [32]byte { return db.secret }
