package engine

import (
	"context"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Append checks, links and commits b to the trace of the lease and returns once it is
// on disk: the artifacts, their entries, the notes, the ledger record, the open index,
// the position in the global order and the attachments, all or none.
//
// ctx bounds the wait for the trace and for the ledger key; from the commit on it is
// not looked at. An error means that nothing was written, except STORE_UNAVAILABLE
// from a failed commit: then the store is poisoned and the fate of b is unknown until
// the next Open.
//
// The checks are made in this order (docs/SEMANTICS.md), and the first that fails
// names the code:
//
//	store      open, not poisoned, not frozen           STORE_UNAVAILABLE
//	batch      not empty, not too large                 VALIDATION_ERROR, LIMIT_EXCEEDED
//	replay     the log has it already                   nil, Replayed
//	lease      granted, and still the trace's newest    STATE_LOCK_ACQUIRE_FAILED, STATE_CONCURRENT_EXECUTION
//	head       as the caller expects it                 STATE_SEQUENCE_GAP, STATE_CHECKSUM_MISMATCH
//	each entry number, digests, machine, ids, links     see [chain.Trace.Apply]
//	each note  chain, body                              see [chain.Trace.ApplyNote]
//	ledger     the rule of the key                      see [DB.ledgerChange]
func (db *DB) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	t, err := db.Submit(ctx, lease, b)
	if err != nil {
		return chain.Appended{}, err
	}
	return t.Wait()
}

// Submit is [DB.Append] without its wait for the disk: b is checked, linked and on its
// way, in order, and durable once [Ticket.Wait] has returned nil. Nobody may act on it
// before. So one goroutine can have many appends under way, of many traces or of one;
// the next of a trace is checked and hashed while the one before it is synced.
//
// What the caller submits after a batch that came to nothing, to the same trace, comes
// to nothing too: the commit that failed poisoned the store.
func (db *DB) Submit(ctx context.Context, lease chain.Lease, b chain.Batch) (Ticket, error) {
	if err := db.health.enter(); err != nil {
		return Ticket{}, err
	}
	defer db.health.leave()
	if err := db.health.writable(); err != nil {
		return Ticket{}, err
	}
	if err := b.Check(lease.TraceID); err != nil {
		return Ticket{}, err
	}
	if b.Also != nil {
		done, err := db.appendBoth(ctx, lease, b)
		return Ticket{answer: done}, err
	}
	if err := db.commits.enter(ctx, lease.TraceID); err != nil {
		return Ticket{}, err
	}
	t, err := db.next(ctx, lease, b)
	if t.commit == nil {
		db.commits.leave() // it comes to no commit
	}
	return t, err
}

// next checks b against the trace as its queued appends will leave it, and queues it
// behind them.
func (db *DB) next(ctx context.Context, lease chain.Lease, b chain.Batch) (Ticket, error) {
	db.commits.coming.Add(1)
	defer db.commits.coming.Add(-1)

	// The trace's lock is held until the batch has its place in the queue of commits.
	// head may be that of an append which is on its way itself: that one is in the queue
	// before this one, so nothing of this can be durable without it.
	id := lease.TraceID
	if err := db.lockQueued(ctx, id); err != nil {
		return Ticket{}, err
	}
	defer db.traces.unlock(id)
	head, under, err := db.tip(id)
	if err != nil {
		return Ticket{}, err
	}
	t, err := db.submit(ctx, head, lease, b)
	if t.commit == nil && under != nil {
		// Refused, or there already, by what is not yet durable: then that is not said
		// before it is.
		if err := db.await(under); err != nil {
			return Ticket{}, err
		}
	}
	return t, err
}

// submit checks b against head and puts it into the queue of commits. The trace's lock
// is held.
func (db *DB) submit(ctx context.Context, head fold, lease chain.Lease, b chain.Batch) (Ticket, error) {
	if done, ok := chain.Replayed(head.Trace, b); ok {
		db.stats.replayed.Add(1)
		return Ticket{answer: done}, nil
	}
	if err := db.leases.check(lease); err != nil {
		return Ticket{}, err
	}
	if err := db.expect(head, b); err != nil {
		return Ticket{}, err
	}
	step, err := db.link(head, lease, b)
	if err != nil {
		return Ticket{}, err
	}

	// A trace has at most one ledger key, that of its call, and its lock is taken
	// after the trace's: nobody waits for a trace while holding a key. Where the record
	// changes, the key's lock is held until the sync returned. Otherwise two traces with
	// one key could both read "no record" and both send.
	key, ok, err := step.ledgerKey()
	if err != nil {
		return Ticket{}, err
	}
	if !ok {
		return db.queue(step, false)
	}
	if err := db.lockKey(ctx, lease.TraceID, key); err != nil {
		return Ticket{}, err
	}
	if step.record, err = db.ledgerChange(step, key); err == nil && step.record != nil {
		return db.queue(step, true) // which gives the key back
	}
	// Refused, or never sent: the record stays as it is, so nobody need wait for this
	// sync. What a served call copies was durable when it was read.
	db.keys.unlock(key)
	if err != nil {
		return Ticket{}, err
	}
	return db.queue(step, false)
}

// Ticket is an append on its way to disk.
type Ticket struct {
	db     *DB
	commit *commitment // nil: there is nothing to wait for
	answer chain.Appended
}

// Wait returns what [DB.Append] would, once the append is on disk. It may be called
// again, and by anybody.
func (t Ticket) Wait() (chain.Appended, error) {
	if t.commit != nil {
		if err := t.db.await(t.commit); err != nil {
			return chain.Appended{}, err
		}
	}
	return t.answer, nil
}

// expect checks what the batch says about the trace it is for.
func (db *DB) expect(head fold, b chain.Batch) error {
	t := head.Trace
	if err := t.Expect(b.Expect); err != nil {
		return err
	}
	if head.segment != 0 {
		return tga.Errorf(tga.StateInvalidTransition, "append to a trace archived in segment %d", head.segment).In(t.ID)
	}
	if t.Head.Seq == 0 && len(b.Artifacts) > 0 {
		// What is open may still end below the mark; what is not begun needs not begin.
		return db.space.admit(t.ID)
	}
	return nil
}

// link makes the step that b is: the entries and notes that follow t, and the trace
// they lead to. Each is checked as replay will check it, and what a caller made itself
// is read back too: bytes that no reader takes would end the trace for good.
func (db *DB) link(head fold, lease chain.Lease, b chain.Batch) (*step, error) {
	now, t := db.now(), head.Trace
	s := &step{lease: lease, before: head, after: t.Successor(), committed: now, attachments: b.Attachments}
	s.entries = make([]chain.Entry, 0, len(b.Artifacts))
	s.room = rooms.Get().(*room)
	// Within a trace ts never goes back, even after a caller's own entry with a later
	// one; across traces it does not because now does not.
	ts := now
	if n := len(t.Entries); n > 0 {
		ts = max(ts, t.Entries[n-1].TS)
	}
	for _, a := range b.Artifacts {
		s.entries = append(s.entries, chain.Entry{Artifact: a.Artifact, Documents: a.Documents, Committed: now, Epoch: lease.Epoch})
		e := &s.entries[len(s.entries)-1]
		if a.Entry == nil {
			e.Preimage = s.room.of(len(s.entries) - 1)
			if err := s.after.Extend(e, ts); err != nil {
				return nil, err
			}
			s.newestTS = max(s.newestTS, e.TS)
			continue
		}
		e.LogEntry = *a.Entry
		if err := s.after.ApplyGiven(e, now); err != nil {
			return nil, err
		}
		s.newestTS = max(s.newestTS, e.TS)
	}
	for _, n := range b.Notes {
		note, err := s.after.AppendNote(n, ts)
		if err != nil {
			return nil, err
		}
		s.notes = append(s.notes, note)
		s.newestTS = max(s.newestTS, note.TS)
	}
	return s, nil
}
