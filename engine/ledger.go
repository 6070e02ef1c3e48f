package engine

import (
	"context"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// ledgerKey returns the hash of the key that s touches or relies on; ok is false for
// a step that has nothing to do with the ledger.
func (s *step) ledgerKey() (key [32]byte, ok bool, err error) {
	touches := s.entryOf(tga.CallType) != nil || s.entryOf(tga.EffectType) != nil
	for i := range s.notes {
		changes, afterEffect := ledger.ChangesRecord(s.notes[i].Kind)
		if !changes {
			continue
		}
		touches = true
		if st := s.after.Head.State; afterEffect && !st.Terminal() || !afterEffect && st != tga.Executing {
			return key, false, tga.Errorf(tga.StateInvalidTransition, "note %s on trace %s: it is %s", s.notes[i].Kind, s.after.ID, s.after.Head.State).In(s.after.ID)
		}
	}
	if !touches {
		return key, false, nil
	}
	if s.after.Call == nil {
		return key, false, tga.Errorf(tga.StateInvalidTransition, "append to trace %s: its tool_call is not there", s.after.ID).In(s.after.ID)
	}
	return ledger.KeyOf(s.after.Namespace, s.after.Call).Hash(), true, nil
}

// ledgerChange returns the record of key after s, nil where s leaves it alone. The
// key's lock is held. The rule (docs/SEMANTICS.md):
//
//	call that is sent, no record                        reserve
//	…, other request digest                             IDEMPOTENCY_KEY_CONFLICT
//	…, reserved by another trace                        IDEMPOTENCY_KEY_IN_FLIGHT, naming it
//	…, settled retryable and meta.retry_of names it     reserve anew
//	…, settled otherwise                                IDEMPOTENCY_KEY_IN_FLIGHT, naming it
//	…, abandoned                                        EFFECT_IN_DOUBT
//	…, expired                                          IDEMPOTENCY_KEY_EXPIRED
//	call never sent, with its effect                    unchanged, see [DB.served]
//	call that is sent and its effect in one batch       STATE_INVALID_TRANSITION
//	effect, notes attempt and not_sent                  the trace's own reservation follows
//	notes confirmation and compensated                  the trace's own settled record follows
func (db *DB) ledgerChange(s *step, key [32]byte) (*ledger.Record, error) {
	call := s.after.Call
	stored, err := s.before.reservation, error(nil)
	if stored == nil {
		if stored, err = db.record(key); err != nil {
			return nil, err
		}
	}
	s.hash = key
	began, ended := s.entryOf(tga.CallType), s.entryOf(tga.EffectType)
	if ledger.NeverSent(call) {
		return nil, db.served(s, stored)
	}
	rec := stored
	if began != nil {
		if ended != nil {
			// Between a call and an effect that commit together nothing was sent: an
			// effect here would be an invention.
			return nil, tga.Errorf(tga.StateInvalidTransition, "append to trace %s: tool_call %s says meta.attempt %q, and its effect is in the same batch", s.after.ID, call.ID, call.Meta.String(tga.MetaAttempt)).In(s.after.ID)
		}
		if err := s.free(stored); err != nil {
			return nil, err
		}
		made, err := ledger.Reserve(call, began.Seq, uint64(began.Epoch), min(began.TS, began.Committed))
		if err != nil {
			return nil, err
		}
		rec = &made
	}
	if len(s.entries) == 0 && s.after.Head.State.Terminal() && (rec == nil || rec.TraceID != s.after.ID) {
		return nil, tga.Errorf(tga.StateInvalidTransition, "note on trace %s: the record of its key is another trace's by now", s.after.ID).In(s.after.ID)
	}
	if rec == nil || rec.TraceID != s.after.ID {
		return nil, damaged("trace %s is EXECUTING, and the record of its key is not its own", s.after.ID).In(s.after.ID)
	}
	return s.follow(*rec)
}

func (s *step) entryOf(t tga.ArtifactType) *wal.Entry {
	for i := range s.entries {
		if s.entries[i].Type == t {
			return &s.entries[i]
		}
	}
	return nil
}

// follow applies the step's effect and notes to the trace's own reservation.
func (s *step) follow(rec ledger.Record) (*ledger.Record, error) {
	var err error
	if e := s.entryOf(tga.EffectType); e != nil {
		if rec, err = rec.Settle(s.after.Effect, e.Seq); err != nil {
			return nil, err
		}
	}
	for i := range s.notes {
		n := &s.notes[i]
		if n.Kind == tga.NoteAttempt {
			m, err := ledger.ParseMark(n.Body)
			if err != nil {
				return nil, err
			}
			if m.Epoch != uint64(s.lease.Epoch) {
				return nil, tga.Errorf(tga.StateConcurrentExecution, "attempt note of epoch %#x under epoch %#x", m.Epoch, uint64(s.lease.Epoch)).In(s.after.ID)
			}
		}
		if rec, err = rec.ApplyNote(n); err != nil {
			return nil, err
		}
	}
	return &rec, nil
}

// free reports whether the step's call may reserve a key whose record is r.
func (s *step) free(r *ledger.Record) error {
	if r == nil {
		return nil
	}
	call := s.after.Call
	refuse := func(code tga.Code, format string, args ...any) error {
		err := tga.Errorf(code, "key %q of %s/%s: "+format, append([]any{call.Call.IdempotencyKey, call.Call.Call.ToolServer, call.Call.Call.ToolName}, args...)...)
		return err.In(r.TraceID)
	}
	switch {
	case r.RequestDigest != tga.RequestDigest(call.Call.Call):
		return refuse(tga.IdempotencyKeyConflict, "used for another request by trace %s", r.TraceID)
	case r.Abandoned:
		return refuse(tga.EffectInDoubt, "trace %s was abandoned: whether it ran is not known", r.TraceID)
	case r.Status == ledger.Expired:
		return refuse(tga.IdempotencyKeyExpired, "used, and its record has expired")
	case r.Status == ledger.Reserved:
		return refuse(tga.IdempotencyKeyInFlight, "reserved by trace %s", r.TraceID)
	case r.Class == ledger.ClassRetryable && s.after.Request != nil && s.after.Request.Meta.String(tga.MetaRetryOf) == r.TraceID.String():
		return nil
	}
	return refuse(tga.IdempotencyKeyInFlight, "settled by trace %s: its effect is to be served", r.TraceID)
}

// served checks a call that is never sent. It comes with its effect, which is either
// the settled one of its key or an error of this trace alone. Any other would let a
// caller write an outcome that nothing led to.
func (db *DB) served(s *step, r *ledger.Record) error {
	call, effect := s.after.Call, s.after.Effect
	refuse := func(format string, args ...any) error {
		return tga.Errorf(tga.StateInvalidTransition, "append to trace %s, call never sent: "+format, append([]any{s.after.ID}, args...)...).In(s.after.ID)
	}
	if s.entryOf(tga.CallType) == nil || s.entryOf(tga.EffectType) == nil {
		return refuse("call and effect are not in one batch")
	}
	from, given := effect.Meta[tga.MetaReplayedFrom]
	if !given {
		if effect.Effect.Outcome.Status != tga.StatusError {
			return refuse("effect %s without meta.replayed_from", effect.Effect.Outcome.Status)
		}
		return nil
	}
	switch {
	case r == nil || r.Status != ledger.Settled:
		return refuse("the key has no settled record to serve")
	case from != r.TraceID.String():
		return refuse("replayed from %v, settled by %s", from, r.TraceID)
	case r.RequestDigest != tga.RequestDigest(call.Call.Call):
		return refuse("trace %s was for another request", r.TraceID)
	}
	// The record is settled, so that effect is durable; its trace's lock must not be
	// taken while a key is held, and need not be.
	first, err := db.entryAt(r.TraceID, r.EffectSeq)
	if err != nil {
		return err
	}
	if first.Artifact != nil && first.Artifact.Effect.Outcome.Status != effect.Effect.Outcome.Status {
		return refuse("effect %s, that of trace %s is %s", effect.Effect.Outcome.Status, r.TraceID, first.Artifact.Effect.Outcome.Status)
	}
	return nil
}

// record returns the record of a key, nil where it was never used. The key's lock is held,
// and whoever changes a record holds that lock until the change is durable: so what is
// found, or found to be absent, stays true until the next change is published.
func (db *DB) record(key [32]byte) (*ledger.Record, error) {
	if rec, ok := db.records.get(key); ok {
		return rec, nil
	}
	value, err := db.get(db.p, keyspace.AppendLedger(nil, key))
	if err != nil {
		return nil, err
	}
	var rec *ledger.Record
	if value != nil {
		if rec, err = ledger.DecodeRecord(value); err != nil {
			return nil, err
		}
	}
	db.records.put(key, rec, recordSize)
	return rec, nil
}

// Record returns the ledger record of a key, nil where the key was never used.
func (db *DB) Record(ctx context.Context, key ledger.Key) (*ledger.Record, error) {
	if err := db.health.enter(); err != nil {
		return nil, err
	}
	defer db.health.leave()
	hash := key.Hash()
	if err := db.lockKey(ctx, tga.ID{}, hash); err != nil {
		return nil, err
	}
	defer db.keys.unlock(hash)
	rec, err := db.record(hash)
	if rec != nil {
		own := *rec // the other is shared
		rec = &own
	}
	return rec, err
}

// Await returns nil when the record of key is no longer what seen says (its status,
// trace or attempts differ), or when nobody holds the lease of seen.TraceID and its
// newest attempt is not a remote executor's, which needs no lease; at ctx's end it
// returns ctx's error. It says only that something changed: read again.
func (db *DB) Await(ctx context.Context, key ledger.Key, seen ledger.Record) error {
	hash := key.Hash()
	for {
		// Subscribe before looking: a change between the look and the wait would
		// otherwise be slept through.
		changed, cancelChanged := db.recordChanged.subscribe(hash)
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
