package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Erasure says what to erase: everything that it names, or every trace of a subject.
type Erasure = chain.Erasure

// AgentState names the state on which a session of an agent works; without a session, the state that
// the agent keeps across its sessions.
type AgentState = chain.AgentState

// Erased says what [DB.Erase] did.
type Erased = chain.Erased

// MaxErasedTraces is the largest number of traces that one erasure names.
const MaxErasedTraces = chain.MaxErased

// Erase destroys the artifacts and documents of finished traces, and the evidence that their notes
// name. The proof of a trace stays: its entries, notes and leaves with all digests, so the chain,
// the tree and bundles verify as before. A note of the kind `erased` says who asked for the
// erasure, when, and why.
//
// Erase first stores durably what is to be erased; from then on a crash only delays the erasure to
// the next open. Then it replaces the frames, and destroys the data keys, which also erases the
// values in every copy of the store. Last it rewrites the files on this disk that still have the
// old bytes, and wipes the old files.
//
// STATE_INVALID_TRANSITION: a trace has not ended, or a timer of it is still set.
// STATE_LOCK_ACQUIRE_FAILED: somebody holds the lease of a trace. In both cases nothing is erased,
// unless Leave says to leave such a trace out. NOT_FOUND: a trace has no entry; nothing is erased.
// After STORE_UNAVAILABLE the erasure may have begun: the same call, or the next open, continues it.
// After STATE_CHECKSUM_MISMATCH the erasure is complete except for bytes that a file of the log may still
// have that is damaged, or that the disk cannot read. The next erasure tries that file again.
func (db *DB) Erase(ctx context.Context, what Erasure) (done Erased, err error) {
	if err := db.health.enter(); err != nil {
		return done, err
	}
	defer db.health.leave()
	if err := db.writable(); err != nil {
		return done, err
	}
	return db.eraser.asked(ctx, what)
}

// Erasing reports whether an erasure was begun and is not finished, for example because the key ring is not available
// or the disk has no room.
func (db *DB) Erasing() (bool, error) {
	if err := db.health.enter(); err != nil {
		return false, err
	}
	defer db.health.leave()
	value, err := db.index.meta(metaErasing)
	return value != nil, err
}

// FinishErasure continues an erasure that was begun and is not finished. If there is none, it does nothing. Its errors
// are those of [DB.Erase].
func (db *DB) FinishErasure(ctx context.Context) error {
	if err := db.health.enter(); err != nil {
		return err
	}
	defer db.health.leave()
	if err := db.writable(); err != nil {
		return err
	}
	select {
	case db.sealer.turn <- struct{}{}:
		defer func() { <-db.sealer.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := db.eraser.finish(ctx)
	return err
}

// asked checks what is to be erased, and erases it.
func (a *eraser) asked(ctx context.Context, what Erasure) (Erased, error) {
	if err := what.Check(); err != nil {
		return Erased{}, err
	}
	return a.erase(ctx, what)
}

// erase is [DB.Erase] of a writable store. It excludes other erasures and archiving, because both
// replace the rows and files from which a trace is read.
func (a *eraser) erase(ctx context.Context, what Erasure) (done Erased, err error) {
	select {
	case a.sealer.turn <- struct{}{}:
		defer func() { <-a.sealer.turn }()
	case <-ctx.Done():
		return done, ctx.Err()
	}
	left, stands := a.finish(ctx) // finish an earlier erasure first
	if stands != nil && !errors.Is(stands, errStands) {
		return done, stands
	}
	m, done, err := a.plan(ctx, what)
	if err != nil {
		return done, err
	}
	if m.empty() && len(m.Keys) == 0 {
		return done, stands
	}
	m.also(&left)
	if err := a.room(&m); err != nil {
		return Erased{}, tga.Errorf(tga.StoreUnavailable, "nothing was erased: %w", err)
	}
	if err := a.remember(m, false); err != nil {
		return done, err
	}
	return done, a.carryOut(ctx, &m)
}

// plan finds what is to be erased, and whether that can be erased now.
func (a *eraser) plan(ctx context.Context, what Erasure) (m erasing, done Erased, err error) {
	m = erasing{Who: what.Who, Reason: what.Reason}
	timed, err := a.index.timed()
	if err != nil {
		return m, done, err
	}
	archives := map[uint64]error{}
	take := func(id tga.ID, t *segment.Trace) error {
		if err := a.erasable(id, t, timed); err != nil {
			if what.Leave {
				return nil
			}
			return err
		}
		if gone(t) {
			done.Already++
			return nil
		}
		if len(m.Traces) == MaxErasedTraces || len(m.Keys) >= MaxErasedTraces {
			return tga.Errorf(tga.LimitExceeded, "erase: over %d traces or keys at once", MaxErasedTraces)
		}
		err := a.besideOthers(id, archives)
		if err != nil && what.Leave {
			done.Leave(id, err)
			return nil
		}
		var keys []chain.KeyID
		if err == nil {
			keys, err = a.keysOf(t)
		}
		if err == nil {
			err = a.add(keys, &m, &done)
		}
		if err != nil {
			return a.leave(ctx, &what, id, err, &done)
		}
		done.Traces++
		m.Traces = append(m.Traces, id)
		return nil
	}
	if what.Subject != "" {
		err := a.planSubject(ctx, what, &m, &done, take)
		return m, done, err
	}
	for _, id := range each(what.Traces) {
		t, err := a.look(ctx, id)
		if err != nil {
			return m, done, err
		}
		if err := take(id, t); err != nil {
			return m, done, err
		}
	}
	if err := a.planStreams(&what, &m, &done); err != nil {
		return m, done, err
	}
	if err := a.planStates(&what, &m, &done); err != nil {
		return m, done, err
	}
	done.Keys = len(m.Keys)
	return m, done, nil
}

// each returns ids in order, each once.
func each(ids []tga.ID) []tga.ID {
	return slices.Compact(slices.SortedFunc(slices.Values(ids), compareIDs))
}

// planSubject is plan for the traces of a subject. Once the subject's keys are retired, no new
// trace gets one of them. Once the barrier is durable, so is every earlier append. So planSubject
// finds every trace that has such a key. A request that was appended without a key is found by its
// content. A trace that cannot be read is left out and reported.
func (a *eraser) planSubject(ctx context.Context, what Erasure, m *erasing, done *Erased, take func(tga.ID, *segment.Trace) error) error {
	if what.Namespace == "" {
		what.Namespace = tga.DefaultNamespace
	}
	if a.ringed.ring != nil {
		a.choosing.Lock()
		keys, err := a.ringed.ring.Retire(what.Namespace, what.Subject)
		a.choosing.Unlock()
		if err != nil {
			return err
		}
		m.Keys = keys
	}
	own, pending := map[chain.KeyID]bool{}, false
	for _, k := range m.Keys {
		own[k] = true
	}
	if err := a.commits.barrier(); err != nil {
		return err
	}
	err := a.eachTrace(ctx, func(id tga.ID) error {
		t, err := a.look(ctx, id)
		if err != nil {
			open, oerr := a.index.get(keyspace.AppendOpen(nil, id))
			pending = pending || open != nil || oerr != nil
			return a.leave(ctx, &what, id, err, done)
		}
		if !sealrules.IsOf(t.Entries, own, what.Namespace, what.Subject) {
			return nil
		}
		left := done.Left
		err = take(id, t)
		pending = pending || done.Left > left
		return err
	})
	if pending && len(own) > 0 {
		// An unreadable trace that is open may be the subject's, and it needs its key once the store is
		// repaired. Also, a trace of the subject was left out because a value beside it has a key that is
		// not available; only that key shows whose the value is. So the subject's keys are not destroyed.
		m.Keys = m.Keys[len(own):]
	} else {
		done.Shared = 0 // the subject's keys are destroyed, with all its traces
	}
	done.Keys = len(m.Keys)
	return err
}

// eachTrace calls f with the id of every trace, in order.
func (a *eraser) eachTrace(ctx context.Context, f func(tga.ID) error) error {
	for _, kind := range []keyspace.Kind{keyspace.Entry, keyspace.Tombstone} {
		next, _ := keyspace.Bounds(kind)
		for next != nil {
			ids, rest, err := a.index.traceIDs(kind, next, sealTraces)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := f(id); err != nil {
					return err
				}
			}
			next = rest
		}
	}
	return nil
}

// look reads a trace.
func (a *eraser) look(ctx context.Context, id tga.ID) (*segment.Trace, error) {
	if err := a.traces.lock(ctx, id); err != nil {
		return nil, err
	}
	defer a.traces.unlock(id)
	rows, err := a.index.rows(id)
	if err != nil {
		return nil, recoveryFailed(id, err)
	}
	t, err := rows.decode()
	if err != nil {
		return nil, recoveryFailed(id, err)
	}
	if len(t.Entries) == 0 {
		return nil, tga.Errorf(tga.NotFound, "trace %s has no entry", id).In(id)
	}
	return t, nil
}

// archivedIn returns the archive segment in which a trace lies, 0 if its entries lie in the store itself.
func (a *eraser) archivedIn(id tga.ID) (n uint64, err error) {
	stone, err := a.index.get(keyspace.AppendTombstone(nil, id))
	if err != nil || stone == nil {
		return 0, err
	}
	own, err := a.index.row(keyspace.AppendEntry(nil, id, 1))
	if err != nil || own != nil {
		return 0, err
	}
	t, err := decodeTombstone(stone)
	return t.Segment, err
}

// besideOthers refuses an archived trace if another trace of its archive segment cannot be read. The segment could not be
// written again without the trace, so the erasure would never end, and no other one could begin. It keeps what it finds in
// archives.
func (a *eraser) besideOthers(id tga.ID, archives map[uint64]error) error {
	n, err := a.archivedIn(id)
	if err != nil || n == 0 {
		return err
	}
	err, looked := archives[n]
	if !looked {
		err = a.index.inSegment(n, func(r *segment.Reader) error {
			for _, err := range r.Traces() {
				if err != nil {
					return err
				}
			}
			return nil
		})
		archives[n] = err
	}
	if err != nil {
		return tga.Errorf(tga.CodeOf(err), "erase trace %s: archive segment %d cannot be written again without it: %w", id, n, err).In(id)
	}
	return nil
}

// erasable refuses a trace that has not ended, has a timer, or is leased.
func (a *eraser) erasable(id tga.ID, t *segment.Trace, timed map[tga.ID]bool) error {
	return sealrules.Erasable(id, t.Entries[len(t.Entries)-1].To, timed[id], a.leases.holds(id))
}

// gone reports whether a trace has nothing left to erase.
func gone(t *segment.Trace) bool { return sealrules.Gone(t.Entries) }

// keysOf returns the keys of a trace, and of the values beside it; 0 stands for a value without a key.
func (a *eraser) keysOf(t *segment.Trace) (keys []chain.KeyID, err error) {
	for i := range t.Entries {
		keys = append(keys, t.Entries[i].Key)
	}
	for _, at := range a.beside(t.ID, t.Notes) {
		stored, err := a.index.get(at)
		switch {
		case tga.CodeOf(err) == tga.StateChecksumMismatch: // a damaged value is erased too
			keys = append(keys, 0)
		case err != nil:
			return nil, err
		case stored != nil:
			keys = append(keys, sealrules.KeyOf(stored))
		}
	}
	return keys, nil
}

// add adds the keys of a trace or a stream that no other trace or stream has. On an error it adds
// nothing.
func (a *eraser) add(keys []chain.KeyID, m *erasing, done *Erased) error {
	return sealrules.Own(a.ringed.ring, keys, &m.Keys, done)
}

// leave leaves a trace that cannot be read out of the erasure of a subject. It returns err, which
// refuses the whole erasure, if the trace was named explicitly or if err concerns more than the trace.
func (a *eraser) leave(ctx context.Context, what *Erasure, id tga.ID, err error, done *Erased) error {
	if what.Subject == "" || ctx.Err() != nil || a.health.sick() != nil {
		return err
	}
	done.Leave(id, err)
	return nil
}
