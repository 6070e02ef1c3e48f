package wal

import (
	"hash/crc32"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Position is the end of a record: where the next one goes, and what it must name. The
// zero Position is before everything.
type Position struct {
	Segment uint64
	Start   uint32 // of the record
	End     uint32
	Group   uint64
	Sum     uint32 // the record's checksum
}

// landmarks is how far two records are apart by which others are found.
const landmarks = 64 << 10

// Landmark reports whether the record at p is one of those by which others are found: it
// goes over a multiple of 64 KiB of its segment, or begins there. The first record of a
// segment, which the log makes by itself, is none.
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
	buf    []byte
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

// First is the index of the first append of a group that was appended, and of the next one
// where it has none.
func (g *Group) First() uint64 { return g.head.first }

// Next is the index of the next append in the global order, of a group that was appended.
func (g *Group) Next() uint64 { return g.head.first + uint64(g.orders) }

// Add takes the operations of one append. They may not change until the group was
// appended. False: g is not empty and has no room for them within limit, at most
// [MaxRecord]. An append that is alone always finds room: its size was known before, see
// [Ops.Len].
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

// encode makes the record that follows prev at offset of the segment id.
func (g *Group) encode(id *Identity, offset uint32, prev Position, first uint64) {
	g.buf = slices.Grow(g.buf[:0], g.Len())[:headerLen]
	for _, o := range g.ops {
		g.buf = append(g.buf, o.ops...)
	}
	sum := crc32.Checksum(g.buf[headerLen:], castagnoli)
	g.pad()
	for _, o := range g.ops {
		g.buf = append(g.buf, o.bodies...)
	}
	g.pad()
	g.head = header{
		group: prev.Group + 1, prev: prev.Sum, ops: uint32(g.n), first: first,
		committed: g.Times.Committed, ts: g.Times.TS,
		opsLen: uint32(g.opsLen), bodiesLen: uint32(g.bodies), opsSum: sum,
	}
	g.head.put(g.buf[:headerLen], id, offset)
}

func (g *Group) pad() {
	var zeros [align]byte
	g.buf = append(g.buf, zeros[:int(aligned(uint32(len(g.buf))))-len(g.buf)]...)
}

// Rows calls fn for each operation of a group that was appended, in order, with the place
// that its body got. An error of fn ends it.
func (g *Group) Rows(fn func(*Op) error) error {
	r := Record{At: g.at, head: g.head, buf: g.buf}
	return r.Ops(fn)
}
