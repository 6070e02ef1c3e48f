package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Import makes a store in dir, which must not exist, from the exported traces of another store. fill
// calls add with the entries and the notes of each trace, in the order that the traces get in the new
// store. Entries, artifacts, documents and notes keep their bytes, digests and commit times; ledger
// records are computed from them. The new store has its own id and secret, and its global order is the
// order of the import.
//
// The store opens frozen until [DB.Unfreeze], like a store that was restored from a backup, and for
// the same reason: it lacks what the other store appended after the export.
//
// Each trace is checked as a replay checks it, and the whole store is checked before it gets its name.
// After an error, and when ctx ends, nothing is left under dir. VALIDATION_ERROR: dir exists already,
// or a trace came twice. STORE_UNAVAILABLE: dir cannot be made. IDEMPOTENCY_KEY_CONFLICT: two traces
// both hold one key, so they are not from one store. The errors of fill are returned unchanged.
func Import(ctx context.Context, dir string, opts Options, fill func(add func([]chain.Entry, []tga.Note) error) error) error {
	opts = opts.withDefaults()
	opts.StoreID, opts.WitnessFile, opts.Create = tga.ID{}, "", true
	var filled error
	err := aside(opts.FS, dir, func(temp string) error {
		db, err := Open(temp, opts)
		if err != nil {
			return err
		}
		im := &importer{ctx: ctx, db: db}
		err = fill(im.add)
		filled = err
		if err == nil {
			err = im.end()
		}
		if err == nil {
			err = checkMade(ctx, db, "import")
		}
		return errors.Join(err, db.Close(), ctx.Err())
	})
	if err != nil && filled == nil && ctx.Err() == nil && tga.CodeOf(err) == "" {
		return tga.Errorf(tga.StoreUnavailable, "import to %s: %w", dir, err)
	}
	return err
}

// importer appends the traces of another store to a store that nobody else uses.
type importer struct {
	ctx         context.Context
	db          *DB
	incarnation uint32 // the largest incarnation of the epochs that were seen
	newest      Ticket // of the step that was queued last
	queued      int    // bytes that are not durable yet
}

// Bounds of an import.
const (
	importAhead = 8 << 20 // roughly how many bytes may be under way to disk, besides the trace that is being read
	importNotes = 1024    // notes of one append
	importEpoch = 1 << 31 // an incarnation as large as this is not credible
)

// add appends a trace.
func (im *importer) add(entries []chain.Entry, notes []tga.Note) error {
	x, err := im.incoming(entries, notes)
	if err != nil {
		return err
	}
	if err := im.db.traces.lockQueued(im.ctx, x.id); err != nil {
		return err
	}
	defer im.db.traces.unlock(x.id)
	head, _, err := im.db.traces.tip(x.id)
	if err != nil {
		return err
	}
	if head.Head.Seq > 0 {
		return tga.Errorf(tga.ValidationError, "trace %s came before: an import has each trace once", x.id).In(x.id)
	}
	for trace := head.Trace; !x.over(); {
		s, err := x.next(trace)
		if err == nil && x.over() {
			err = im.record(s, x)
		}
		if err == nil {
			err = im.queue(s)
		}
		if err != nil {
			return err
		}
		trace = s.after
	}
	return nil
}

// incoming is a trace that is being imported: entries and notes are the part that is still to be
// appended. No digest covers what a store knows about each append: its commit time, its epoch, and
// which entries and notes it held. An export has the commit time and the epoch of entries. A note gets
// the epoch of the entry before it. Its commit time is its own ts or the commit time of that entry,
// whichever is later.
type incoming struct {
	id           tga.ID
	entries      []chain.Entry
	notes        []tga.Note
	call, effect chain.Entry // zero if there is none
	last         chain.Entry // the newest entry that was appended
}

// incoming checks a trace before any part of it is appended.
func (im *importer) incoming(entries []chain.Entry, notes []tga.Note) (*incoming, error) {
	if err := im.ctx.Err(); err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, tga.Errorf(tga.NotFound, "import a trace without an entry")
	}
	x := &incoming{id: entries[0].TraceID, entries: entries, notes: notes}
	var b chain.Batch
	for i := range entries {
		e := &entries[i]
		switch e.Type {
		case tga.CallType:
			x.call = *e
		case tga.EffectType:
			x.effect = *e
		}
		if err := im.see(uint64(e.Epoch)); err != nil {
			return nil, err
		}
		if e.Artifact != nil {
			b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: e.Artifact, Documents: e.Documents})
		}
	}
	if len(b.Artifacts) == 0 {
		return x, nil // the whole trace is erased
	}
	if err := b.Check(x.id); err != nil {
		return nil, err
	}
	key, err := im.db.ringed.keyFor(chain.NewTrace(x.id), &b)
	for i := range entries {
		entries[i].Key = key
	}
	return x, err
}

// see records an epoch, so that the epochs of the new store come after it.
func (im *importer) see(epoch uint64) error {
	n := chain.Epoch(epoch).Incarnation()
	if n >= importEpoch {
		return tga.Errorf(tga.ValidationError, "epoch %#x: no store was opened %d times", epoch, n)
	}
	im.incarnation = max(im.incarnation, n)
	return nil
}

func (x *incoming) over() bool { return len(x.entries)+len(x.notes) == 0 }

// next makes the next step of the trace: the entries up to the head that the next note names, and the
// notes with that head. An effect is apart from its call if that was sent. So each step has the form of
// an append, as [checker.leaf] and a monitor expect.
func (x *incoming) next(t *chain.Trace) (*step, error) {
	s := &step{before: fold{Trace: t}, after: t.Successor(), room: rooms.Get().(*room)}
	at := func() bool { return len(x.notes) > 0 && x.notes[0].HeadDigest == s.after.Head.Digest }
	for len(x.entries) > 0 && !at() {
		e := &x.entries[0]
		if sent := s.after.Call; e.Type == tga.EffectType && len(s.entries) > 0 && sent != nil && !ledger.NeverSent(sent) {
			break
		}
		if err := s.after.Apply(e); err != nil {
			return nil, err
		}
		s.entries, x.entries, x.last = append(s.entries, *e), x.entries[1:], *e
		s.newestTS = max(s.newestTS, e.TS)
	}
	s.lease, s.committed = chain.Lease{TraceID: x.id, Epoch: x.last.Epoch}, x.last.Committed
	for at() && len(s.notes) < importNotes {
		n := &x.notes[0]
		if err := s.after.ApplyNote(n); err != nil {
			return nil, err
		}
		s.notes, x.notes = append(s.notes, *n), x.notes[1:]
		s.newestTS, s.committed = max(s.newestTS, n.TS), max(s.committed, n.TS)
	}
	if len(s.entries)+len(s.notes) == 0 {
		// The note names a head that is neither the newest appended entry nor a later one.
		err := tga.Errorf(tga.StateChecksumMismatch, "note %d of trace %s names an entry that is not its head", x.notes[0].Number, x.id).In(x.id)
		err.Note = x.notes[0].Number
		return nil, err
	}
	return s, nil
}

// record adds the ledger record of the trace to its last step, unless another trace had the key
// later. An export has an erased call without its key. Then there is no record, and the new store does
// not know that the key was used.
func (im *importer) record(s *step, x *incoming) error {
	t := s.after
	if t.Call == nil || ledger.NeverSent(t.Call) {
		return nil
	}
	if t.Request == nil || x.effect.Seq > 0 && t.Effect == nil {
		return tga.Errorf(tga.ValidationError, "trace %s is erased in part: what its key's record says is not known", x.id).In(x.id)
	}
	rec, _, err := ledger.FromTrace(t.Call, x.call.Seq, uint64(x.call.Epoch), min(x.call.TS, x.call.Committed), t.Effect, x.effect.Seq, t.Notes)
	if err == nil {
		err = im.see(rec.Attempts.Epoch)
	}
	if err != nil {
		return err
	}
	rec.RequestDigest = im.db.ringed.digest(t.Call.Call.Call)
	s.hash = ledger.KeyOf(t.Namespace, t.Call).Hash()
	if err := im.db.records.lock(im.ctx, x.id, s.hash); err != nil {
		return err
	}
	stored, err := im.db.records.get(s.hash)
	takes := stored == nil
	if err == nil && !takes {
		takes, err = im.takesOver(&rec, stored, x, t)
	}
	if err != nil || !takes {
		im.db.records.unlock(s.hash)
		return err
	}
	s.record, s.first, s.keyed = &rec, stored == nil, true
	return nil
}

// takesOver reports whether a trace had its key after the trace whose record is stored. If two traces
// had one key, the earlier one must have released it.
func (im *importer) takesOver(rec, stored *ledger.Record, x *incoming, t *chain.Trace) (bool, error) {
	gave := func(r *ledger.Record) bool { return r.Status == ledger.Settled && r.Class.Releases() }
	switch {
	case !gave(rec) && !gave(stored):
		return false, tga.Errorf(tga.IdempotencyKeyConflict, "traces %s and %s both hold key %q: they are not of one store",
			stored.TraceID, x.id, t.Call.Call.IdempotencyKey).In(x.id)
	case gave(rec) != gave(stored):
		return gave(stored), nil
	}
	rows, err := im.db.index.rows(stored.TraceID)
	if err != nil {
		return false, err
	}
	other, err := rows.decode()
	if err != nil {
		return false, err
	}
	its, err := other.Replay()
	if err != nil {
		return false, err
	}
	// Both released the key. The later trace was committed later, or in the same millisecond; in
	// that case it names the earlier trace (retry_of).
	for _, a := range []*tga.Artifact{its.Call, its.Request} {
		if a.Meta.String(tga.MetaRetryOf) == x.id.String() {
			return false, nil
		}
	}
	return x.call.Committed >= other.Entries[stored.Seq-1].Committed, nil
}

// queue queues a step for the committer. It waits for the disk if too many bytes are under way.
func (im *importer) queue(s *step) error {
	id := s.after.ID
	if err := im.db.commits.enter(im.ctx, id); err != nil {
		if s.keyed {
			im.db.records.unlock(s.hash)
		}
		return err
	}
	for i := range s.entries {
		im.queued += len(s.entries[i].Preimage)
		if a := s.entries[i].Artifact; a != nil {
			im.queued += len(a.Canonical)
		}
		for _, d := range s.entries[i].Documents {
			im.queued += len(d.Data)
		}
	}
	im.db.times.now() // the leaf gets the time of the import
	t, err := im.db.queue(steps{s})
	if err != nil {
		im.db.commits.leave()
		return err
	}
	if im.newest = t; im.queued < importAhead {
		return nil
	}
	im.queued = 0
	_, err = t.Wait()
	return err
}

// end waits until everything is durable, freezes the store, and makes its epochs come after the
// imported ones.
func (im *importer) end() error {
	if _, err := im.newest.Wait(); err != nil {
		return err
	}
	reason, err := json.Marshal("imported from an export: what its store appended after that is not known")
	if err != nil {
		return err
	}
	w := im.db.commits.newWriter()
	w.set(keyspace.AppendMeta(nil, metaFrozen), reason)
	w.set(keyspace.AppendMeta(nil, metaIncarnation), binary.BigEndian.AppendUint64(nil, uint64(max(im.incarnation, 1))))
	return im.db.commits.apply(w)
}
