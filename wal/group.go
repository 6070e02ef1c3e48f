package wal

import (
	"hash/crc32"

	"github.com/tgad/tgad/schemas/tga"
)

// Position is the end of a record: where the next record goes, and the group and checksum
// that the next record must follow. The zero Position is before the first record.
type Position struct {
	Segment uint64
	Start   uint32 // of the record
	End     uint32
	Group   uint64
	Sum     uint32 // the record's checksum
}

// landmarks is the distance between two landmarks, in bytes: see [Position.Landmark].
const landmarks = 64 << 10

// Landmark reports whether the record at p is a landmark: a record from which a reader walks
// on to find others. A landmark crosses a multiple of 64 KiB of its segment, or begins at one.
// The first record of a segment, which the log makes by itself, is no landmark.
func (p Position) Landmark() bool {
	return p.Start%landmarks == 0 || p.Start/landmarks != (p.End-1)/landmarks
}

// Times are the newest times of a store, which every record repeats.
type Times struct {
	Committed tga.Millis // of any append
	TS        tga.Millis // of any entry or note
}

// Group is what one record holds: the operations of appends that become durable together.
// The zero value is empty.
type Group struct {
	Times  Times
	ops    []*Ops
	n      int
	orders int
	opsLen int
	bodies int
	buf    pages // of the file, with the record in them
	lead   int   // where it begins there
	head   header
	at     Position
}

// Reset empties g and keeps its memory.
func (g *Group) Reset() {
	clear(g.ops)
	*g = Group{ops: g.ops[:0], buf: g.buf[:0]}
}

// Len is the length of g's record, in bytes.
func (g *Group) Len() int {
	return headerLen + int(aligned(uint32(g.opsLen))) + int(aligned(uint32(g.bodies)))
}

// First returns the index, in the global order, of the first append of a group that was
// appended. If the group has no append, it returns the index of the next one.
func (g *Group) First() uint64 { return g.head.first }

// Next returns the index, in the global order, of the append that follows a group that was
// appended.
func (g *Group) Next() uint64 { return g.head.first + uint64(g.orders) }

// Add adds the operations of one append. The caller must not change them until the group was
// appended. Add returns false if g is not empty and has no room for them within limit bytes,
// which is at most [MaxRecord]. An empty group always has room: the caller checks the size of
// the operations before, see [Ops.Len]. Operations over MaxRecord panic.
func (g *Group) Add(o *Ops, limit int) bool {
	size := headerLen + align + align + g.opsLen + g.bodies + o.Len()
	if g.n > 0 && size > limit {
		return false
	}
	if size > MaxRecord {
		panic("log: an append that is longer than a record")
	}
	g.ops = append(g.ops, o)
	g.n += o.n
	g.orders += o.orders
	g.opsLen += len(o.ops)
	g.bodies += len(o.bodies)
	return true
}

// encode makes the record that follows prev, at an offset of the segment id. The result is
// whole pages: before the record are the bytes that its first page already has (before), and
// behind it zeros.
func (g *Group) encode(id *Identity, offset uint32, prev Position, first uint64, before []byte) {
	g.lead = len(before)
	g.buf = g.buf.room(g.lead + g.Len())
	copy(g.buf, before)
	b := g.buf[g.lead : g.lead+headerLen]
	for _, o := range g.ops {
		b = append(b, o.ops...)
	}
	sum := crc32.Checksum(b[headerLen:], castagnoli)
	b = pad(b)
	for _, o := range g.ops {
		b = append(b, o.bodies...)
	}
	clear(g.buf[g.lead+len(b):])
	g.head = header{
		group: prev.Group + 1, prev: prev.Sum, ops: uint32(g.n), first: first,
		committed: g.Times.Committed, ts: g.Times.TS,
		opsLen: uint32(g.opsLen), bodiesLen: uint32(g.bodies), opsSum: sum,
	}
	g.head.put(b[:headerLen], id, offset)
}

// record is g's record, once it is encoded.
func (g *Group) record() []byte { return g.buf[g.lead : g.lead+g.Len()] }

// pad appends zeros up to a multiple of align.
func pad(b []byte) []byte {
	var zeros [align]byte
	return append(b, zeros[:int(aligned(uint32(len(b))))-len(b)]...)
}

// Rows calls fn for each operation of a group that was appended, in order. The operation
// names the place where its body was written. An error of fn ends Rows and is returned.
func (g *Group) Rows(fn func(*Op) error) error {
	r := Record{At: g.at, head: g.head, buf: g.record()}
	return r.Ops(fn)
}
