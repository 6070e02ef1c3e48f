package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"

	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Bounds of one archive segment, which is a file of its own. Its traces are locked while it is
// written.
const (
	sealTraces = 1024
	sealBytes  = 16 << 20 // of canonical bytes and documents, before compression
)

// Sealed says what [DB.SealTraces] did.
type Sealed struct {
	Segments int
	Traces   int
	Bytes    int64 // total size of the segments
}

// SealTraces moves every trace whose last entry is terminal and older than before into
// sealed segments. Reads of such a trace then come from its segment; its ledger record,
// its leaves in the global order and a tombstone stay, so its key is never free again
// and its id never used again.
//
// If many bodies of a segment of the log are then no longer needed, the segment is rewritten
// without them: in the background, or, if Options.RewriteShare is negative, before SealTraces
// returns.
//
// The entries are removed only after segment and tombstones are durable, in a commit of their
// own. What it removes is read before the first commit, so only a failed commit, which poisons the
// store, can come between the two. A crash between them leaves both copies, which agree; Open then
// removes the entries.
func (db *DB) SealTraces(ctx context.Context, before tga.Millis) (Sealed, error) {
	if err := db.health.enter(); err != nil {
		return Sealed{}, err
	}
	defer db.health.leave()
	if err := db.writable(); err != nil {
		return Sealed{}, err
	}
	return db.sealer.seal(ctx, before)
}

// sealer moves traces into archive segments, which are files of their own.
//
// Only one archiving runs at a time, and it holds turn. It holds the lock of each trace of a
// segment from when it reads the trace until the removal of its entries is durable. It takes only
// traces whose lease nobody holds.
type sealer struct {
	index     *index
	traces    *traces
	leases    *leases
	commits   *committer
	rewriting *rewriting
	logger    *slog.Logger
	turn      chan struct{} // full while traces are archived
}

// seal is [DB.SealTraces] of a writable store.
func (a *sealer) seal(ctx context.Context, before tga.Millis) (done Sealed, err error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return done, ctx.Err()
	}
	if err := a.finish(); err != nil { // the row that names an unfinished segment has room for one
		return done, err
	}
	next, _ := keyspace.Bounds(keyspace.Entry)
	for next != nil {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		ids, rest, err := a.index.traceIDs(keyspace.Entry, next, sealTraces)
		if err != nil {
			return done, err
		}
		next = rest
		for len(ids) > 0 {
			n, err := a.one(ctx, ids, before, &done)
			if err != nil {
				return done, err
			}
			ids = ids[n:]
		}
	}
	if a.rewriting.share < 0 {
		err = a.rewriting.shrink(ctx)
	} else {
		a.rewriting.recount()
	}
	return done, errors.Join(err, a.rewriting.sweep(ctx, nil))
}

// traceIDs returns up to limit distinct ids of traces that have a key of a kind, starting at the
// key from, and the key at which to continue, nil at the end.
func (r *reading) traceIDs(kind keyspace.Kind, from []byte, limit int) (ids []tga.ID, next []byte, err error) {
	_, upper := keyspace.Bounds(kind)
	for len(ids) < limit {
		key, err := r.first(from, upper)
		if err != nil || key == nil {
			return ids, nil, err
		}
		if len(key) < 17 {
			return ids, nil, keyspace.Check(key)
		}
		id := tga.ID(key[1:17])
		ids = append(ids, id)
		// All keys of these kinds start with kind and id, so the keys of the next trace
		// follow after every key with that prefix.
		from = append(slices.Clone(key[:17]), bytes.Repeat([]byte{0xff}, 16)...)
	}
	return ids, from, nil
}

// sealing is an archive segment that is being written.
type sealing struct {
	found  []segment.Trace // finished and old enough; locked
	bytes  int             // of their canonical bytes and documents
	buf    bytes.Buffer
	w      *segment.Writer
	traces []tga.ID // the found traces that are in the segment
	heads  []chain.Head
}

// one seals as many of ids, in order, as fit in one segment and returns how many
// it looked at.
func (a *sealer) one(ctx context.Context, ids []tga.ID, before tga.Millis, done *Sealed) (looked int, err error) {
	s := &sealing{}
	if s.w, err = segment.NewWriter(&s.buf, a.index.keys); err != nil {
		return 0, err
	}
	defer func() {
		for i := range s.found {
			a.traces.unlock(s.found[i].ID)
		}
	}()
	for _, id := range ids {
		if looked > 0 && s.bytes >= sealBytes {
			break
		}
		looked++
		// Keep the lock until the tombstone is durable: a note that is appended before that
		// would be lost with the entries.
		if err := a.traces.lock(ctx, id); err != nil {
			return looked, err
		}
		took, err := a.find(s, id, before)
		if !took {
			a.traces.unlock(id)
		}
		if err != nil {
			return looked, err
		}
	}
	// A timer announces a later event, such as a new attempt, that is written to its trace.
	// The traces are locked now, so none of them can get a timer after this look.
	timed, err := a.index.timed()
	if err != nil {
		return looked, err
	}
	if err := a.index.named(chain.AttachApproval, timed); err != nil { // so does a question to people
		return looked, err
	}
	for i := range s.found {
		if !timed[s.found[i].ID] {
			if err := a.add(s, &s.found[i]); err != nil {
				return looked, err
			}
		}
	}
	if len(s.traces) == 0 {
		return looked, nil
	}
	if err := a.commit(s); err != nil {
		return looked, err
	}
	done.Segments++
	done.Traces += len(s.traces)
	done.Bytes += int64(s.buf.Len())
	return looked, nil
}

// timed returns the traces that have a timer.
func (r *reading) timed() (map[tga.ID]bool, error) {
	timed := map[tga.ID]bool{}
	return timed, r.named(chain.AttachTimer, timed)
}

// named adds the traces that have an attachment of a kind whose keys end with the trace.
func (r *reading) named(kind chain.AttachmentKind, in map[tga.ID]bool) error {
	lower, upper, err := keyspace.AttachmentBounds(keyspace.Kind(kind), nil)
	if err != nil {
		return err
	}
	return r.scanRows(lower, upper, func(key, _ []byte) error {
		if len(key) >= 16 {
			in[tga.ID(key[len(key)-16:])] = true
		}
		return nil
	})
}

// find adds a trace to s.found if it is finished and old enough. A trace that fails a check stays
// where it is, and Check reports it.
func (a *sealer) find(s *sealing, id tga.ID, before tga.Millis) (took bool, err error) {
	if a.leases.holds(id) {
		return false, nil
	}
	rows, err := a.index.rows(id)
	if err != nil {
		return false, a.unsealable(id, err)
	}
	if rows.archived != nil || len(rows.entries) == 0 {
		return false, nil
	}
	t, err := rows.decode()
	if err != nil {
		return false, a.unsealable(id, err)
	}
	last := t.Entries[len(t.Entries)-1]
	if !last.To.Terminal() || last.TS >= before {
		return false, nil
	}
	s.found = append(s.found, *t)
	for _, e := range t.Entries {
		if e.Artifact != nil {
			s.bytes += len(e.Artifact.Canonical)
		}
		for _, d := range e.Documents {
			s.bytes += len(d.Data)
		}
	}
	return true, nil
}

// add adds a trace to the segment.
func (a *sealer) add(s *sealing, t *segment.Trace) error {
	if err := s.w.Add(t); err != nil {
		return a.unsealable(t.ID, err)
	}
	last := t.Entries[len(t.Entries)-1]
	s.traces = append(s.traces, t.ID)
	s.heads = append(s.heads, chain.Head{Seq: last.Seq, Digest: last.Digest, State: last.To})
	return nil
}

func (a *sealer) unsealable(id tga.ID, err error) error {
	if tga.CodeOf(err) == tga.StoreUnavailable {
		return err
	}
	a.logger.Error("trace is not archived", "trace", id, "error", err)
	return nil
}

// commit writes the segment with its tombstones, checks what it wrote, and then
// removes the traces' own keys.
func (a *sealer) commit(s *sealing) error {
	if _, err := s.w.Close(); err != nil {
		return err
	}
	value := s.buf.Bytes()
	if report, err := segment.Verify(bytes.NewReader(value), int64(len(value)), a.index.keys); err != nil {
		return tga.Errorf(tga.GenericStateError, "a segment of %d traces does not verify before it is written: %w", len(s.traces), err)
	} else if report.Traces != len(s.traces) {
		return tga.Errorf(tga.GenericStateError, "a segment of %d traces verifies as one of %d", len(s.traces), report.Traces)
	}
	own, err := a.own(s.traces)
	if err != nil {
		return err
	}
	lower, upper := keyspace.SegmentBounds()
	n := uint64(1)
	if err := a.index.scanRows(lower, upper, func(key, _ []byte) error {
		last, err := keyspace.ParseSegment(key)
		n = last + 1
		return err
	}); err != nil {
		return err
	}
	w := a.commits.newWriter()
	w.file(keyspace.AppendSegment(nil, n), value)
	w.set(keyspace.AppendMeta(nil, metaSealing), binary.BigEndian.AppendUint64(nil, n))
	for i, id := range s.traces {
		t := tombstone{First: 1, Last: s.heads[i].Seq, Head: s.heads[i].Digest, Segment: n}
		w.set(keyspace.AppendTombstone(nil, id), t.appendValue(nil))
	}
	if err := a.commits.apply(w); err != nil {
		return err
	}
	return a.remove(own)
}

// ownKeys are the keys of a trace in the store itself.
type ownKeys struct {
	id              tga.ID
	entries, others [][]byte
}

// own reads the keys of traces. Their locks are held.
func (a *sealer) own(ids []tga.ID) (all []ownKeys, err error) {
	for _, id := range ids {
		k := ownKeys{id: id}
		for _, x := range []struct {
			bounds func(tga.ID) (lower, upper []byte)
			keys   *[][]byte
		}{
			{keyspace.EntryBounds, &k.entries},
			{keyspace.TraceChunkBounds, &k.others}, {keyspace.NoteBounds, &k.others}, {keyspace.CheckpointBounds, &k.others},
		} {
			lower, upper := x.bounds(id)
			if err := a.index.scanRows(lower, upper, func(key, _ []byte) error {
				*x.keys = append(*x.keys, slices.Clone(key))
				return nil
			}); err != nil {
				return nil, err
			}
		}
		all = append(all, k)
	}
	return all, nil
}

// removeBytes is roughly the size in bytes of a record that removes keys of archived traces.
const removeBytes = 512 << 10

// remove removes the keys of traces whose segment is durable. It removes all entries first, in one
// record: from then on reads use the segment. The other keys may take many records.
func (a *sealer) remove(own []ownKeys) error {
	w := a.commits.newWriter()
	for _, k := range own {
		for _, key := range k.entries {
			w.delete(key)
		}
	}
	if err := a.commits.apply(w); err != nil {
		return err
	}
	w = a.commits.newWriter()
	for _, k := range own {
		for _, key := range k.others {
			w.delete(key)
		}
		if w.ops.Len() > removeBytes {
			if err := a.commits.apply(w); err != nil {
				return err
			}
			w = a.commits.newWriter()
		}
		a.traces.cache.drop(k.id)
	}
	w.delete(keyspace.AppendMeta(nil, metaSealing))
	return a.commits.apply(w)
}

// finish completes a [DB.SealTraces] that a crash interrupted: at open, or, if the segment could not be read
// then, before traces are archived again.
func (a *sealer) finish() error {
	n, err := a.index.metaNumber(metaSealing)
	if err != nil || n == 0 {
		return err
	}
	var ids []tga.ID
	if err := a.index.inSegment(n, func(r *segment.Reader) error {
		for info := range r.Index() {
			ids = append(ids, info.TraceID)
		}
		return nil
	}); err != nil {
		return err
	}
	own, err := a.own(ids)
	if err != nil {
		return err
	}
	return a.remove(own)
}
