package wal

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Tail is the end of a log as a scan found it.
type Tail struct {
	At    Position // end of the last whole record
	Next  uint64   // index of the next append
	Times Times
	Clean bool // the last record is that of [Log.Finish]
	// Torn says that a group follows which was never whole. It was never acknowledged.
	Torn bool
	// Doubt says which acknowledged records are missing or damaged. Nil means that none are,
	// as far as the log can tell by itself.
	Doubt *tga.Error
}

// Scan calls fn for each record after a position, in order, and finds the end of the log. The
// zero Position is before the first record. Scan passes a record to fn once it is certain that
// the record is whole. The record is valid until fn returns. An error of fn ends the scan and
// is returned.
//
// STATE_CHECKSUM_MISMATCH: no record of the log ends at from. Then fn was not called, and from
// is a position of another log, or of this log when it was longer.
func (l *Log) Scan(from Position, fn func(*Record) error) (Tail, error) {
	l.mu.Lock()
	s := scan{l: l, segments: slices.Clone(l.segments), fn: fn, prev: from, tail: Tail{Next: 1, Doubt: l.doubt}}
	l.mu.Unlock()
	return s.run()
}

// Audit reads the whole log again, up to the record that is the newest durable one now, and
// calls fn for each record. Appends may go on meanwhile. If an earlier record is missing, the
// tail's Doubt says so. If the newest one is missing, only the tail's At tells.
func (l *Log) Audit(fn func(*Record) error) (Tail, error) {
	l.mu.Lock()
	s := scan{l: l, segments: slices.Clone(l.segments), until: l.durable, fn: fn, tail: Tail{Next: 1, Doubt: l.doubt}}
	l.mu.Unlock()
	return s.run()
}

// Walk reads the log from the record at a position, that record included, up to the record
// that is the newest durable one now, and calls fn for each. It reads less at a time than
// [Log.Audit], for callers that need only a few records.
func (l *Log) Walk(from Position, fn func(*Record) error) error {
	l.mu.Lock()
	s := scan{l: l, segments: slices.Clone(l.segments), until: l.durable, fn: fn, prev: from, also: true, tail: Tail{Next: 1}}
	l.mu.Unlock()
	_, err := s.run()
	return err
}

func (s *scan) run() (Tail, error) {
	i, err := s.begin(s.prev)
	for more := s.until == (Position{}) || s.prev != s.until; more && err == nil; i++ {
		more, err = s.segment(i)
	}
	return s.tail, err
}

// scan is a walk along the chain of records.
type scan struct {
	l        *Log
	segments []*segment
	until    Position // the end, if it is known; zero: the scan finds it
	fn       func(*Record) error
	also     bool // see [Log.Walk]
	tail     Tail
	prev     Position // of the newest record read
	// held is that record until it is proven whole. The record after it proves that. For the
	// last record the scan checks the bodies instead.
	held *Record
}

// begin returns the place of the segment to begin with. It reads the record that ends at
// from. With s.also it passes the record to fn, otherwise it takes it as passed already.
func (s *scan) begin(from Position) (int, error) {
	if from == (Position{}) {
		return 0, nil
	}
	i := slices.IndexFunc(s.segments, func(seg *segment) bool { return seg.id.Number == from.Segment })
	if i < 0 {
		return 0, damaged("there is no segment %d", from.Segment)
	}
	id := &s.segments[i].id
	return i, s.in(i, func(w *window) error {
		b, err := w.bytes(from.Start, headerLen)
		if err != nil {
			return err
		}
		var r *Record
		if h, ok := readHeader(b, id, from.Start); ok {
			if r, err = w.record(id, from.Start, Position{Group: h.group - 1, Sum: h.prev}); err != nil {
				return err
			}
		}
		if r == nil || r.At != from {
			return damaged("segment %d has no group %d that ends at %d", from.Segment, from.Group, from.End)
		}
		if s.also {
			if err := s.fn(r); err != nil {
				return err
			}
		}
		return s.arrived(r)
	})
}

func (s *scan) in(i int, fn func(*window) error) error {
	seg := s.segments[i]
	return s.l.handles.with(seg.id.Number, func(h *handle) error {
		w := &window{f: h, size: seg.size}
		if s.also {
			w.step = glanceSize
		}
		return fn(w)
	})
}

// segment reads the records of the i-th segment; more says that the log continues in the next.
func (s *scan) segment(i int) (more bool, err error) {
	seg := s.segments[i]
	at, stop := uint32(identityLen), endOf(s.segments, i)
	if s.prev.Segment == seg.id.Number {
		at = s.prev.End
	}
	more = stop != 0
	err = s.in(i, func(w *window) error {
		for at != stop {
			r, err := w.record(&seg.id, at, s.prev)
			if err != nil {
				return err
			}
			if r == nil || stop != 0 && r.At.End > stop {
				more = false
				return s.ended(i, w, at, stop)
			}
			if err := s.pass(r); err != nil {
				return err
			}
			if at = r.At.End; r.At == s.until {
				more = false
				return s.deliver()
			}
		}
		return nil
	})
	return more, err
}

// endOf returns where the records of the i-th segment end, as the link of the next segment
// says. It returns 0 if there is no such link: the segment is the newest with records.
func endOf(segments []*segment, i int) uint32 {
	if i+1 == len(segments) {
		return 0
	}
	if next := segments[i+1]; next.link != nil && next.id.Number == segments[i].id.Number+1 {
		return next.link.end
	}
	return 0
}

// pass holds r. As r proves that the record before it is whole, that record goes to the caller.
func (s *scan) pass(r *Record) error {
	if s.held != nil {
		if err := s.deliver(); err != nil {
			return err
		}
	}
	held := *r
	held.buf = slices.Clone(r.buf) // the window moves on
	s.held, s.prev = &held, r.At
	return nil
}

func (s *scan) deliver() error {
	r := s.held
	s.held = nil
	if err := s.fn(r); err != nil {
		return err
	}
	return s.arrived(r)
}

// arrived sets the tail to r, which the caller of the scan has now.
func (s *scan) arrived(r *Record) error {
	s.prev, s.tail.At, s.tail.Next, s.tail.Times, s.tail.Clean = r.At, r.At, r.First, r.Times, false
	return r.Ops(func(op *Op) error {
		switch op.Kind {
		case Order:
			s.tail.Next++
		case closedOp:
			s.tail.Clean = true
		}
		return nil
	})
}

// ended is called where the i-th segment has no next record at offset at. It finds out
// whether that is the end of the log or a hole in it.
func (s *scan) ended(i int, w *window, at, stop uint32) error {
	if stop != 0 {
		s.doubt(damaged("segment %d: no group %d at offset %d", s.segments[i].id.Number, s.prev.Group+1, at))
	}
	if s.held != nil {
		// A packed segment was read back when it was made, and some of its bodies may be gone on purpose.
		whole, err := s.l.handles.generation(s.segments[i].id.Number) > 0, error(nil)
		if !whole {
			whole, err = w.whole(s.held)
		}
		if err != nil {
			return err
		}
		if s.tail.Torn = !whole; whole {
			err = s.deliver()
		}
		if err != nil {
			return err
		}
	}
	if stop != 0 {
		return nil
	}
	return s.later(i, w, at)
}

// whole reports whether the bodies of a record are those that its operations name.
func (w *window) whole(r *Record) (bool, error) {
	whole := true
	err := r.Ops(func(op *Op) error {
		if op.Place != Inline {
			return nil
		}
		b, err := w.bytes(op.Ref.Offset, op.Ref.Length)
		whole = whole && err == nil && BodySum(op.Key, b) == op.Ref.Sum
		return err
	})
	return whole, err
}

// later looks for records behind the end, in this segment and in those after it. If there are
// any, acknowledged records are missing.
func (s *scan) later(i int, w *window, at uint32) error {
	seg := s.segments[i]
	at, err := s.begun(w, &seg.id, at)
	if err != nil {
		return err
	}
	where, found, err := w.later(&seg.id, at)
	for j := i + 1; j < len(s.segments) && err == nil && !found; j++ {
		seg = s.segments[j]
		err = s.in(j, func(w *window) error {
			at, err := s.begun(w, &seg.id, identityLen)
			if err == nil {
				where, found, err = w.later(&seg.id, at)
			}
			return err
		})
	}
	if found {
		s.doubt(damaged("group %d is missing: there is a later one in segment %d at offset %d", s.tail.At.Group+1, seg.id.Number, where))
	}
	return err
}

// begun looks at an offset for the header of the group that was being written when the log
// ended. If that header is there, begun sets Torn and returns the offset behind it. The offset
// is right behind the end, or at the beginning of a next segment, if the group was its first
// record. If the last record's bodies are not whole (Torn is set already), a header here is
// that of a later group: it was written after the last record was synced, so data is missing.
func (s *scan) begun(w *window, id *Identity, at uint32) (uint32, error) {
	b, err := w.bytes(at, headerLen)
	if err != nil {
		return at, err
	}
	if h, ok := readHeader(b, id, at); ok && !s.tail.Torn && h.group == s.prev.Group+1 && h.prev == s.prev.Sum {
		s.tail.Torn = true
		at += align
	}
	return at, nil
}

func (s *scan) doubt(err *tga.Error) {
	if s.tail.Doubt == nil {
		s.tail.Doubt = err
	}
}
