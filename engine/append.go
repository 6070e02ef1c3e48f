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
	t, err := db.admit(ctx, ps)
	if t.commit == nil {
		db.commits.leave() // it comes to no commit
	}
	return t, err
}

// part is what an append does to one trace. There is a second one where the batch has notes
// for another trace ([chain.Batch.Also]); both commit, or neither.
type part struct {
	lease chain.Lease
	batch chain.Batch
	head  fold        // the trace as its queued appends will leave it
	under *commitment // that of the newest of these, nil where all is durable
}

type parts []part

// admit checks the parts against their traces as the queued appends will leave these, and
// queues them behind those.
func (db *DB) admit(ctx context.Context, ps parts) (Ticket, error) {
	db.commits.coming.Add(1)
	defer db.commits.coming.Add(-1)

	// The traces' locks are held until the append has its place in the queue of commits.
	// A head may be that of an append which is on its way itself: that one is in the queue
	// before this one, so nothing of this can be durable without it.
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
	if ok { // a second part is there with the first
		db.stats.replayed.Add(1)
		t.answer = done
	} else {
		t, err = db.follow(ctx, ps)
	}
	if t.commit == nil {
		// Refused, or there already, by what may not be durable yet: then nothing is said
		// before it is.
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

// follow makes the step of each part that follows its head, as if it were alone.
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

// claim has each step change its ledger record, and queues them.
//
// A trace has at most one ledger key, that of its call, and keys are locked after traces:
// nobody waits for a trace while holding a key. Where a record changes, its key's lock is
// held until the sync returned. Otherwise two traces with one key could both read "no
// record" and both send.
func (db *DB) claim(ctx context.Context, ss steps) (Ticket, error) {
	if err := ss.lockKeys(ctx, db.records); err != nil {
		return Ticket{}, err
	}
	for _, s := range ss {
		if !s.keyed {
			continue
		}
		var err error
		if s.record, err = db.records.change(s); err != nil {
			ss.unlockKeys(db.records)
			return Ticket{}, err
		}
	}
	// Where nothing changes, the record stays as it is, so nobody need wait for this sync.
	// What a served call copies was durable when it was read.
	for _, s := range ss {
		if s.keyed && s.record == nil {
			db.records.unlock(s.hash)
			s.keyed = false
		}
	}
	return db.queue(ss)
}

// Ticket is an append on its way to disk.
type Ticket struct {
	commits *committer
	commit  *commitment // nil: there is nothing to wait for
	answer  chain.Appended
}

// Wait returns what [DB.Append] would, once the append is on disk. It may be called
// again, and by anybody.
func (t Ticket) Wait() (chain.Appended, error) {
	if t.commit != nil {
		if err := t.commits.await(t.commit); err != nil {
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
	// Within a trace ts never goes back, even after a caller's own entry with a later
	// one; across traces it does not because now does not.
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
