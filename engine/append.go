package engine

import (
	"context"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Append checks b, links it to the trace of the lease, commits it, and returns once it is
// on disk: the artifacts, their entries, the notes, the ledger record, the open index,
// the position in the global order and the attachments, all or none.
//
// ctx bounds the wait for the trace and for the ledger key; once the commit has begun, ctx
// has no effect. An error means that nothing was written, except STORE_UNAVAILABLE from a
// failed commit: then the store is poisoned, and whether b is on disk is unknown until the
// next Open.
//
// The checks are made in this order (docs/SEMANTICS.md), and the first that fails
// names the code:
//
//	Submit  store      open, not poisoned, not frozen           STORE_UNAVAILABLE
//	        batch      not empty, not too large                 VALIDATION_ERROR, LIMIT_EXCEEDED
//	admit   replay     the log has it already                   nil, Replayed
//	follow  lease      granted, and still the trace's newest    STATE_LOCK_ACQUIRE_FAILED, STATE_CONCURRENT_EXECUTION
//	        head       as the caller expects it                 STATE_SEQUENCE_GAP, STATE_CHECKSUM_MISMATCH
//	link    each entry number, digests, machine, ids, links     see [chain.Trace.Apply]
//	        each note  chain, body                              see [chain.Trace.ApplyNote]
//	claim   ledger     the rule of the key                      see [records.change]
//
// Each of these functions calls the next. The last, claim, calls queue, which encodes the
// append and hands it to the committer; that makes it durable (committer.go).
func (db *DB) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	t, err := db.Submit(ctx, lease, b)
	if err != nil {
		return chain.Appended{}, err
	}
	return t.Wait()
}

// Submit is [DB.Append] without the wait for the disk. It checks b, links it and queues it
// in order; b is durable once [Ticket.Wait] has returned nil, and nobody may act on it
// earlier. So one goroutine can have many appends under way, to many traces or to one: the
// next append to a trace is checked and hashed while the one before it is synced.
//
// If the commit of a batch fails, every later batch of the same trace fails too, because the
// failed commit poisons the store.
func (db *DB) Submit(ctx context.Context, lease chain.Lease, b chain.Batch) (Ticket, error) {
	if err := db.health.enter(); err != nil {
		return Ticket{}, err
	}
	defer db.health.leave()
	if err := db.writable(); err != nil {
		return Ticket{}, err
	}
	if err := b.Check(lease.TraceID); err != nil {
		return Ticket{}, err
	}
	few := [2]part{{lease: lease, batch: b}}
	ps := parts(few[:1])
	if b.Also != nil {
		second := b.Also.Lease
		if second.TraceID == lease.TraceID || len(b.Also.Notes) == 0 {
			return Ticket{}, tga.Errorf(tga.ValidationError, "append to trace %s and also to %s with %d notes", lease.TraceID, second.TraceID, len(b.Also.Notes)).In(lease.TraceID)
		}
		few[1] = part{lease: second, batch: chain.Batch{Notes: b.Also.Notes}}
		ps = few[:]
	}
	if err := db.commits.enter(ctx, lease.TraceID); err != nil {
		return Ticket{}, err
	}
	var t Ticket
	defer func() {
		if t.commit == nil {
			db.commits.leave() // there will be no commit that gives the room back
		}
	}()
	var err error
	t, err = db.admit(ctx, ps)
	return t, err
}

// part is the part of an append that concerns one trace. If the batch also has notes for
// another trace ([chain.Batch.Also]), there is a second part; both commit, or neither.
type part struct {
	lease chain.Lease
	batch chain.Batch
	head  fold        // the trace as its queued appends will leave it
	under *commitment // the commitment of the newest queued append, nil if all are durable
}

type parts []part

// admit checks the parts against the state that the queued appends will give their traces, and
// queues the parts behind those appends.
func (db *DB) admit(ctx context.Context, ps parts) (Ticket, error) {
	db.commits.coming.Add(1)
	defer db.commits.coming.Add(-1)

	// The traces' locks are held until the append has its place in the queue of commits.
	// A head may be the head of an append that is not durable yet. That append is earlier in
	// the queue, so this append can be durable only if that one is.
	if err := ps.lock(ctx, db.traces); err != nil {
		return Ticket{}, err
	}
	defer ps.unlock(db.traces)
	for i := range ps {
		p, err := &ps[i], error(nil)
		if p.head, p.under, err = db.traces.tip(p.lease.TraceID); err != nil {
			return Ticket{}, err
		}
	}
	var t Ticket
	done, ok := chain.Replayed(ps[0].head.Trace, ps[0].batch)
	err := error(nil)
	if ok { // the second part committed together with the first
		db.stats.replayed.Add(1)
		t.answer = done
	} else {
		t, err = db.follow(ctx, ps)
	}
	if t.commit == nil {
		// The refusal, or the finding that the log has the batch already, may depend on an
		// append that is not durable yet. Wait for that append before answering.
		for i := range ps {
			if under := ps[i].under; under != nil {
				if err := db.commits.await(under); err != nil {
					return Ticket{}, err
				}
			}
		}
	}
	return t, err
}

// follow makes the step of each part, which follows the head of its trace. It handles each
// part as if it were the only one.
func (db *DB) follow(ctx context.Context, ps parts) (Ticket, error) {
	db.choosing.RLock()
	defer db.choosing.RUnlock()
	var few [2]*step
	for i := range ps {
		p := &ps[i]
		if err := db.leases.check(p.lease); err != nil {
			return Ticket{}, err
		}
		if err := db.expect(p.head, p.batch); err != nil {
			return Ticket{}, err
		}
		s, err := db.link(p.head, p.lease, p.batch)
		if err != nil {
			return Ticket{}, err
		}
		few[i] = s
	}
	return db.claim(ctx, few[:len(ps)])
}

// claim computes the ledger record that each step leaves, and queues the steps.
//
// A trace has at most one ledger key, the key of its call. Keys are locked after traces, so
// no goroutine waits for a trace while it holds a key. If a record changes, the lock of its
// key is held until the sync has returned. Otherwise two traces with one key could both read
// "no record" and both send.
func (db *DB) claim(ctx context.Context, ss steps) (Ticket, error) {
	if err := ss.lockKeys(ctx, db.records); err != nil {
		return Ticket{}, err
	}
	queued := false
	defer func() {
		if !queued { // a refusal, or a panic of the program's key ring
			ss.unlockKeys(db.records)
		}
	}()
	for _, s := range ss {
		if !s.keyed {
			continue
		}
		var err error
		if s.record, err = db.records.change(s); err != nil {
			return Ticket{}, err
		}
	}
	// If a record does not change, no other append needs to wait for this sync, and the lock
	// is given back now. A served call copies an effect that was durable when it was read.
	for _, s := range ss {
		if s.keyed && s.record == nil {
			db.records.unlock(s.hash)
			s.keyed = false
		}
	}
	t, err := db.queue(ss)
	queued = err == nil
	return t, err
}

// Ticket is an append on its way to disk.
type Ticket struct {
	commits *committer
	commit  *commitment // nil: there is nothing to wait for
	answer  chain.Appended
}

// Wait waits until the append is on disk, and returns the same as [DB.Append]. It may be called
// several times and by several goroutines.
func (t Ticket) Wait() (chain.Appended, error) {
	if t.commit != nil {
		if err := t.commits.await(t.commit); err != nil {
			return chain.Appended{}, err
		}
	}
	return t.answer, nil
}

// expect checks the state that the batch expects of its trace, and whether the trace may grow.
func (db *DB) expect(head fold, b chain.Batch) error {
	t := head.Trace
	if err := t.Expect(b.Expect); err != nil {
		return err
	}
	if head.segment != 0 {
		return tga.Errorf(tga.StateInvalidTransition, "append to a trace archived in segment %d", head.segment).In(t.ID)
	}
	if t.Head.Seq == 0 && len(b.Artifacts) > 0 {
		// Below the low-water mark of disk space open traces may still end, but no new trace
		// begins.
		return db.space.admit(t.ID)
	}
	return nil
}

// link makes the step of b: the entries and notes that follow the head, and the trace
// that they lead to. It checks each of them as replay will. It also decodes an entry that
// the caller made: an entry that no reader accepts would make the trace unreadable for good.
func (db *DB) link(head fold, lease chain.Lease, b chain.Batch) (*step, error) {
	now, t := db.times.now(), head.Trace
	key, err := db.ringed.keyFor(t, &b)
	if err != nil {
		return nil, err
	}
	s := &step{lease: lease, before: head, after: t.Successor(), committed: now}
	if key != 0 {
		s.after.Key = key
	}
	if s.attachments, err = db.beside(t.ID, key, b.Attachments); err != nil {
		return nil, err
	}
	if s.entries = s.one[:0]; len(b.Artifacts) > len(s.one) {
		s.entries = make([]chain.Entry, 0, len(b.Artifacts))
	}
	s.room = rooms.Get().(*room)
	// Within a trace ts never goes back, not even if a caller's own entry had a later ts.
	// Across traces ts never goes back because now never does.
	ts := now
	if n := len(t.Entries); n > 0 {
		ts = max(ts, t.Entries[n-1].TS)
	}
	for _, a := range b.Artifacts {
		s.entries = append(s.entries, chain.Entry{Artifact: a.Artifact, Documents: a.Documents, Committed: now, Epoch: lease.Epoch, Key: key})
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
