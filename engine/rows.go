package engine

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// rows has the undecoded data of a trace: its entry and note frames, or, if the trace is
// archived, its record in the segment.
type rows struct {
	from           *reading
	id             tga.ID
	entries, notes []kv
	archived       *segment.Trace
	segment        uint64
	spilled        func(seq uint64) // called for each entry that has chunks; may be nil
}

// rows reads the frames of a trace. Between the commit of an archive segment and the removal of
// the entries the store has both; then rows uses the entries.
func (r *reading) rows(id tga.ID) (rows, error) {
	out := rows{from: r, id: id}
	defer r.log.Pin()()
	lower, upper := keyspace.EntryBounds(id)
	notesLower, notesUpper := keyspace.NoteBounds(id)
	err := r.health.guarded(func() error { // one iterator for both: making one costs more than a seek
		it, err := r.from.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return err
		}
		if out.entries, err = r.all(it); err == nil && len(out.entries) > 0 {
			it.SetBounds(notesLower, notesUpper)
			out.notes, err = r.all(it)
		}
		return errors.Join(err, it.Close())
	})
	if err != nil {
		return out, readError(err)
	}
	if len(out.entries) == 0 {
		out.archived, out.segment, err = r.archived(id)
	}
	return out, err
}

// all returns copies of the keys within an iterator's bounds, and their values.
func (r *reading) all(it *pebble.Iterator) (out []kv, err error) {
	for ok := it.First(); ok; ok = it.Next() {
		row, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		key := slices.Clone(it.Key())
		value, err := r.content(key, slices.Clone(row))
		if err != nil {
			return nil, err
		}
		out = append(out, kv{key, value})
	}
	return out, it.Error()
}

// decode returns the entries and then the notes in the order of their keys. It checks each frame,
// and checks that it lies under the right key. At the first error it returns what it has decoded.
func (rs rows) decode() (*segment.Trace, error) {
	if rs.archived != nil {
		return rs.archived, nil
	}
	t := &segment.Trace{ID: rs.id}
	for _, row := range rs.entries {
		e, err := rs.decodeEntry(row)
		if err != nil {
			return t, err
		}
		t.Entries = append(t.Entries, e)
	}
	for _, row := range rs.notes {
		n, err := decodeNote(row)
		if err != nil {
			return t, err
		}
		t.Notes = append(t.Notes, n)
	}
	return t, nil
}

func (rs rows) decodeEntry(row kv) (chain.Entry, error) {
	id, seq, err := keyspace.ParseEntry(row.key)
	if err != nil {
		return chain.Entry{}, err
	}
	e, err := chain.DecodeSealedFrame(row.value, rs.from.keys, func(size int64) ([]byte, error) {
		if rs.spilled != nil {
			rs.spilled(seq)
		}
		return rs.from.spill(id, seq, size)
	})
	if err == nil && (e.TraceID != id || e.Seq != seq) {
		err = damaged("entry %d of trace %s lies under the key of entry %d of trace %s", e.Seq, e.TraceID, seq, id).In(id)
	}
	return e, err
}

func decodeNote(row kv) (n segment.Note, err error) {
	id, number, err := keyspace.ParseNote(row.key)
	if err != nil {
		return n, err
	}
	if n.Note, n.Committed, n.Epoch, err = chain.DecodeNoteFrame(row.value); err != nil {
		return n, err
	}
	if n.TraceID != id || n.Number != number {
		return n, damaged("note %d of trace %s lies under the key of note %d of trace %s", n.Number, n.TraceID, number, id).In(id)
	}
	return n, nil
}

// spill reads the part of an entry that is stored outside its frame, as a chunk.
func (r *reading) spill(id tga.ID, seq uint64, size int64) ([]byte, error) {
	out, err := r.get(keyspace.AppendChunk(nil, id, seq, 0))
	if err == nil && int64(len(out)) != size {
		err = damaged("beside entry %d of trace %s lie %d bytes, not %d", seq, id, len(out), size).In(id)
	}
	return out, err
}
