package engine

import (
	"bytes"
	"context"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// appendBoth is [DB.Append] for a batch with notes on a second trace. Each trace is
// checked as if it were alone; both commit, or neither.
//
// Locks are taken in the order that keeps appends from waiting for each other in a
// circle: traces by id, then ledger keys by their bytes.
func (db *DB) appendBoth(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	second := b.Also.Lease
	if second.TraceID == lease.TraceID || len(b.Also.Notes) == 0 {
		return chain.Appended{}, tga.Errorf(tga.ValidationError, "append to trace %s and also to %s with %d notes", lease.TraceID, second.TraceID, len(b.Also.Notes)).In(lease.TraceID)
	}
	ids := []tga.ID{lease.TraceID, second.TraceID}
	slices.SortFunc(ids, func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		if err := db.lockTrace(ctx, id); err != nil {
			return chain.Appended{}, err
		}
		defer db.traces.unlock(id)
	}
	head, err := db.fold(lease.TraceID)
	if err != nil {
		return chain.Appended{}, err
	}
	if done, ok := chain.Replayed(head.Trace, b); ok {
		db.stats.replayed.Add(1) // the second part is durable with the first
		return done, nil
	}
	steps := make([]*step, 0, 2)
	for _, part := range []struct {
		lease chain.Lease
		batch chain.Batch
	}{
		{lease, chain.Batch{Expect: b.Expect, Artifacts: b.Artifacts, Notes: b.Notes, Attachments: b.Attachments}},
		{second, chain.Batch{Notes: b.Also.Notes}},
	} {
		if err := db.leases.check(part.lease); err != nil {
			return chain.Appended{}, err
		}
		head, err := db.fold(part.lease.TraceID)
		if err != nil {
			return chain.Appended{}, err
		}
		if err := db.expect(head, part.batch); err != nil {
			return chain.Appended{}, err
		}
		s, err := db.link(head, part.lease, part.batch)
		if err != nil {
			return chain.Appended{}, err
		}
		steps = append(steps, s)
	}
	if err := db.lockBoth(ctx, steps); err != nil {
		return chain.Appended{}, err
	}
	defer func() {
		for _, k := range keysOf(steps) {
			db.keys.unlock(k)
		}
	}()
	for _, s := range steps {
		if s.hash == ([32]byte{}) {
			continue
		}
		if s.record, err = db.ledgerChange(s, s.hash); err != nil {
			return chain.Appended{}, err
		}
	}
	if err := db.commit(steps...); err != nil {
		return chain.Appended{}, err
	}
	return steps[0].appended(), nil
}

// lockBoth locks the ledger keys of the steps and notes them in step.hash.
func (db *DB) lockBoth(ctx context.Context, steps []*step) error {
	for _, s := range steps {
		key, ok, err := s.ledgerKey()
		if err != nil {
			return err
		}
		if ok {
			s.hash = key
		}
	}
	keys := keysOf(steps)
	if steps[0].hash == steps[1].hash && len(keys) > 0 {
		return tga.Errorf(tga.ValidationError, "append to traces %s and %s: both have the same ledger key", steps[0].after.ID, steps[1].after.ID).In(steps[0].after.ID)
	}
	for i, k := range keys {
		if err := db.lockKey(ctx, steps[0].after.ID, k); err != nil {
			for _, held := range keys[:i] {
				db.keys.unlock(held)
			}
			return err
		}
	}
	return nil
}

// keysOf returns the ledger keys of the steps in order, each once.
func keysOf(steps []*step) [][32]byte {
	var keys [][32]byte
	for _, s := range steps {
		if s.hash != ([32]byte{}) {
			keys = append(keys, s.hash)
		}
	}
	slices.SortFunc(keys, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(keys)
}
