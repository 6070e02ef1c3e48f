package engine

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// step is one checked append on its way to disk.
type step struct {
	lease       wal.Lease
	before      fold
	after       *wal.Trace
	entries     []wal.Entry
	notes       []tga.Note
	attachments []wal.Attachment
	committed   tga.Millis     // the store's clock
	newestTS    tga.Millis     // of the entries and notes
	hash        [32]byte       // of the ledger key; with record
	record      *ledger.Record // nil where the append leaves the ledger alone
}

func (s *step) appended() wal.Appended {
	out := wal.Appended{Head: s.after.Head, Notes: s.notes}
	for i := range s.entries {
		out.Entries = append(out.Entries, s.entries[i].LogEntry)
	}
	return out
}

// maxBatch bounds what one append may commit, in bytes. Pebble's own limit is 4 GiB.
const maxBatch = 512 << 20

// limits refuses what is no batch, or one that the frame codec has no room for.
func limits(trace tga.ID, b wal.Batch) error {
	if len(b.Artifacts) == 0 && len(b.Notes) == 0 && len(b.Attachments) == 0 {
		return tga.Errorf(tga.ValidationError, "append of nothing").In(trace)
	}
	for _, a := range b.Artifacts {
		if a.Artifact == nil {
			return tga.Errorf(tga.ValidationError, "append of no artifact").In(trace)
		}
		size := len(a.Artifact.Canonical)
		for _, d := range a.Documents {
			size += len(d.Data)
			if len(d.Pointer) > 255 {
				return tga.Errorf(tga.LimitExceeded, "document pointer of %d bytes: at most 255", len(d.Pointer)).In(trace)
			}
		}
		if size > maxBatch {
			return tga.Errorf(tga.LimitExceeded, "%s with its documents has %d bytes: at most %d", a.Artifact.Type, size, maxBatch).In(trace)
		}
		if len(a.Documents) > 16 {
			return tga.Errorf(tga.LimitExceeded, "%s with %d documents: at most 16", a.Artifact.Type, len(a.Documents)).In(trace)
		}
	}
	return nil
}

// commit makes s durable and then visible, in that order. The locks of the trace and
// of its ledger key are held.
//
// Pebble shows a batch to readers before it is synced. Nothing here depends on that:
// readers of a trace or of a record take its lock, readers of the order stop at the
// durable prefix, readers of attachments and of the open index wait for what is in
// flight ([order.view]).
func (db *DB) commit(s *step) error {
	b := db.p.NewBatch()
	if err := db.encode(b, s); err != nil {
		return closing(b, err)
	}
	leaf := s.leaf()
	keys := attachmentKeys(s.attachments)
	leaf.Index = db.order.begin(s.after.ID, keys, func() {
		raise(&db.newestTS, int64(s.newestTS))
		leaf.Committed, leaf.NewestTS = tga.Millis(db.newest.Load()), tga.Millis(db.newestTS.Load())
	})
	w := writer{b: b}
	w.set(keyspace.AppendGlobal(w.key[:0], leaf.Index), leaf.appendValue(make([]byte, 0, 1+leafSize)))
	if leaf.Index%floorEvery == 0 {
		w.set(keyspace.AppendMeta(nil, metaFloor), db.order.floorValue())
	}
	if w.err != nil {
		db.health.poison(db.log, w.err) // the index is taken: nothing after it may become visible
		return closing(b, db.health.sick())
	}
	if err := db.apply(b); err != nil {
		return err // poisoned: what is in flight stays so, and nobody is shown it
	}
	db.publish(s, leaf.Index)
	return nil
}

// publish shows a durable step: first to those who ask, then to those who wait.
func (db *DB) publish(s *step, index uint64) {
	db.cache.put(s.after.ID, fold{Trace: s.after, reservation: s.reservation()})
	db.stats.count(s)
	db.order.end(index)
	if s.record != nil {
		db.recordChanged.notify(s.hash)
	}
}

// reservation returns the trace's open reservation after the step, nil where it has none
// or it is not known.
func (s *step) reservation() *ledger.Record {
	if s.record == nil {
		return s.before.reservation
	}
	if s.record.Status != ledger.Reserved {
		return nil
	}
	return s.record
}

// encode writes everything of s but its position in the global order.
func (db *DB) encode(b *pebble.Batch, s *step) error {
	w := writer{b: b}
	for i := range s.entries {
		w.entry(&s.entries[i])
	}
	for i := range s.notes {
		n := &s.notes[i]
		w.set(keyspace.AppendNote(w.key[:0], n.TraceID, n.Number), wal.AppendNoteFrame(nil, n, s.committed, s.lease.Epoch))
	}
	if s.record != nil {
		value, err := s.record.AppendBinary(nil)
		if err != nil {
			return err
		}
		w.set(keyspace.AppendLedger(w.key[:0], s.hash), value)
	}
	w.openIndex(s)
	for _, a := range s.attachments {
		key, err := keyspace.AppendAttachment(w.key[:0], keyspace.Kind(a.Kind), a.Key)
		switch {
		case err != nil:
			return err
		case a.Value == nil:
			w.delete(key)
		default:
			w.set(key, a.Value)
		}
	}
	if w.err == nil && b.Len() > maxBatch {
		return tga.Errorf(tga.LimitExceeded, "append of %d bytes: at most %d", b.Len(), maxBatch).In(s.after.ID)
	}
	return w.err
}

// leaf returns the step's position in the global order, without index and time.
func (s *step) leaf() Leaf {
	l := Leaf{
		TraceID:    s.after.ID,
		HeadDigest: s.after.Head.Digest,
		NoteDigest: s.after.NoteHead.Digest,
		Entries:    uint16(len(s.entries)),
		Notes:      uint16(len(s.notes)),
	}
	if len(s.entries) > 0 {
		l.FirstSeq = s.entries[0].Seq
	}
	if len(s.notes) > 0 {
		l.FirstNote = s.notes[0].Number
	}
	return l
}

// writer collects the first error of the sets of a batch.
type writer struct {
	b   *pebble.Batch
	key [keyspace.MaxLen]byte
	err error
}

func (w *writer) set(key, value []byte) {
	if w.err == nil {
		w.err = w.b.Set(key, value, nil)
	}
}

func (w *writer) delete(key []byte) {
	if w.err == nil {
		w.err = w.b.Delete(key, nil)
	}
}

func (w *writer) entry(e *wal.Entry) {
	frame, spill := wal.AppendFrame(nil, e)
	w.set(keyspace.AppendEntry(w.key[:0], e.TraceID, e.Seq), frame)
	for i := 0; len(spill) > 0; i++ {
		n := min(len(spill), wal.ChunkSize)
		w.set(keyspace.AppendChunk(w.key[:0], e.TraceID, e.Seq, uint16(i)), spill[:n])
		spill = spill[n:]
	}
}

// openIndex keeps the trace's place among the open traces: there with its state until
// it is terminal, then gone.
func (w *writer) openIndex(s *step) {
	if len(s.entries) == 0 {
		return
	}
	key := keyspace.AppendOpen(w.key[:0], s.after.ID)
	if !s.after.Head.State.Terminal() {
		w.set(key, appendOpenValue(nil, s.after))
	} else if s.before.Head.Seq > 0 {
		w.delete(key)
	}
}

// apply commits b with a sync and returns once it is durable. Any error poisons the
// store, for what the disk then has is not known.
//
// Pebble blocks without end when it can neither write nor fail (a full disk, say), so
// the wait ends when the store is poisoned too.
func (db *DB) apply(b *pebble.Batch) error {
	done := make(chan error, 1)
	db.committing.Add(1) // the commit may outlive this call, but not the watermark
	go func() {
		defer db.committing.Done()
		err := db.guarded(func() error { return b.Commit(pebble.Sync) })
		if err == nil {
			err = db.committed(b)
		}
		if err != nil {
			db.health.poison(db.log, err)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return unknown(err)
	case <-db.health.poisoned:
	}
	select {
	case err := <-done: // it returned all the same
		return unknown(err)
	default:
		return unknown(db.health.sick())
	}
}

// committed notes a durable batch in the watermark, before anybody is told of it.
func (db *DB) committed(b *pebble.Batch) error {
	db.stats.commits.Add(1)
	if err := db.mark.Advance(uint64(b.SeqNum()) + uint64(b.Count()) - 1); err != nil {
		return err
	}
	return b.Close()
}

func unknown(err error) error {
	if err == nil {
		return nil
	}
	return tga.Errorf(tga.StoreUnavailable, "commit, outcome unknown: %w", err)
}

// closing gives up a batch that was not committed.
func closing(b *pebble.Batch, err error) error {
	if e := b.Close(); e != nil {
		return tga.Errorf(tga.StoreUnavailable, "%v; close the batch: %w", err, e)
	}
	return err
}
