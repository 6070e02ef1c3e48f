package engine

import (
	"context"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// records are the ledger records of an open store.
//
// A key has one lock. Who reads or changes its record holds that lock, and who changes it holds
// it until the change is durable and published. So two traces with one key cannot both find that
// nobody has reserved it. Keys are locked after traces: nobody waits for a trace with a key held.
type records struct {
	index  *index
	health *health

	locks   locks[[32]byte]               // a key, from its check to its sync
	recent  lru[[32]byte, *ledger.Record] // those used last; nil for a key never used
	ringed  *ringed
	filter  *keyFilter     // of the keys that have one; nil in a store that is read only
	changed *hub[[32]byte] // tells who waits for the change of a record
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

// change returns the record of the step's key after s, nil where s leaves it alone.
// The rule is [ledger.Change.Apply]'s; the key's lock is held.
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

// statusOf returns the outcome status of a settled effect, "" where it is erased. A
// settled record's effect is durable, so the lock of its trace, which must not be taken
// while a key is held, need not be.
func (r *records) statusOf(trace tga.ID, seq uint64) (string, error) {
	e, err := r.index.entryAt(trace, seq)
	if err != nil || e.Artifact == nil {
		return "", err
	}
	return e.Artifact.Effect.Outcome.Status, nil
}

// get returns the record of a key, nil where it was never used. The key's lock is held,
// and whoever changes a record holds that lock until the change is durable: so what is
// found, or found to be absent, stays true until the next change is published.
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

// publish shows the durable record of a step, and wakes those who wait for it. The key's lock is
// held.
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
