package engine

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// replay reads and checks a trace from genesis. A trace has at most four entries, so
// starting from a checkpoint would not be faster, and starting from genesis proves more.
//
// A fault is STATE_RECOVERY_FAILED wrapping its cause. It concerns only this trace; the
// other traces continue.
func (r *reading) replay(id tga.ID) (fold, error) {
	rows, err := r.rows(id)
	if err != nil {
		return fold{}, recoveryFailed(id, err)
	}
	all, bad := rows.decode()
	t, err := all.Replay()
	if err = errors.Join(err, bad); err != nil { // Replay's error first: it concerns an earlier entry
		return fold{}, recoveryFailed(id, err)
	}
	return fold{Trace: t, segment: rows.segment}, nil
}

// unused reports whether a trace has neither an entry nor a tombstone. For a new trace it
// needs one iterator, and [reading.rows] needs two.
func (r *reading) unused(id tga.ID) (unused bool, err error) {
	err = r.health.guarded(func() error {
		it, err := r.from.NewIter(&filtered)
		if err != nil {
			return err
		}
		lower, upper := keyspace.EntryBounds(id)
		unused = !(it.SeekGE(lower) && bytes.Compare(it.Key(), upper) < 0)
		if unused && it.Error() == nil {
			stone := keyspace.AppendTombstone(nil, id)
			unused = !(it.SeekPrefixGE(stone) && bytes.Equal(it.Key(), stone))
		}
		return errors.Join(it.Error(), it.Close())
	})
	return unused, readError(err)
}

func recoveryFailed(id tga.ID, err error) error {
	switch tga.CodeOf(err) {
	case tga.StoreUnavailable, tga.FormatTooNew, tga.StateRecoveryFailed:
		return err // the trace may be intact but unreadable for this process, or the code is set already
	}
	out := tga.Errorf(tga.StateRecoveryFailed, "trace %s: %w", id, err).In(id)
	out.Where = "stored"
	var cause *tga.Error
	if errors.As(err, &cause) {
		out.Seq, out.Note, out.WantDigest, out.GotDigest = cause.Seq, cause.Note, cause.WantDigest, cause.GotDigest
	}
	return out
}

// entryAt reads one entry without the lock of its trace. The caller knows that the entry is
// durable.
func (x *index) entryAt(id tga.ID, seq uint64) (e chain.Entry, err error) {
	// Use a read view: without the lock, the trace may be archived during the read.
	v := x.view()
	defer func() { err = closeView(v, err) }()
	rows, err := v.rows(id)
	if err != nil {
		return chain.Entry{}, recoveryFailed(id, err)
	}
	t, bad := rows.decode()
	for _, e := range t.Entries {
		if e.Seq == seq {
			return e, nil
		}
	}
	if bad != nil {
		return chain.Entry{}, recoveryFailed(id, bad)
	}
	return chain.Entry{}, recoveryFailed(id, damaged("trace %s has no entry %d", id, seq).In(id))
}

// Load returns a trace as it is on disk. NOT_FOUND: it has no entry.
// STATE_RECOVERY_FAILED, wrapping the cause: an entry or note fails a check.
func (db *DB) Load(ctx context.Context, id tga.ID) (*chain.Trace, error) {
	if err := db.health.enter(); err != nil {
		return nil, err
	}
	defer db.health.leave()
	if err := db.traces.lock(ctx, id); err != nil {
		return nil, err
	}
	defer db.traces.unlock(id)
	f, err := db.traces.fold(id)
	if err != nil {
		return nil, err
	}
	if f.Head.Seq == 0 {
		return nil, tga.Errorf(tga.NotFound, "trace %s has no entry", id).In(id)
	}
	return f.Clone(), nil
}

// State returns the execution state of a trace. If the trace has no entry, the last sequence
// number is 0.
func (db *DB) State(ctx context.Context, id tga.ID) (tga.ExecutionState, error) {
	t, err := db.Load(ctx, id)
	if tga.CodeOf(err) == tga.NotFound {
		return chain.NewTrace(id).State(), nil
	}
	if err != nil {
		return tga.ExecutionState{}, err
	}
	return t.State(), nil
}

// Entries yields the entries of a trace after a sequence number, in order.
func (db *DB) Entries(ctx context.Context, id tga.ID, after uint64) iter.Seq2[chain.Entry, error] {
	return func(yield func(chain.Entry, error) bool) {
		var list []chain.Entry
		err := db.inside(func(o *opened) (err error) {
			list, err = o.traces.entries(ctx, id, after)
			return err
		})
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(chain.Entry{}, err)
		}
	}
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

// NewestTS returns a time not before any stored commit time or ts. It never goes back, not
// even over a restart. While the clock is behind it, the clock licenses no second send.
func (db *DB) NewestTS() tga.Millis { return db.times.last() }

// Secret returns 32 random bytes that were made with the store. Permits are derived from them.
func (db *DB) Secret() [32]byte { return db.secret }

// Shared reports that no other process can write to the store: one process has the directory.
func (db *DB) Shared() bool { return false }
