package engine

import (
	"context"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// keptCheckpoints is how many checkpoints of a trace are kept: the newest one, and an older one
// as a fallback.
const keptCheckpoints = 2

// WriteCheckpoint seals the execution state at the trace's head, stores it durably and
// returns it. The lease must be current; NOT_FOUND: the trace has no entry.
func (db *DB) WriteCheckpoint(ctx context.Context, lease chain.Lease) (tga.Checkpoint, error) {
	if err := db.health.enter(); err != nil {
		return tga.Checkpoint{}, err
	}
	defer db.health.leave()
	if err := db.writable(); err != nil {
		return tga.Checkpoint{}, err
	}
	id := lease.TraceID
	if err := db.traces.lock(ctx, id); err != nil {
		return tga.Checkpoint{}, err
	}
	defer db.traces.unlock(id)
	if err := db.leases.check(lease); err != nil {
		return tga.Checkpoint{}, err
	}
	f, err := db.traces.fold(id)
	switch {
	case err != nil:
		return tga.Checkpoint{}, err
	case f.Head.Seq == 0:
		return tga.Checkpoint{}, tga.Errorf(tga.NotFound, "checkpoint of trace %s: it has no entry", id).In(id)
	case f.segment != 0:
		return tga.Checkpoint{}, tga.Errorf(tga.StateInvalidTransition, "checkpoint of a trace archived in segment %d", f.segment).In(id)
	}
	if f.PlanID.IsZero() {
		return tga.Checkpoint{}, tga.Errorf(tga.StateInvalidTransition, "checkpoint of trace %s: it was erased, and its plan is not known", id).In(id)
	}
	cp := f.Checkpoint(db.times.now())
	stored, err := db.index.checkpoints(id)
	if err != nil {
		return tga.Checkpoint{}, err
	}
	w := db.commits.newWriter()
	key := keyspace.AppendCheckpoint(nil, id, cp.Seq)
	kept := 1
	for i := len(stored) - 1; i >= 0; i-- {
		switch {
		case string(stored[i].key) == string(key): // replaced
		case kept < keptCheckpoints:
			kept++
		default:
			w.delete(stored[i].key)
		}
	}
	w.body(key, cp.AppendCanonical(nil))
	return cp, db.commits.apply(w)
}

// checkpoints returns the stored checkpoints of a trace, oldest first. The trace's
// lock is held.
func (r *reading) checkpoints(id tga.ID) ([]kv, error) {
	lower, upper := keyspace.CheckpointBounds(id)
	return r.page(lower, upper, 0)
}

// LatestCheckpoint returns the newest checkpoint that verifies; ok is false if there is none. A
// checkpoint that fails its own digest, or disagrees with the entry that it names, is logged,
// counted ([Stats.BadCheckpoints]) and skipped. Nothing is lost: the state also follows from an
// older checkpoint or from genesis.
func (db *DB) LatestCheckpoint(ctx context.Context, id tga.ID) (cp tga.Checkpoint, ok bool, err error) {
	if err := db.health.enter(); err != nil {
		return tga.Checkpoint{}, false, err
	}
	defer db.health.leave()
	if err := db.traces.lock(ctx, id); err != nil {
		return tga.Checkpoint{}, false, err
	}
	defer db.traces.unlock(id)
	stored, err := db.index.checkpoints(id)
	if err != nil || len(stored) == 0 {
		return tga.Checkpoint{}, false, err
	}
	f, err := db.traces.fold(id)
	if err != nil {
		return tga.Checkpoint{}, false, err
	}
	for i := len(stored) - 1; i >= 0; i-- {
		cp, err := verifyCheckpoint(f.Trace, stored[i])
		if err == nil {
			return *cp, true, nil
		}
		db.stats.badCheckpoints.Add(1)
		db.log.Error("checkpoint skipped", "trace", id, "error", err)
	}
	return tga.Checkpoint{}, false, nil
}

// verifyCheckpoint checks a stored checkpoint against its key, its own digest and the
// trace's entry at its sequence number.
func verifyCheckpoint(t *chain.Trace, stored kv) (*tga.Checkpoint, error) {
	id, seq, err := keyspace.ParseCheckpoint(stored.key)
	if err != nil {
		return nil, err
	}
	cp, err := t.VerifyCheckpoint(stored.value)
	if err == nil && (id != t.ID || cp.Seq != seq) {
		err = damaged("checkpoint of trace %s at seq %d lies under the key of trace %s at seq %d", t.ID, cp.Seq, id, seq).In(t.ID)
	}
	if err != nil {
		return nil, err
	}
	return cp, nil
}
