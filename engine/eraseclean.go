package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// without writes an archive segment again without the traces ids. If no trace is left, it deletes
// the segment.
func (a *eraser) without(w *writer, n uint64, ids []tga.ID) error {
	key := keyspace.AppendSegment(nil, n)
	var b bytes.Buffer
	sw, err := segment.NewWriter(&b, a.index.keys)
	if err != nil {
		return err
	}
	left := 0
	err = a.index.inSegment(n, func(r *segment.Reader) error {
		for t, err := range r.Traces() {
			if err == nil && !slices.Contains(ids, t.ID) {
				left++
				err = sw.Add(&t)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		_, err = sw.Close()
	}
	switch {
	case err != nil:
		return tga.Errorf(tga.CodeOf(err), "erase: archive segment %d: %w", n, err)
	case left == 0:
		w.delete(key)
		return nil
	}
	if report, err := segment.Verify(bytes.NewReader(b.Bytes()), int64(b.Len()), a.index.keys); err != nil {
		return tga.Errorf(tga.GenericStateError, "erase: archive segment %d does not verify before it is written anew: %w", n, err)
	} else if report.Traces != left {
		return tga.Errorf(tga.GenericStateError, "erase: archive segment %d has %d traces, and verifies as one of %d", n, left, report.Traces)
	}
	w.file(key, b.Bytes())
	return nil
}

// clean rewrites each segment of the log that still has an erased body, and removes the files of such
// bodies, and files that an earlier rewrite could not remove.
func (a *eraser) clean(ctx context.Context, m *erasing) error {
	of, other := map[tga.ID]bool{}, map[string]bool{}
	stream := map[tga.ID]bool{}
	for _, id := range m.Emptied {
		stream[id] = true
	}
	for _, id := range m.Traces {
		of[id] = true
		rows, err := a.index.rows(id)
		if err != nil {
			return err
		}
		t, err := rows.decode()
		if err != nil {
			return recoveryFailed(id, err)
		}
		for _, key := range a.beside(id, t.Notes) {
			other[string(key)] = true
		}
	}
	if err := a.log.Wipe(true); err != nil {
		return err
	}
	if err := a.remember(*m, true); err != nil { // now the segment that was being written can be rewritten
		return err
	}
	err := a.rewriteAll(ctx, func(op *wal.Op) (bool, error) {
		if !other[string(op.Key)] && !of[idOf(op.Key, keyspace.Entry, keyspace.Chunk)] && !stream[idOf(op.Key, keyspace.Stream)] && !m.besides(op.Key) {
			return false, nil
		}
		row, err := a.index.row(op.Key)
		if err != nil || row == nil {
			return row == nil, err
		}
		at, err := decodeRow(row)
		return !at.names(op), err
	})
	if err != nil && !errors.Is(err, errStands) {
		return err
	}
	unread, serr := a.rewriting.sweepAll(ctx, nil)
	if serr != nil {
		return errors.Join(err, serr)
	}
	if unread > 0 {
		err = errors.Join(err, damaged("erase: %d files of the log cannot be read: %w", unread, errStands))
	}
	return errors.Join(err, a.log.Wipe(false))
}

// idOf returns the id at the beginning of a key of one of the kinds, the zero id for another key.
func idOf(key []byte, kinds ...keyspace.Kind) (id tga.ID) {
	if kind, ok := keyspace.KindOf(key); ok && len(key) >= 17 && slices.Contains(kinds, kind) {
		id = tga.ID(key[1:17])
	}
	return id
}

// rewriteAll rewrites each segment of the log that has a body for which f is true, and each segment
// that was never rewritten: after its last record it may have bytes of a group that a crash cut off
// before it was acknowledged. A segment that is damaged or cannot be read stays as it is, and the error says so.
func (a *eraser) rewriteAll(ctx context.Context, f func(*wal.Op) (bool, error)) (stands error) {
	for _, seg := range a.log.Full() {
		holds, err := a.log.Retains(ctx, seg.Number, f)
		if tga.CodeOf(err) == tga.StateChecksumMismatch {
			stands = damagedSegment(seg.Number)
			continue
		}
		if err != nil {
			return err
		}
		if !holds && seg.Generation > 0 {
			continue
		}
		if err := a.rewriting.roomToRewrite(seg.Records); err != nil {
			return err
		}
		if err := a.rewriting.rewrite(ctx, seg.Number, nil); err != nil {
			return err
		}
		if _, damaged := a.rewriting.damaged.Load(seg.Number); damaged {
			stands = damagedSegment(seg.Number)
		}
	}
	return stands
}

// errStands says that the erasure is complete except for a file of the log that is damaged or cannot be read.
var errStands = errors.New("it may still contain erased data. Repair the store (tgad verify), then erase again")

func damagedSegment(n uint64) error {
	return damaged("erase: segment %d of the log is damaged, or the disk cannot read it: %w", n, errStands)
}
