package engine

import (
	"errors"
	"sync"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// step is one checked append on its way to disk.
type step struct {
	lease       chain.Lease
	before      fold
	after       *chain.Trace
	entries     []chain.Entry
	one         [1]chain.Entry // room for them
	notes       []tga.Note
	attachments []chain.Attachment // with their values as they are stored
	committed   tga.Millis         // the store's clock
	newestTS    tga.Millis         // of the entries and notes
	hash        [32]byte           // of the ledger key, if the step touches one or relies on one
	keyed       bool               // the step has a key, and the lock of the key is held
	first       bool               // the key has no record yet
	record      *ledger.Record     // nil if the append does not change the ledger
	room        *room              // holds the preimages of the entries until they are encoded
	commit      *commitment        // the commitment that the step is part of
	own         commitment         // used as commit if the step is the first of its append
}

// steps are the steps of one append, each of a different trace.
type steps []*step

func (s *step) appended() chain.Appended {
	out := chain.Appended{Head: s.after.Head, Notes: s.notes, Trace: s.after}
	if len(s.entries) > 0 {
		out.Entries = make([]tga.LogEntry, 0, len(s.entries))
	}
	for i := range s.entries {
		out.Entries = append(out.Entries, s.entries[i].LogEntry)
	}
	return out
}

// room is memory for the preimages of a step's entries, which are needed from the check of
// an entry until it is encoded. If a step is refused in between, the garbage collector frees
// its room.
type room [4][1 << 10]byte

var rooms = sync.Pool{New: func() any { return new(room) }}

// of returns the room of the i-th entry, nil if there is no room for it.
func (r *room) of(i int) []byte {
	if i >= len(r) {
		return nil
	}
	return r[i][:0]
}

// leaveRoom gives the room back to the pool and drops the preimages, which lie in it.
func (s *step) leaveRoom() {
	for i := range s.entries {
		s.entries[i].Preimage = nil
	}
	rooms.Put(s.room)
	s.room = nil
}

// queue encodes the steps as operations of one record of the log and puts them into the
// queue of commits. The caller holds the locks of their traces and of their ledger keys. The
// commit releases the locks of the keys.
func (db *DB) queue(ss steps) (Ticket, error) {
	w := db.commits.newWriter()
	for _, s := range ss {
		w.step(s)
	}
	c := &ss[0].own
	if err := w.end(c); err != nil {
		return Ticket{}, err
	}
	c.steps = append(c.few[:0], ss...)
	c.entered = true
	for _, s := range ss {
		s.commit = c
		s.leaveRoom()
		if s.before.Head.Seq == 0 {
			db.traces.begun.add(s.after.ID)
		}
		db.traces.tails.put(s)
	}
	db.commits.add(c)
	return Ticket{commits: db.commits, commit: c, answer: ss[0].appended()}, nil
}

// place gives the steps of a commitment their places in the global order, which is the order
// in which the committer takes them. The caller holds the committer's mutex, so the times in
// the leaves grow with their indexes.
func (c *committer) place(x *commitment) {
	var value [leafLen]byte
	for _, s := range x.steps {
		raise(&c.times.newestTS, int64(s.newestTS))
		leaf := s.leaf()
		leaf.Committed, leaf.NewestTS = tga.Millis(c.times.newest.Load()), tga.Millis(c.times.newestTS.Load())
		x.ops.Order(appendLeafValue(value[:0], &leaf))
		c.order.place(leaf)
	}
}

// publish shows a durable step: first to those who ask, then to those who wait.
func (c *committer) publish(s *step) {
	c.traces.publish(s)
	c.stats.count(s)
	c.records.publish(s)
}

// fold returns the trace after the step.
func (s *step) fold() fold { return fold{Trace: s.after, reservation: s.reservation()} }

// reservation returns the trace's open reservation after the step, nil if the trace has none
// or if it is not known.
func (s *step) reservation() *ledger.Record {
	if s.record == nil {
		return s.before.reservation
	}
	if s.record.Status != ledger.Reserved {
		return nil
	}
	return s.record
}

// step encodes everything of s except its position in the global order.
func (w *writer) step(s *step) {
	for i := range s.entries {
		w.entry(&s.entries[i])
	}
	for i := range s.notes {
		w.note(&s.notes[i], s.committed, s.lease.Epoch)
	}
	if s.record != nil {
		value, err := s.record.AppendBinary(w.value[:0])
		w.fail(err)
		if key := keyspace.AppendLedger(w.key[:0], s.hash); s.first {
			w.insert(key, w.keep(value))
		} else {
			w.set(key, w.keep(value))
		}
	}
	w.openIndex(s)
	for _, a := range s.attachments {
		key, err := keyspace.AppendAttachment(w.key[:0], keyspace.Kind(a.Kind), a.Key)
		switch {
		case err != nil:
			w.fail(err)
		case a.Value == nil:
			w.delete(key)
		default:
			w.body(key, a.Value)
		}
	}
	if w.size > chain.MaxBatch {
		w.fail(tga.Errorf(tga.LimitExceeded, "append of %d bytes: at most %d", w.size, chain.MaxBatch).In(s.after.ID))
	}
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

// writer encodes operations, and keeps the first error. Small values that stay for ever
// lie beside their keys, under the chain of the log; what can be archived, replaced or
// erased is a body.
type writer struct {
	log   *wal.Log   // gets the bodies that have a file
	keys  chain.Keys // seal entries that have a key
	ops   *wal.Ops
	key   [keyspace.MaxLen]byte
	value []byte // room to encode in: the operations copy
	size  int    // of all values, in bytes
	err   error
}

var (
	writers    = sync.Pool{New: func() any { return new(writer) }}
	operations = sync.Pool{New: func() any { return new(wal.Ops) }}
)

func (c *committer) newWriter() *writer {
	w := writers.Get().(*writer)
	w.log, w.keys, w.ops, w.size, w.err = c.log, c.index.keys, operations.Get().(*wal.Ops), 0, nil
	w.ops.Reset()
	return w
}

// mostOps bounds the operations of one commitment, in bytes. The rest of a record is room for its header and leaves.
const mostOps = wal.MaxRecord - 256<<10

// end gives the operations to a commitment; the writer must not be used afterwards. On an
// error it removes the files of the operations from the disk.
func (w *writer) end(c *commitment) error {
	if n := w.ops.Len(); n > mostOps {
		w.fail(tga.Errorf(tga.LimitExceeded, "an append whose operations have %d bytes, the bodies with files of their own left out: at most %d", n, mostOps))
	}
	log, ops, err := w.log, w.ops, w.err
	w.log, w.keys, w.ops = nil, nil, nil
	writers.Put(w)
	if err == nil {
		c.ops = ops
		return nil
	}
	for _, f := range ops.Files() {
		err = errors.Join(err, log.DropFile(f))
	}
	freeOps(ops)
	return err
}

// drop discards the operations.
func (w *writer) drop() error {
	w.fail(errDropped)
	if err := w.end(nil); !errors.Is(err, errDropped) {
		return err
	}
	return nil
}

var errDropped = errors.New("not needed")

// freeOps keeps the memory of finished operations for later use, unless it is large.
func freeOps(ops *wal.Ops) {
	if ops.Len() <= 64<<10 {
		operations.Put(ops)
	}
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// keep keeps the memory of value for the next encoding, unless it is large.
func (w *writer) keep(value []byte) []byte {
	if cap(value) <= 64<<10 {
		w.value = value
	}
	return value
}

// set sets a small value that is never archived or erased.
func (w *writer) set(key, value []byte) {
	if w.size += len(value); w.err == nil {
		w.ops.Put(key, value)
	}
}

// insert is set for a key that was never set before.
func (w *writer) insert(key, value []byte) {
	if w.size += len(value); w.err == nil {
		w.ops.Insert(key, value)
	}
}

// body sets a value that may be long. A value that would make the record too long is first
// written to a file of its own, in this goroutine.
func (w *writer) body(key, body []byte) {
	if w.size += len(body); w.err != nil || w.size > chain.MaxBatch {
		return // the caller reports the limit
	}
	if w.ops.Inline()+len(body) <= wal.MaxInline {
		w.ops.PutBody(key, nil, body)
		return
	}
	w.file(key, body)
}

// file sets a value that has a file of its own.
func (w *writer) file(key, body []byte) {
	f, err := w.log.WriteFile(key, body)
	if err != nil {
		w.fail(err)
		return
	}
	w.ops.PutFile(key, nil, f)
}

func (w *writer) delete(key []byte) {
	if w.err == nil {
		w.ops.Delete(key)
	}
}

func (w *writer) entry(e *chain.Entry) {
	frame, spill, err := chain.AppendSealedFrame(w.value[:0], e, w.keys)
	if err != nil {
		w.fail(err)
		return
	}
	w.body(keyspace.AppendEntry(w.key[:0], e.TraceID, e.Seq), w.keep(frame))
	if len(spill) > 0 {
		w.body(keyspace.AppendChunk(w.key[:0], e.TraceID, e.Seq, 0), spill)
	}
}

func (w *writer) note(n *tga.Note, committed tga.Millis, epoch chain.Epoch) {
	w.body(keyspace.AppendNote(w.key[:0], n.TraceID, n.Number), w.keep(chain.AppendNoteFrame(w.value[:0], n, committed, epoch)))
}

// openIndex maintains the trace's row among the open traces: the row has the state of the
// trace, and is deleted once the state is terminal.
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
