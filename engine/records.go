package engine

import (
	"context"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// records are the ledger records of an open store.
//
// Each key has one lock. A goroutine that reads or changes the record of a key holds the lock; if
// it changes the record, the lock is held until the change is durable and published. So two traces
// with one key cannot both find the key free. Keys are locked after traces: no goroutine waits for
// a trace while it holds a key.
type records struct {
	index  *index
	health *health

	locks   locks[[32]byte]               // of keys, each held from the check of an append to its sync
	recent  lru[[32]byte, *ledger.Record] // the records used last; nil for a key that was never used
	ringed  *ringed
	filter  *keyFilter     // of the keys that have a record; nil if the store is read-only
	changed *hub[[32]byte] // wakes the callers that wait for a record to change
}

func openRecords(x *index, filter *keyFilter, changed *hub[[32]byte], ringed *ringed, o Options) *records {
	r := &records{index: x, health: x.health, ringed: ringed, filter: filter, changed: changed}
	r.locks.init()
	r.recent.init(o.TraceCacheCount, o.TraceCacheBytes)
	return r
}

// lock takes the lock under which a ledger record is read and changed.
func (r *records) lock(ctx context.Context, id tga.ID, key [32]byte) error {
	if err := r.locks.lock(ctx, r.health.poisoned, key); err != nil {
		return r.health.waitFailed("wait for a ledger key", id, err)
	}
	return nil
}

// unlock gives the lock of a key back.
func (r *records) unlock(key [32]byte) { r.locks.unlock(key) }

// change returns the record of the step's key after s, nil if s does not change it.
// [ledger.Change.Apply] has the rule. The key's lock is held.
func (r *records) change(s *step) (*ledger.Record, error) {
	stored, err := s.before.reservation, error(nil)
	if stored == nil {
		if stored, err = r.get(s.hash); err != nil {
			return nil, err
		}
	}
	s.first = stored == nil
	c := s.change()
	c.Digest = r.ringed.digest
	return c.Apply(stored, r.statusOf)
}

// statusOf returns the outcome status of a settled effect, "" if the effect is erased. The
// lock of the effect's trace must not be taken while a key is held. It is not needed either,
// because the effect of a settled record is durable.
func (r *records) statusOf(trace tga.ID, seq uint64) (string, error) {
	e, err := r.index.entryAt(trace, seq)
	if err != nil || e.Artifact == nil {
		return "", err
	}
	return e.Artifact.Effect.Outcome.Status, nil
}

// get returns the record of a key, nil if the key was never used. The key's lock is held,
// and a change of the record holds the same lock until it is durable. So the cached record,
// or the cached absence of one, stays true until the next change is published.
func (r *records) get(key [32]byte) (*ledger.Record, error) {
	if rec, ok := r.recent.get(key); ok {
		return rec, nil
	}
	if r.filter.never(&key) {
		return nil, nil
	}
	value, err := r.index.get(keyspace.AppendLedger(nil, key))
	if err != nil {
		return nil, err
	}
	var rec *ledger.Record
	if value != nil {
		if rec, err = ledger.DecodeRecord(value); err != nil {
			return nil, err
		}
	}
	r.recent.put(key, rec, recordSize)
	return rec, nil
}

// publish makes the durable record of a step visible, and wakes the callers that wait for the
// record to change. The key's lock is held.
func (r *records) publish(s *step) {
	if s.record == nil {
		return
	}
	r.recent.put(s.hash, s.record, recordSize)
	if s.first && r.filter.used(&s.hash) {
		r.filter.grow()
	}
	r.changed.notify(s.hash)
}
