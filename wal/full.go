package wal

import (
	"context"
	"slices"
)

// Segment is what [Log.Full] says of a segment.
type Segment struct {
	Number     uint64
	Generation uint32 // 0 = as it was written; the others are compressed
	Records    int64  // bytes up to the end of its records, with every body that it ever had
	Idle       int64  // bytes of its file behind them, which stay unused
}

// Full lists the segments that are no longer written to, in the order of their numbers.
func (l *Log) Full() (list []Segment) {
	l.mu.Lock()
	segments := slices.Clone(l.segments)
	l.mu.Unlock()
	for i, s := range segments {
		end := endOf(segments, i)
		if end == 0 {
			continue
		}
		f := Segment{Number: s.id.Number, Generation: l.handles.generation(s.id.Number), Records: int64(end)}
		if f.Generation == 0 {
			f.Idle = int64(s.size) - f.Records
		}
		list = append(list, f)
	}
	return list
}

// Stored is the length of a segment's file, and that of the bodies in it before compression,
// in bytes.
type Stored struct{ File, Bodies int64 }

// Pace is called between the small parts of a long piece of work. It may sleep, to leave the
// disk to others. Its error ends the work. A nil Pace means no pauses.
type Pace func(context.Context) error

func (p Pace) step(ctx context.Context) error {
	if p != nil {
		if err := p(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Stored returns what a segment of [Log.Full] takes on disk now. It has to read a raw segment
// to the end. STATE_CHECKSUM_MISMATCH: the segment is damaged, or the disk does not give it.
func (l *Log) Stored(ctx context.Context, number uint64, pace Pace) (out Stored, err error) {
	seg, end, err := l.rewritable(number)
	if err != nil {
		return out, err
	}
	err = l.handles.with(number, func(h *handle) error {
		out.File = h.length
		if h.packed != nil {
			out.Bodies = int64(h.packed.bodies)
			return nil
		}
		w := &window{f: h, size: end}
		return w.records(ctx, pace, seg, end, func(r *Record) error {
			out.Bodies += int64(r.head.bodiesLen)
			return nil
		})
	})
	return out, valueError(err)
}

// records calls fn for each record of a segment up to its end, in order. A missing record is
// STATE_CHECKSUM_MISMATCH.
func (w *window) records(ctx context.Context, pace Pace, seg *segment, end uint32, fn func(*Record) error) error {
	prev := Position{Group: seg.first.head.group - 1, Sum: seg.first.head.prev}
	for at := uint32(identityLen); at != end; at = prev.End {
		if err := pace.step(ctx); err != nil {
			return err
		}
		r, err := w.record(&seg.id, at, prev)
		if err != nil {
			return err
		}
		if r == nil {
			return damaged("segment %d: no group %d at offset %d", seg.id.Number, prev.Group+1, at)
		}
		prev = r.At
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}
