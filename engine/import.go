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

// Import makes a store in dir, which must not exist, of traces that another store had, as its export
// has them. fill calls add with the entries and the notes of each trace, in the order in which the
// traces are to stand in the new store. Entries, artifacts, documents and notes keep their bytes,
// digests and commit times; ledger records are made from them. The store has an id and a secret of
// its own, and an order of its own: that of the import.
//
// It opens frozen until [DB.Unfreeze], as a store does that was restored from a backup, and for
// the same reason: what the other store appended after its export is not in it.
//
// Each trace is checked as a replay checks it, and the store is checked whole before it gets its
// name. After an error, and where ctx ends, nothing is left under dir. VALIDATION_ERROR: dir is
// there already, or a trace came twice. IDEMPOTENCY_KEY_CONFLICT: two traces both hold one key, so
// they are not of one store. The errors of fill are returned as they are.
func Import(ctx context.Context, dir string, opts Options, fill func(add func([]chain.Entry, []tga.Note) error) error) error {
	opts = opts.withDefaults()
	opts.StoreID, opts.WitnessFile, opts.Create = tga.ID{}, "", true
	return aside(opts.FS, dir, func(temp string) error {
		db, err := Open(temp, opts)
		if err != nil {
			return err
		}
		im := &importer{ctx: ctx, db: db}
		err = fill(im.add)
		if err == nil {
			err = im.end()
		}
		if err == nil {
			err = checkMade(ctx, db, "import")
		}
		return errors.Join(err, db.Close(), ctx.Err())
	})
}

// importer appends traces that were made elsewhere to a store that nobody else has.
type importer struct {
	ctx         context.Context
	db          *DB
	incarnation uint32 // the newest of an epoch that was seen
	newest      Ticket // of what was queued last
	queued      int    // bytes that are on their way
}

// Bounds of what an import has under way.
const (
	importAhead = 8 << 20 // about how many bytes are on their way to disk, beside the trace that is read
	importNotes = 1024    // notes of one append
	importEpoch = 1 << 31 // no store was opened that often
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

// incoming is a trace that is imported, and what is still to come of it. What a store says of each
// append is under no digest: when it was committed, under which epoch, and what else it held. Of
// entries an export has the first two. A note gets the epoch of the entry before it and, as its
// commit time, its own ts or the commit time of that entry, whichever is later.
type incoming struct {
	id           tga.ID
	entries      []chain.Entry
	notes        []tga.Note
	call, effect chain.Entry // zero where there is none
	last         chain.Entry // the newest that was taken
}

// incoming looks at a trace before anything of it is appended.
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
		return x, nil // erased as a whole
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

// see takes note of an epoch: the epochs of the new store come after it.
func (im *importer) see(epoch uint64) error {
	n := chain.Epoch(epoch).Incarnation()
	if n >= importEpoch {
		return tga.Errorf(tga.ValidationError, "epoch %#x: no store was opened %d times", epoch, n)
	}
	im.incarnation = max(im.incarnation, n)
	return nil
}

func (x *incoming) over() bool { return len(x.entries)+len(x.notes) == 0 }

// next makes the next step of the trace: entries up to the one that the next note names as its
// head, and the notes there. So each step ends as an append ends, see [checker.leaf].
func (x *incoming) next(t *chain.Trace) (*step, error) {
	s := &step{before: fold{Trace: t}, after: t.Successor(), room: rooms.Get().(*room)}
	at := func() bool { return len(x.notes) > 0 && x.notes[0].HeadDigest == s.after.Head.Digest }
	for len(x.entries) > 0 && !at() {
		e := &x.entries[0]
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
		// No entry that is left is its head, nor the one that was taken last.
		err := tga.Errorf(tga.StateChecksumMismatch, "note %d of trace %s names an entry that is not its head", x.notes[0].Number, x.id).In(x.id)
		err.Note = x.notes[0].Number
		return nil, err
	}
	return s, nil
}

// record puts the ledger record that the trace leads to into its last step, unless another trace
// had the key later. An erased call is in an export without its key: then there is no record, and
// whether its key was used the new store does not know.
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

// takesOver reports whether a trace had its key after the trace whose record is stored. Of two
// traces with one key the earlier one gave it up.
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
	// Both gave it up. The later one was committed later, or in the same millisecond, and then the
	// later one names the other.
	for _, a := range []*tga.Artifact{its.Call, its.Request} {
		if a.Meta.String(tga.MetaRetryOf) == x.id.String() {
			return false, nil
		}
	}
	return x.call.Committed >= other.Entries[stored.Seq-1].Committed, nil
}

// queue sends a step on its way to disk.
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
	im.db.times.now() // its leaf has the time of the import
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

// end waits until everything is durable, freezes the store, and has its epochs come after those that
// were imported.
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
