package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Codes that the functions of the database return (migrations/002_functions.sql).
const (
	sqlDone           = "00000"
	sqlLeaseLost      = "TG101"
	sqlSessionLate    = "TG102"
	sqlLedger         = "TG103"
	sqlHead           = "TG104"
	sqlHeld           = "TG105"
	sqlNotDurable     = "TG106"
	sqlElsewhere      = "TG107"
	sqlNotOfStore     = "TG108"
	sqlOtherPlacement = "TG109"
)

// Append checks b, links it to the trace of the lease, commits it, and returns once it is as
// durable as the database makes a commit. ctx bounds the time before the commit.
//
// The checks and their order are those of engine.DB.Append. They are made on the rows that this
// process has cached, and the database compares these with the stored rows. So an append takes one
// round trip if no other process has changed the trace or the key. Before a refusal the rows are
// read again.
//
// An error means that nothing was written, except a STORE_UNAVAILABLE that says that the outcome is
// unknown: then no server answered within [Options.Patience]. Such an append may still reach the
// log, unless its lease is overtaken first.
func (s *Store) Append(ctx context.Context, lease chain.Lease, b chain.Batch) (chain.Appended, error) {
	if err := s.health.enterToWrite(); err != nil {
		return chain.Appended{}, err
	}
	defer s.health.leave()
	if err := b.Check(lease.TraceID); err != nil {
		return chain.Appended{}, err
	}
	ps := parts{{lease: lease, batch: b}}
	if also := b.Also; also != nil {
		if also.Lease.TraceID == lease.TraceID || len(also.Notes) == 0 {
			return chain.Appended{}, tga.Errorf(tga.ValidationError, "append to trace %s and also to %s with %d notes", lease.TraceID, also.Lease.TraceID, len(also.Notes)).In(lease.TraceID)
		}
		ps = append(ps, &part{lease: also.Lease, batch: chain.Batch{Notes: also.Notes}})
	}
	ids := ps.ids()
	for i, id := range ids {
		if err := s.traces.enter(ctx, s.health.stop, id); err != nil {
			for _, entered := range ids[:i] {
				s.traces.leave(entered)
			}
			return chain.Appended{}, waitFailed("wait for trace "+id.String(), id, err)
		}
	}
	defer func() {
		for _, id := range ids {
			s.traces.leave(id)
		}
	}()
	return s.appendChecked(ctx, ps)
}

// mostTries is how often an append is tried because other processes changed its rows.
const mostTries = 200

// appendChecked makes the checks and commits. It repeats this until the commit finds the rows that
// were checked. The caller has entered the gates of the traces.
func (s *Store) appendChecked(ctx context.Context, ps parts) (chain.Appended, error) {
	var why string
	for try, fresh := 0, false; try < mostTries; try++ {
		if err := ctx.Err(); err != nil {
			return chain.Appended{}, waitFailed("append", ps[0].lease.TraceID, err)
		}
		done, err := s.plan(ctx, ps, fresh)
		switch {
		case done != nil:
			return *done, nil
		case errors.Is(err, chain.ErrKeyDestroyed) && try < keyTries: // by another process, after this one cached the key
			s.ringed.keysChanged(ps)
			fresh = true
			continue
		case err != nil && fresh:
			return chain.Appended{}, err
		case err != nil:
			fresh = true
			continue
		}
		if why, err = s.commits.commit(&job{parts: ps}); errors.Is(err, chain.ErrKeyDestroyed) && try < keyTries {
			why = sqlKeyRetired
		} else if err != nil {
			return chain.Appended{}, err
		}
		switch why {
		case sqlDone:
			s.publish(ps)
			return ps[0].appended(), nil
		case sqlNotDurable:
			return chain.Appended{}, unfit("its settings have changed: a commit would not be as durable as it must be")
		case sqlNotOfStore:
			return chain.Appended{}, notOfStore(ps[0].after.Namespace, s.o.Shard)
		case sqlKeyRetired:
			s.ringed.keysChanged(ps)
		case sqlSessionLate:
			if err := s.renew(ctx); err != nil {
				return chain.Appended{}, err
			}
		}
		fresh = true
		if try > 2 { // other processes change the same rows
			pause := time.NewTimer(time.Duration(try) * time.Millisecond)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
	}
	return chain.Appended{}, tga.Errorf(tga.StoreUnavailable, "append: gave up after %d conflicts with other processes, last code %s", mostTries, why).In(ps[0].lease.TraceID)
}

// part is the part of an append that concerns one trace. If the batch also has notes for another
// trace, there is a second part; both commit, or neither.
type part struct {
	lease chain.Lease
	batch chain.Batch

	// The state from which it was planned, and the state to which it leads.
	session   int64
	before    view
	after     *chain.Trace
	entries   []chain.Entry
	notes     []tga.Note
	committed tga.Millis
	newest    tga.Millis
	touches   bool     // the part touches the ledger record of its key
	hash      [32]byte // of the ledger key

	chosen      chain.KeyID        // data key of a new trace; it stays the same over tries
	under       []int64            // data keys that seal something new; none of them may be retired
	attachments []chain.Attachment // with their values as they are stored
	stored      []byte             // the ledger record before, nil if there is none
	record      []byte             // the ledger record after, nil if it does not change
}

type parts []*part

// ids returns the ids of the traces in the order in which every append locks them.
func (ps parts) ids() []tga.ID {
	ids := make([]tga.ID, len(ps))
	for i, p := range ps {
		ids[i] = p.lease.TraceID
	}
	slices.SortFunc(ids, func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

func (p *part) appended() chain.Appended {
	done := chain.Appended{Head: p.after.Head, Notes: p.notes, Trace: p.after}
	for i := range p.entries {
		done.Entries = append(done.Entries, p.entries[i].LogEntry)
	}
	return done
}

// plan makes every check, on cached rows, or on rows that it reads now if fresh is set. done is not
// nil if the log has the batch already.
func (s *Store) plan(ctx context.Context, ps parts, fresh bool) (done *chain.Appended, err error) {
	stands := make([]standing, len(ps))
	for i, p := range ps {
		if stands[i], err = s.know(ctx, p.lease.TraceID, fresh); err != nil {
			return nil, err
		}
	}
	if done, ok := chain.Replayed(stands[0].trace, ps[0].batch); ok {
		s.counts.replayed.Add(1)
		return &done, nil
	}
	for i, p := range ps {
		if err := s.mayAppend(p, &stands[i], fresh); err != nil {
			return nil, err
		}
		if err := stands[i].trace.Expect(p.batch.Expect); err != nil {
			return nil, err
		}
		p.before = stands[i].view
		if err := s.link(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := s.claim(ctx, ps, fresh); err != nil {
		return nil, err
	}
	for _, a := range ps[0].batch.Attachments { // as in engine, after all that the log and the ledger refuse
		if _, err := keyspace.AppendAttachment(nil, keyspace.Kind(a.Kind), a.Key); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// know returns the cached trace, or reads it if it is not cached or if fresh is set.
func (s *Store) know(ctx context.Context, id tga.ID, fresh bool) (standing, error) {
	if v, ok := s.views.get(id); ok && !fresh {
		return standing{view: v}, nil
	}
	return s.stand(ctx, id, false)
}

// mayAppend checks the lease of a part against the leases of this process, and, if fresh is set,
// against the head that was read now. Its errors distinguish a lease that was overtaken from a
// lease that was never granted. A lease may have been granted to a session that has ended since; the
// present one has another number.
func (s *Store) mayAppend(p *part, st *standing, fresh bool) error {
	h, ok := s.leases.of(p.lease)
	if ok && h.session == s.session.number() && (!fresh || st.epoch == p.lease.Epoch && st.session == h.session) {
		p.session = h.session
		return nil
	}
	if ok {
		s.leases.end(p.lease) // another process has overtaken it, or ended its session
	}
	id, epoch := p.lease.TraceID, p.lease.Epoch
	if uint32(epoch) == 0 || epoch > st.epoch && epoch > s.session.newest() {
		return tga.Errorf(tga.StateLockAcquireFailed, "append to trace %s: no lease with epoch %#x was granted", id, uint64(epoch)).In(id)
	}
	return tga.Errorf(tga.StateConcurrentExecution, "append to trace %s under epoch %#x: current is %#x", id, uint64(epoch), uint64(st.epoch)).In(id)
}

// link makes the entries and notes that follow the head of the trace. It checks each of them as
// replay will.
func (s *Store) link(ctx context.Context, p *part) error {
	now, t := s.times.now(), p.before.trace
	p.after, p.entries, p.notes, p.committed, p.newest, p.under = t.Clone(), nil, nil, now, 0, nil
	key, err := s.ringed.keyFor(ctx, p)
	if err != nil {
		return err
	}
	if key != 0 {
		p.after.Key = key
	}
	if p.attachments, err = s.ringed.beside(ctx, p, key); err != nil {
		return err
	}
	ts := now
	if n := len(t.Entries); n > 0 {
		ts = max(ts, t.Entries[n-1].TS)
	}
	for _, a := range p.batch.Artifacts {
		e := chain.Entry{Artifact: a.Artifact, Documents: a.Documents, Committed: now, Epoch: p.lease.Epoch, Key: key}
		var err error
		if a.Entry == nil {
			err = p.after.Extend(&e, ts)
		} else {
			e.LogEntry = *a.Entry
			err = p.after.ApplyGiven(&e, now)
		}
		if err != nil {
			return err
		}
		p.entries, p.newest = append(p.entries, e), max(p.newest, e.TS)
	}
	if strings.Contains(p.after.Namespace, "\x00") {
		return tga.Errorf(tga.ValidationError, "namespace %q: PostgreSQL has no text with a zero byte", p.after.Namespace).In(p.lease.TraceID)
	}
	for _, n := range p.batch.Notes {
		note, err := p.after.AppendNote(n, ts)
		if err != nil {
			return err
		}
		p.notes, p.newest = append(p.notes, note), max(p.newest, note.TS)
	}
	return nil
}

// claim computes the ledger records that the parts leave.
func (s *Store) claim(ctx context.Context, ps parts, fresh bool) error {
	for _, p := range ps {
		c := p.change(s.RequestDigest)
		var err error
		if p.touches, err = c.Touches(); err != nil {
			return err
		}
		if p.touches {
			p.hash = ledger.KeyOf(p.after.Namespace, p.after.Call).Hash()
		}
	}
	if len(ps) == 2 && ps[0].touches && ps[1].touches && ps[0].hash == ps[1].hash {
		return tga.Errorf(tga.ValidationError, "append to traces %s and %s: both have the same ledger key", ps[0].after.ID, ps[1].after.ID).In(ps[0].after.ID)
	}
	for _, p := range ps {
		p.stored, p.record = nil, nil
		if !p.touches {
			continue
		}
		if err := s.claimOne(ctx, p, fresh); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) claimOne(ctx context.Context, p *part, fresh bool) (err error) {
	known, ok := s.records.get(p.hash)
	if fresh || !ok && p.before.trace.Call != nil {
		// A new call usually has a new key, so no record is read for it. For any other call there
		// is a record.
		if known, err = s.readRecord(ctx, p.hash); err != nil {
			return err
		}
	}
	p.stored = known
	var stored *ledger.Record
	if known != nil {
		if stored, err = ledger.DecodeRecord(known); err != nil {
			return err
		}
	}
	c := p.change(s.RequestDigest)
	record, err := c.Apply(stored, func(trace tga.ID, seq uint64) (string, error) { return statusOf(ctx, s, trace, seq) })
	if err != nil || record == nil {
		return err
	}
	p.record, err = record.AppendBinary(nil)
	return err
}

// statusOf returns the outcome status of the effect in entry seq of a trace, "" if it is erased.
func statusOf(ctx context.Context, s *Store, trace tga.ID, seq uint64) (string, error) {
	st, err := s.know(ctx, trace, false)
	if err == nil && st.trace.Head.Seq < seq {
		st, err = s.know(ctx, trace, true)
	}
	switch {
	case err != nil:
		return "", err
	case st.trace.Head.Seq < seq:
		return "", recoveryFailed(trace, damaged("trace %s has no entry %d", trace, seq).In(trace))
	case st.trace.Effect == nil:
		return "", nil
	}
	return st.trace.Effect.Effect.Outcome.Status, nil
}

// change is the part as the ledger sees it.
func (p *part) change(digest func(tga.Proposal) tga.Digest) ledger.Change {
	c := ledger.Change{
		Trace: p.after.ID, State: p.after.Head.State, Epoch: uint64(p.lease.Epoch), Notes: p.notes,
		Request: p.after.Request, Call: p.after.Call, Effect: p.after.Effect, Digest: digest,
	}
	for i := range p.entries {
		e := &p.entries[i]
		c.Appends(e.Type, e.Seq, e.TS, e.Committed)
	}
	return c
}

// publish caches the state that is now durable, and wakes the calls of this process that wait for it.
func (s *Store) publish(ps parts) {
	for _, p := range ps {
		s.keepView(view{trace: p.after, version: p.before.version + 1, born: p.before.born})
		if p.touches {
			record := p.record
			if record == nil {
				record = p.stored
			}
			s.records.put(p.hash, record, nil)
		}
		s.acked.put(p.after.ID, chain.Trace{ID: p.after.ID, Head: p.after.Head, NoteHead: p.after.NoteHead}, nil)
		s.times.raise(p.newest)
		s.counts.entries.Add(uint64(len(p.entries)))
		s.counts.notes.Add(uint64(len(p.notes)))
		s.changed.notify(p.after.ID)
	}
	s.counts.appends.Add(1)
	s.order.kick()
}
