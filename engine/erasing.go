package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	"github.com/tgad/tgad/internal/sealrules"
	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// eraser erases traces. It holds the sealer's turn meanwhile. While it rewrites a trace, it holds
// the lock of the trace and blocks its lease.
type eraser struct {
	*traces
	index     *index
	leases    *leases
	commits   *committer
	rewriting *rewriting
	sealer    *sealer
	times     *times
	log       *wal.Log
	logger    *slog.Logger
	ringed    *ringed
	space     *space
	owned     *ownerKeys
	choosing  *sync.RWMutex // held for reading from the choice of a trace's key until the append is queued
}

// erasing is an erasure under way, stored under `m` `erasing` as JSON. It is stored before the first
// trace is changed, and removed once no file has the old bytes. An open continues an erasure that
// it finds.
type erasing struct {
	Traces  []tga.ID      `json:"traces"`
	Streams []tga.ID      `json:"streams,omitempty"`
	States  []erasedState `json:"states,omitempty"`
	Emptied []tga.ID      `json:"emptied,omitempty"` // erased streams whose bytes the log may still have
	Beside  bool          `json:"beside,omitempty"`  // states were erased: the log may have values of theirs that no row names
	Keys    []chain.KeyID `json:"keys"`              // to be destroyed
	Who     string        `json:"who"`
	Reason  string        `json:"reason"`
}

// empty reports whether nothing in the store is to be erased; there may be keys to destroy.
func (m *erasing) empty() bool {
	return len(m.Traces) == 0 && len(m.Streams) == 0 && len(m.States) == 0 && len(m.Emptied) == 0
}

// put adds the erasure to the operations of w.
func (m *erasing) put(w *writer) error {
	value, err := json.Marshal(m)
	if err != nil {
		return tga.Errorf(tga.GenericStateError, "erase: %w", err)
	}
	w.body(keyspace.AppendMeta(nil, metaErasing), value)
	return nil
}

const (
	metaErasing = "erasing"
	metaBarrier = "barrier" // never set; its deletion serves as an empty record
)

func compareIDs(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) }

// remember stores durably what is to be erased. With fresh the record begins a segment of the log,
// so that each earlier segment can be rewritten.
func (a *eraser) remember(m erasing, fresh bool) error {
	w := a.commits.newWriter()
	w.fail(m.put(w))
	return a.commits.applyIn(w, fresh)
}

// forget durably removes the erasure under way.
func (a *eraser) forget() error {
	w := a.commits.newWriter()
	w.delete(keyspace.AppendMeta(nil, metaErasing))
	return a.commits.apply(w)
}

// also adds the unfinished part of an earlier erasure.
func (m *erasing) also(left *erasing) {
	m.Traces = each(append(m.Traces, left.Traces...))
	m.Streams = each(append(m.Streams, left.Streams...))
	m.Emptied = each(append(m.Emptied, left.Emptied...))
	m.States, m.Beside = append(left.States, m.States...), m.Beside || left.Beside
	m.Keys = append(m.Keys, left.Keys...)
}

// resume has files wiped before they are removed, if an erasure was begun: the clean-up of an open may remove one that
// has an erased body.
func (a *eraser) resume() {
	if begun, err := a.index.row(keyspace.AppendMeta(nil, metaErasing)); err != nil || begun != nil {
		a.wipe()
	}
}

// wipe has files wiped before they are removed. A file that should be gone already, and cannot be removed, does not
// stop that: [eraser.clean] meets it again, and returns the error.
func (a *eraser) wipe() {
	if err := a.log.Wipe(true); err != nil {
		a.logger.Warn("an old file of the log cannot be removed", "error", err)
	}
}

// finish continues an erasure that was begun, if there is one. With an error it returns the part that
// is still to be done.
func (a *eraser) finish(ctx context.Context) (m erasing, err error) {
	if has, err := a.index.metaJSON(metaErasing, &m); err != nil || !has {
		return m, err
	}
	if err := a.ringed.missing(); err != nil {
		return m, err
	}
	if err := a.room(&m); err != nil {
		return m, tga.Errorf(tga.StoreUnavailable, "an erasure of %d traces that was begun is not finished: %w", len(m.Traces), err)
	}
	if err := a.carryOut(ctx, &m); err != nil {
		return m, err
	}
	return erasing{}, nil
}

// room returns STORE_UNAVAILABLE if the disk may lack the space that an erasure needs before it frees
// any: one new segment of the log, and one rewritten segment. A log that cannot begin a segment takes no
// more records, and then no open could finish the erasure.
func (a *eraser) room(m *erasing) error {
	if m.empty() {
		return nil
	}
	most := int64(0)
	for _, seg := range a.log.Full() {
		most = max(most, seg.Records)
	}
	return a.rewriting.roomToRewrite(a.space.nextSegment(a.log) + most)
}

// carryOut does the erasure that was stored. Each step may have been done before, in whole or in part.
//
// From its beginning until the log is clean, files are wiped before they are removed. Also the rewriter and an archiving
// remove files, and any of these may have a body that was just erased.
func (a *eraser) carryOut(ctx context.Context, m *erasing) error {
	if !m.empty() {
		a.wipe()
	}
	if err := a.entries(ctx, m); err != nil {
		return err
	}
	if err := a.streams(ctx, m); err != nil {
		return err
	}
	if err := a.states(ctx, m); err != nil {
		return err
	}
	// Destroy the keys only now: a reader finds each trace whole, or erased with the note that says why.
	for _, key := range m.Keys {
		if a.ringed.ring == nil {
			return tga.Errorf(tga.StoreUnavailable, "erase: key %d cannot be destroyed without its ring", key)
		}
		if err := a.ringed.ring.Destroy(key); err != nil {
			return err
		}
	}
	if !m.empty() {
		if err := a.clean(ctx, m); err != nil {
			return err
		}
	}
	if err := a.forget(); err != nil {
		return err
	}
	if !m.empty() {
		a.logger.Info("traces were erased", "traces", len(m.Traces), "streams", len(m.Emptied), "keys", len(m.Keys), "by", m.Who, "reason", m.Reason)
	}
	return nil
}

// eraseAtOnce is how many traces of the store itself, or streams, are erased at once at most.
const eraseAtOnce = 64

// entries erases the traces themselves. If some lie in an archive segment, the record that erases them also
// replaces the segment by one without them.
func (a *eraser) entries(ctx context.Context, m *erasing) error {
	archived := map[uint64][]tga.ID{}
	var rest []tga.ID
	for _, id := range m.Traces {
		n, err := a.archivedIn(id)
		if err != nil {
			return err
		}
		if n == 0 {
			rest = append(rest, id)
			continue
		}
		archived[n] = append(archived[n], id)
	}
	for part := range slices.Chunk(rest, eraseAtOnce) {
		if err := a.together(ctx, m, part, 0); err != nil {
			return err
		}
	}
	for n, ids := range archived {
		if err := a.together(ctx, m, ids, n); err != nil {
			return err
		}
	}
	return nil
}

// together erases traces. If archived is not 0, the traces lie in that archive segment, and afterwards
// they lie in the store itself.
func (a *eraser) together(ctx context.Context, m *erasing, ids []tga.ID, archived uint64) error {
	slices.SortFunc(ids, compareIDs) // traces are locked in the order of their ids
	if err := a.alone(ctx, ids); err != nil {
		return err
	}
	defer func(ids []tga.ID) {
		for _, id := range ids {
			a.leases.queue.unlock(id)
		}
	}(ids)
	for len(ids) > 0 {
		n, err := a.some(ctx, m, ids, archived)
		if err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// some erases the first n of ids, as many as fit, in one record.
func (a *eraser) some(ctx context.Context, m *erasing, ids []tga.ID, archived uint64) (n int, err error) {
	var ss steps
	w := a.commits.newWriter()
	for ; n < len(ids) && w.ops.Len() < removeBytes; n++ {
		id := ids[n]
		if err := a.lock(ctx, id); err != nil {
			w.fail(err)
			break
		}
		defer a.unlock(id)
		s, err := a.trace(w, m, id, archived != 0)
		if err != nil {
			w.fail(err)
			break
		}
		if s != nil {
			ss = append(ss, s)
		}
	}
	if archived != 0 && w.err == nil {
		w.fail(a.without(w, archived, ids[:n]))
	}
	if len(ss) == 0 && w.err == nil {
		return n, w.drop()
	}
	c := new(commitment)
	if err := w.end(c); err != nil {
		return n, err
	}
	c.steps = ss
	for _, s := range ss {
		s.commit = c
		a.tails.put(s)
	}
	a.commits.add(c)
	err = a.commits.await(c)
	a.index.archive.clear()
	return n, err
}

// alone takes the queue locks of the leases of traces, all or none. It never waits for one lock
// while it holds another, because the holder of the first may want the second.
func (a *eraser) alone(ctx context.Context, ids []tga.ID) error {
	for {
		taken := 0
		for taken < len(ids) && a.leases.queue.try(ids[taken]) {
			taken++
		}
		if taken == len(ids) {
			return nil
		}
		for _, id := range ids[:taken] {
			a.leases.queue.unlock(id)
		}
		id := ids[taken]
		if err := a.leases.queue.lock(ctx, a.health.stopped(), id); err != nil {
			return a.health.waitFailed("erase trace "+id.String()+": another process or call holds its lease", id, err)
		}
		a.leases.queue.unlock(id)
	}
}

// trace writes what remains of a trace: its entries without artifacts and documents, and a note
// about the erasure. It returns nil if the trace is erased already. The trace's lock is held.
func (a *eraser) trace(w *writer, m *erasing, id tga.ID, archived bool) (*step, error) {
	// Read without keys: the erased contents are not needed, and a key may be destroyed already.
	r := a.index.reading
	r.keys, r.archive = chain.NoKeys{}, newArchive(chain.NoKeys{})
	rows, err := r.rows(id)
	if err != nil {
		return nil, recoveryFailed(id, err)
	}
	t, err := rows.decode()
	if err != nil {
		return nil, recoveryFailed(id, err)
	}
	if rows.archived == nil && gone(t) {
		return nil, nil
	}
	e := segment.Trace{ID: id, Notes: t.Notes, Entries: sealrules.Bare(t.Entries)}
	after, err := e.Replay()
	if err != nil {
		return nil, recoveryFailed(id, err)
	}
	s := &step{lease: chain.Lease{TraceID: id, Epoch: a.leases.newest()}, before: fold{Trace: after}, after: after.Successor(), committed: a.times.now()}
	text, err := sealrules.ErasedNote(m.Who, m.Reason, len(e.Entries))
	if err != nil {
		return nil, err
	}
	note, err := s.after.AppendNote(text, max(s.committed, e.Entries[len(e.Entries)-1].TS))
	if err != nil {
		return nil, err
	}
	s.notes, s.newestTS = []tga.Note{note}, note.TS
	for i := range e.Entries {
		w.entry(&e.Entries[i])
	}
	if archived {
		if err := a.notes(w, e.Notes); err != nil {
			return nil, err
		}
		w.delete(keyspace.AppendTombstone(w.key[:0], id))
	}
	w.step(s)
	for _, key := range a.beside(id, e.Notes) {
		w.delete(key)
	}
	for _, bounds := range []func(tga.ID) (lower, upper []byte){keyspace.TraceChunkBounds, keyspace.CheckpointBounds} {
		lower, upper := bounds(id)
		w.fail(a.index.scanRows(lower, upper, func(key, _ []byte) error {
			w.delete(key)
			return nil
		}))
	}
	return s, w.err
}

// notes puts the notes of an archived trace beside its entries. If they are too many for one record, the first of them
// get records of their own: nobody reads them until the entries are there.
func (a *eraser) notes(w *writer, notes []segment.Note) error {
	const each = 1 << 10 // bytes of a note, roughly, without its body
	put := func(w *writer, notes []segment.Note) {
		for i := range notes {
			n := &notes[i]
			w.note(&n.Note, n.Committed, n.Epoch)
		}
	}
	from, size := 0, 0
	for i := range notes {
		if size += each + len(notes[i].Body); size < removeBytes {
			continue
		}
		ahead := a.commits.newWriter()
		put(ahead, notes[from:i])
		if err := a.commits.apply(ahead); err != nil {
			return err
		}
		from, size = i, each+len(notes[i].Body)
	}
	put(w, notes[from:])
	return w.err
}

// beside returns the keys of the values beside a trace that must be erased with it: its questions
// to people, and the evidence that its notes name.
func (a *eraser) beside(id tga.ID, notes []segment.Note) (keys [][]byte) {
	all := make([]tga.Note, len(notes))
	for i := range notes {
		all[i] = notes[i].Note
	}
	for _, x := range sealrules.Beside(id, all) {
		keys = append(keys, append([]byte{byte(x.Kind)}, x.Key...))
	}
	return keys
}
