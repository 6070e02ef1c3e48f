package engine

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// step is one checked append on its way to disk.
type step struct {
	lease       chain.Lease
	before      fold
	after       *chain.Trace
	entries     []chain.Entry
	notes       []tga.Note
	attachments []chain.Attachment
	committed   tga.Millis     // the store's clock
	newestTS    tga.Millis     // of the entries and notes
	hash        [32]byte       // of the ledger key; with record
	record      *ledger.Record // nil where the append leaves the ledger alone
	index       uint64         // in the global order
	room        *room          // of the entries' preimages, until they are encoded
	commit      *commitment    // what it is committed with
	own         commitment     // that, where it is the first of its batch
}

func (s *step) appended() chain.Appended {
	out := chain.Appended{Head: s.after.Head, Notes: s.notes}
	if len(s.entries) > 0 {
		out.Entries = make([]tga.LogEntry, 0, len(s.entries))
	}
	for i := range s.entries {
		out.Entries = append(out.Entries, s.entries[i].LogEntry)
	}
	return out
}

// room is memory for the preimages of a step's entries, which are needed from the check of
// an entry to its encoding. A step that is refused between the two leaves its room to the
// garbage collector.
type room [4][1 << 10]byte

var rooms = sync.Pool{New: func() any { return new(room) }}

// of returns the room of the i-th entry, none for one too many.
func (r *room) of(i int) []byte {
	if i >= len(r) {
		return nil
	}
	return r[i][:0]
}

// leaveRoom gives the room back; the preimages are gone with it.
func (s *step) leaveRoom() {
	for i := range s.entries {
		s.entries[i].Preimage = nil
	}
	rooms.Put(s.room)
	s.room = nil
}

// commit makes the steps durable and then visible, in that order, all or none. The
// locks of their traces and of their ledger keys are held.
func (db *DB) commit(steps ...*step) error {
	c, err := db.prepare(steps...)
	if err != nil {
		return err
	}
	db.commits.add(c)
	return db.await(c)
}

// queue puts a step into the queue of commits. The lock of its trace is held. unlocks says
// that the lock of its ledger key is held too, and ends with the commit.
func (db *DB) queue(s *step, unlocks bool) (Ticket, error) {
	c, err := db.prepare(s)
	if err != nil {
		if unlocks {
			db.keys.unlock(s.hash)
		}
		return Ticket{}, err
	}
	c.unlocks, c.entered = unlocks, true
	db.tails.put(s)
	db.commits.add(c)
	return Ticket{db: db, commit: c, answer: s.appended()}, nil
}

// prepare encodes the steps into one batch and gives each its place in the global order.
//
// Pebble shows a batch to readers before it is synced. Nothing here depends on that:
// readers of a trace wait for its tail and those of a record take its lock, readers of
// the order stop at the durable prefix, readers of attachments and of the open index
// wait for what is in flight ([order.view]).
func (db *DB) prepare(steps ...*step) (*commitment, error) {
	b := db.p.NewBatch()
	w := newWriter(b)
	defer w.free()
	for _, s := range steps {
		if err := w.step(s); err != nil {
			return nil, closing(b, err)
		}
		s.leaveRoom()
		if s.before.Head.Seq == 0 {
			db.begun.add(s.after.ID)
		}
	}
	c := &steps[0].own
	c.batch, c.steps = b, steps
	for _, s := range steps {
		s.commit = c
		leaf := s.leaf()
		keys := attachmentKeys(s.attachments)
		leaf.Index = db.order.begin(s.after.ID, keys, func() {
			raise(&db.newestTS, int64(s.newestTS))
			leaf.Committed, leaf.NewestTS = tga.Millis(db.newest.Load()), tga.Millis(db.newestTS.Load())
		})
		w.set(keyspace.AppendGlobal(w.key[:0], leaf.Index), w.keep(leaf.appendValue(w.value[:0])))
		if leaf.Index%floorEvery == 0 {
			w.set(keyspace.AppendMeta(nil, metaFloor), db.order.floorValue())
		}
		s.index = leaf.Index
	}
	if w.err != nil {
		db.health.poison(db.log, w.err) // the index is taken: nothing after it may become visible
		return nil, closing(b, db.health.sick())
	}
	return c, nil
}

// publish shows a durable step: first to those who ask, then to those who wait.
func (db *DB) publish(s *step) {
	db.cache.put(s.after.ID, s.fold(), foldSize(s.after))
	db.tails.remove(s) // after the cache has it: a reader finds it in one of the two
	db.stats.count(s)
	db.order.end(s.index)
	if s.record != nil {
		db.records.put(s.hash, s.record, recordSize)
		db.recordChanged.notify(s.hash)
	}
}

// fold returns the trace as the step leaves it.
func (s *step) fold() fold { return fold{Trace: s.after, reservation: s.reservation()} }

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

// step writes everything of s but its position in the global order.
func (w *writer) step(s *step) error {
	for i := range s.entries {
		w.entry(&s.entries[i])
	}
	for i := range s.notes {
		n := &s.notes[i]
		w.set(keyspace.AppendNote(w.key[:0], n.TraceID, n.Number), w.keep(chain.AppendNoteFrame(w.value[:0], n, s.committed, s.lease.Epoch)))
	}
	if s.record != nil {
		value, err := s.record.AppendBinary(w.value[:0])
		if err != nil {
			return err
		}
		w.set(keyspace.AppendLedger(w.key[:0], s.hash), w.keep(value))
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
	if w.err == nil && w.b.Len() > chain.MaxBatch {
		return tga.Errorf(tga.LimitExceeded, "append of %d bytes: at most %d", w.b.Len(), chain.MaxBatch).In(s.after.ID)
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
	b     *pebble.Batch
	key   [keyspace.MaxLen]byte
	value []byte // room to encode in: the batch copies
	err   error
}

var writers = sync.Pool{New: func() any { return new(writer) }}

func newWriter(b *pebble.Batch) *writer {
	w := writers.Get().(*writer)
	w.b, w.err = b, nil
	return w
}

func (w *writer) free() {
	w.b = nil
	writers.Put(w)
}

// keep remembers the room that value took, unless it is much.
func (w *writer) keep(value []byte) []byte {
	if cap(value) <= 64<<10 {
		w.value = value
	}
	return value
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

func (w *writer) entry(e *chain.Entry) {
	frame, spill := chain.AppendFrame(w.value[:0], e)
	w.set(keyspace.AppendEntry(w.key[:0], e.TraceID, e.Seq), w.keep(frame))
	for i := 0; len(spill) > 0; i++ {
		n := min(len(spill), chain.ChunkSize)
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
		w.set(key, w.keep(appendOpenValue(w.value[:0], s.after)))
	} else if s.before.Head.Seq > 0 {
		w.delete(key)
	}
}

// closing gives up a batch that was not committed.
func closing(b *pebble.Batch, err error) error {
	if e := b.Close(); e != nil {
		return tga.Errorf(tga.StoreUnavailable, "%v; close the batch: %w", err, e)
	}
	return err
}
