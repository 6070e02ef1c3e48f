package wal

import (
	"bytes"
	"cmp"
	"errors"
	"hash/crc32"
)

// Record is one record as it was read back.
type Record struct {
	At    Position
	Times Times
	First uint64 // index of the first append in the global order
	head  header
	id    *Identity
	buf   []byte // header and operations
}

// Ops calls fn for each operation of the record, in order. An error of fn ends Ops and is
// returned.
func (r *Record) Ops(fn func(*Op) error) error {
	ok, err := decodeOps(r.ops(), &r.head, r.At.Segment, r.At.Start, fn)
	if err != nil {
		return err
	}
	if !ok {
		return damaged("segment %d offset %d: the operations of the record do not fill it", r.At.Segment, r.At.Start)
	}
	return nil
}

func (r *Record) ops() []byte { return r.buf[headerLen : headerLen+int(r.head.opsLen)] }

// window reads a file forward in large pieces.
type window struct {
	f    readerAt
	size uint32 // of the file
	step uint32 // how much is read at a time, 0 = windowSize
	at   uint32 // of buf
	buf  []byte
}

type readerAt interface {
	ReadAt(p []byte, off int64) (int, error)
}

// How much a window reads at a time: of a whole log, and to find a few records.
const (
	windowSize = 256 << 10
	glanceSize = 16 << 10
)

// bytes returns n bytes at offset, which are valid until the next call. It returns nil if the
// file ends before them.
func (w *window) bytes(offset, n uint32) ([]byte, error) {
	if uint64(offset)+uint64(n) > uint64(w.size) {
		return nil, nil
	}
	if offset < w.at || offset+n > w.at+uint32(len(w.buf)) {
		want := min(max(n, cmp.Or(w.step, windowSize)), w.size-offset)
		if cap(w.buf) < int(want) {
			w.buf = make([]byte, want)
		}
		w.buf, w.at = w.buf[:want], offset
		err := readFull(w.f, w.buf, int64(offset))
		if errors.Is(err, errUnread) { // perhaps of bytes that nobody asked for: a bad sector must not keep what is before it from being read
			w.buf = w.buf[:n]
			err = readFull(w.f, w.buf, int64(offset))
		}
		if err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	i := offset - w.at
	return w.buf[i : i+n : i+n], nil
}

// record reads the record at an offset that must follow prev. It returns nil if the header or
// the operations of such a record are not there whole. It does not check bodies: see
// [window.whole].
func (w *window) record(id *Identity, at uint32, prev Position) (*Record, error) {
	b, err := w.bytes(at, headerLen)
	if b == nil {
		return nil, err
	}
	h, ok := readHeader(b, id, at)
	if !ok || h.group != prev.Group+1 || h.prev != prev.Sum || h.opsLen > MaxRecord || h.bodiesLen > MaxRecord || h.size() > w.size-at {
		return nil, nil
	}
	b, err = w.bytes(at, h.bodies())
	if b == nil {
		return nil, err
	}
	if crc32.Checksum(b[headerLen:headerLen+h.opsLen], castagnoli) != h.opsSum {
		return nil, nil
	}
	return &Record{
		At:    Position{Segment: id.Number, Start: at, End: at + h.size(), Group: h.group, Sum: h.checksum},
		Times: Times{h.committed, h.ts}, First: h.first, head: h, id: id, buf: b,
	}, nil
}

// later looks for a header of this use of the file, from offset on. If there is one, a group
// was begun after the group that should be at offset, so that group had been acknowledged.
// later reads each byte once and follows no length that it reads, so no content of the file
// can make it slow.
func (w *window) later(id *Identity, offset uint32) (at uint32, found bool, err error) {
	for at = aligned(offset); ; {
		b, err := w.bytes(at, headerLen)
		if b == nil {
			return 0, false, err
		}
		// The fifth byte is the same in every header. Skip to the next such byte: most of
		// what is skipped is zeros.
		ahead := w.buf[at-w.at+4:]
		skip := bytes.IndexByte(ahead, recordMagic)
		if skip < 0 {
			at = aligned(at + uint32(len(ahead)))
			continue
		}
		if skip%align != 0 {
			at = aligned(at + uint32(skip))
			continue
		}
		at += uint32(skip)
		if b, err = w.bytes(at, headerLen); b == nil {
			return 0, false, err
		}
		if _, ok := readHeader(b, id, at); ok {
			return at, true, nil
		}
		at += align
	}
}
