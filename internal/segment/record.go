package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Trace is a whole trace, as a segment holds it.
type Trace struct {
	ID      tga.ID
	Entries []chain.Entry
	Notes   []Note
}

// Note is a note with the store's record of its commit, which no digest covers.
type Note struct {
	tga.Note
	Committed tga.Millis
	Epoch     chain.Epoch
}

// Replay folds the trace's entries and notes; see [chain.Replay].
func (t *Trace) Replay() (*chain.Trace, error) {
	return chain.Replay(t.ID, func(yield func(chain.Entry, error) bool) {
		for _, e := range t.Entries {
			if !yield(e, nil) {
				return
			}
		}
	}, func(yield func(tga.Note, error) bool) {
		for _, n := range t.Notes {
			if !yield(n.Note, nil) {
				return
			}
		}
	})
}

// info returns what the footer must say about the trace, from its replay.
func (t *Trace) info(replayed *chain.Trace, block int) Info {
	return Info{
		TraceID: t.ID, Block: uint32(block), Notes: replayed.NoteHead.Number,
		First: t.Entries[0].Seq, Last: replayed.Head.Seq,
		HeadDigest: replayed.Head.Digest, NoteDigest: replayed.NoteHead.Digest,
	}
}

// append appends the record of the trace. It seals an entry that has a key under that key again.
func (t *Trace) append(dst []byte, keys chain.Keys) ([]byte, error) {
	dst = append(dst, t.ID[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.Entries)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.Notes)))
	for i := range t.Entries {
		frame, spill, err := chain.AppendSealedFrame(nil, &t.Entries[i], keys)
		if err != nil {
			return nil, err
		}
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(frame)))
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(spill)))
		dst = append(dst, frame...)
		dst = append(dst, spill...)
	}
	for i := range t.Notes {
		n := &t.Notes[i]
		frame := chain.AppendNoteFrame(nil, &n.Note, n.Committed, n.Epoch)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(frame)))
		dst = append(dst, frame...)
	}
	return dst, nil
}

// recordReader reads trace records from a decompressed block, one trace in memory at a
// time.
type recordReader struct {
	r    io.Reader
	keys chain.Keys // open sealed entries; may be nil
	room int64      // bytes the current trace may still take
}

// next reads and replays one trace. Errors of the bytes name trace and seq.
func (rr *recordReader) next() (Trace, *chain.Trace, error) {
	rr.room = MaxTrace
	head, err := rr.read(recordLen)
	if err != nil {
		return Trace{}, nil, err
	}
	t := Trace{ID: tga.ID(head[:16])}
	entries, notes := binary.BigEndian.Uint32(head[16:]), binary.BigEndian.Uint32(head[20:])
	if entries == 0 {
		return Trace{}, nil, fault("record of trace %s: no entry", t.ID).In(t.ID)
	}
	// Each entry and note is read before anything is allocated for it. A false count makes
	// a read fail; it does not cause an allocation.
	for range entries {
		if err := rr.entry(&t); err != nil {
			return Trace{}, nil, named(err, t.ID, uint64(len(t.Entries))+1, 0)
		}
	}
	for range notes {
		if err := rr.note(&t); err != nil {
			return Trace{}, nil, named(err, t.ID, 0, uint32(len(t.Notes))+1)
		}
	}
	replayed, err := t.Replay()
	if err != nil {
		return Trace{}, nil, err
	}
	if !replayed.Head.State.Terminal() {
		err := fault("record of trace %s: it ends in %s", t.ID, replayed.Head.State).In(t.ID)
		err.Seq = replayed.Head.Seq
		return Trace{}, nil, err
	}
	return t, replayed, nil
}

func (rr *recordReader) entry(t *Trace) error {
	head, err := rr.read(entryHeadLen)
	if err != nil {
		return err
	}
	frame, err := rr.read(uint64(binary.BigEndian.Uint32(head)))
	if err != nil {
		return err
	}
	spill, err := rr.read(binary.BigEndian.Uint64(head[4:]))
	if err != nil {
		return err
	}
	used := len(spill) == 0
	e, err := chain.DecodeSealedFrame(frame, rr.keys, func(size int64) ([]byte, error) {
		used = true
		return spill, nil
	})
	if err != nil {
		return err
	}
	if !used {
		return fault("record: %d spilled bytes that the frame does not name", len(spill))
	}
	t.Entries = append(t.Entries, e)
	return nil
}

func (rr *recordReader) note(t *Trace) error {
	head, err := rr.read(noteHeadLen)
	if err != nil {
		return err
	}
	frame, err := rr.read(uint64(binary.BigEndian.Uint32(head)))
	if err != nil {
		return err
	}
	var n Note
	if n.Note, n.Committed, n.Epoch, err = chain.DecodeNoteFrame(frame); err != nil {
		return err
	}
	t.Notes = append(t.Notes, n)
	return nil
}

// read returns the next n bytes. Memory grows with the bytes that come, not with n.
func (rr *recordReader) read(n uint64) ([]byte, error) {
	if n > uint64(rr.room) {
		return nil, fault("record: trace over %d bytes", int64(MaxTrace))
	}
	rr.room -= int64(n)
	var b bytes.Buffer
	b.Grow(int(min(n, 64<<10)))
	if _, err := io.CopyN(&b, rr.r, int64(n)); err != nil {
		return nil, fault("record: %d of %d bytes: %w", b.Len(), n, noEOF(err))
	}
	return b.Bytes(), nil
}

// noEOF keeps an end of input inside something from being taken for its end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// named gives an error that names no trace the trace and place it is about.
func named(err error, trace tga.ID, seq uint64, note uint32) error {
	var e *tga.Error
	if !errors.As(err, &e) {
		return err
	}
	at := *e
	at.TraceID, at.Seq, at.Note = trace, seq, note
	place := "entry"
	n := seq
	if note != 0 {
		place, n = "note", uint64(note)
	}
	at.Message = tga.Errorf(at.Code, "trace %s %s %d: %s", trace, place, n, e.Message).Message
	at.Err = err
	return &at
}
