package engine

import (
	"context"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// change is the step as the ledger sees it.
func (s *step) change() ledger.Change {
	c := ledger.Change{
		Trace: s.after.ID, State: s.after.Head.State, Epoch: uint64(s.lease.Epoch), Notes: s.notes,
		Request: s.after.Request, Call: s.after.Call, Effect: s.after.Effect,
	}
	for i := range s.entries {
		e := &s.entries[i]
		c.Appends(e.Type, e.Seq, e.TS, e.Committed)
	}
	return c
}

// Record returns the ledger record of a key, nil where the key was never used.
func (db *DB) Record(ctx context.Context, key ledger.Key) (*ledger.Record, error) {
	if err := db.health.enter(); err != nil {
		return nil, err
	}
	defer db.health.leave()
	if err := db.ringed.missing(); err != nil {
		return nil, err // without the ring the digest in a record cannot be compared with a request
	}
	hash := key.Hash()
	if err := db.records.lock(ctx, tga.ID{}, hash); err != nil {
		return nil, err
	}
	defer db.records.unlock(hash)
	rec, err := db.records.get(hash)
	if rec != nil {
		own := *rec // rec is shared
		rec = &own
	}
	return rec, err
}

// Records calls each for every ledger record, in the order of the hashes of their keys, until each
// returns an error. It is for copying a store.
func (db *DB) Records(ctx context.Context, each func(hash [32]byte, record []byte) error) error {
	if err := db.ringed.missing(); err != nil {
		return err
	}
	lower, upper := keyspace.LedgerBounds()
	for lower != nil {
		var rows []kv
		err := db.inside(func(o *opened) (err error) {
			rows, lower, err = o.index.attachmentPage(lower, upper)
			return err
		})
		for i := 0; i < len(rows) && err == nil; i++ {
			var hash [32]byte
			if hash, err = keyspace.ParseLedger(rows[i].key); err == nil {
				err = each(hash, rows[i].value)
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Await waits until the record of key differs from seen in status, trace or attempts. It also
// returns nil if nobody holds the lease of seen.TraceID and the newest attempt is not a remote
// executor's (an executor needs no lease). When ctx ends, it returns ctx's error. Nil says only
// that something changed: read the record again.
func (db *DB) Await(ctx context.Context, key ledger.Key, seen ledger.Record) error {
	hash := key.Hash()
	for {
		// Subscribe before looking: otherwise a change between the look and the wait would
		// be missed.
		changed, cancelChanged := db.changed.subscribe(hash)
		released, cancelReleased := db.released.subscribe(seen.TraceID)
		over, err := db.moved(ctx, key, seen)
		if err == nil && !over {
			select {
			case <-changed:
			case <-released:
			case <-ctx.Done():
				err = ctx.Err()
			case <-db.health.stopped():
				err = tga.Errorf(tga.StoreUnavailable, "await: the store is closed")
			case <-db.health.poisoned:
				err = db.health.sick()
			}
		}
		cancelChanged()
		cancelReleased()
		if err != nil || over {
			return err
		}
	}
}

func (db *DB) moved(ctx context.Context, key ledger.Key, seen ledger.Record) (bool, error) {
	if !seen.Attempts.External && !db.leases.holds(seen.TraceID) {
		return true, nil
	}
	now, err := db.Record(ctx, key)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return false, err
	}
	return now == nil || now.Status != seen.Status || now.TraceID != seen.TraceID || now.Attempts != seen.Attempts, nil
}
