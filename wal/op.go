package wal

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/tgad/tgad/schemas/tga"
)

// Kind says what an operation does to the row of its key.
type Kind byte

// Kinds of operations.
const (
	// Put sets a row to a value, and to a body if the operation has one.
	Put Kind = 1
	// Delete removes a row.
	Delete Kind = 2
	// Order is an append's place in the global order. It has no key: its index is the
	// record's first index plus the number of Orders before it in the record. Its value is
	// the leaf.
	Order Kind = 3
	// link is the first operation of a segment, see [link.appendTo].
	linkOp Kind = 4
	// closed is the last operation before a clean end.
	closedOp Kind = 5
	// Insert is a Put of a key that was never set before. Code that counts keys need not look
	// the key up.
	Insert Kind = 6
)

// keyed reports whether operations of a kind have a key.
func (k Kind) keyed() bool { return k == Put || k == Delete || k == Insert }

// Place says where the body of an operation is.
type Place byte

// Places of a body.
const (
	Nowhere Place = 0 // it has none
	Inline  Place = 1 // in the record
	InFile  Place = 2 // a file of its own, see [File]
)

// Op is one operation of a record. Its slices point into the record and are valid as long as
// the record is.
type Op struct {
	Kind  Kind
	Place Place
	Key   []byte // at most 255 bytes
	Value []byte // part of the chain, kept for ever
	Ref   Ref    // of an Inline body
	File  File   // of an InFile body
	Index uint64 // in the global order, of an Order
}

// Ref says where the body of an operation is. The offset is always an offset of the raw
// segment, even after the segment was rewritten.
type Ref struct {
	Segment uint64
	Offset  uint32
	Length  uint32
	Sum     uint32 // CRC-32C of key and body, so another key's body does not match
}

// File is a body that was too long for a record, see [Log.WriteFile].
type File struct {
	ID     tga.ID   // names the file: no two bodies have the same
	Digest [32]byte // SHA-256 of the body
	Length uint64
}

// An operation is a header, its key, its value:
//
//	     0  kind [1]   place [1]   length of the key [1]   zero [1]
//	     4  length of the value [4]
//	     8  length of the body [4]      CRC-32C of key and body [4], zeros where it has none
//	    16  for a body in a file: its id [16], its SHA-256 [32], its length [8]
//	        key, value
//
// The bodies follow the operations in their order, without a gap.

// Ops collects the operations of one append before the append has its place in the log.
// Callers encode in parallel; the committer only copies. The zero value is empty.
type Ops struct {
	ops    []byte
	bodies []byte
	files  []File
	n      int
	orders int
}

// Reset empties o and keeps its memory.
func (o *Ops) Reset() { *o = Ops{ops: o.ops[:0], bodies: o.bodies[:0]} }

// Files are the bodies of o that have files of their own.
func (o *Ops) Files() []File { return o.files }

// Inline returns how many bytes of bodies o puts into the record.
func (o *Ops) Inline() int { return len(o.bodies) }

// Len returns how many bytes o takes in a record.
func (o *Ops) Len() int { return len(o.ops) + len(o.bodies) }

// Insert is Put of a key that was never set before.
func (o *Ops) Insert(key, value []byte) { o.add(Insert, Nowhere, key, value, 0, 0) }

// Put sets the row of key to value. A key must have 1 to 255 bytes. A key of another length
// is a bug of the caller, and Put panics.
func (o *Ops) Put(key, value []byte) { o.add(Put, Nowhere, key, value, 0, 0) }

// PutBody sets the row of key to value and a body of at most [MaxInline] bytes.
func (o *Ops) PutBody(key, value, body []byte) {
	if len(body) > MaxInline {
		panic("log: a body that belongs in a file")
	}
	o.add(Put, Inline, key, value, uint32(len(body)), BodySum(key, body))
	o.bodies = append(o.bodies, body...)
}

// PutFile sets the row of key to value and a body that is durable in a file of its own.
func (o *Ops) PutFile(key, value []byte, f File) {
	at := len(o.ops)
	o.add(Put, InFile, key, nil, 0, 0)
	binary.BigEndian.PutUint32(o.ops[at+4:], uint32(len(value)))
	// File, key and value follow the header in this order.
	o.ops = append(o.ops[:at+opLen], f.ID[:]...)
	o.ops = append(o.ops, f.Digest[:]...)
	o.ops = binary.BigEndian.AppendUint64(o.ops, f.Length)
	o.ops = append(o.ops, key...)
	o.ops = append(o.ops, value...)
	o.files = append(o.files, f)
}

// Delete removes the row of key.
func (o *Ops) Delete(key []byte) { o.add(Delete, Nowhere, key, nil, 0, 0) }

// Order takes the append's place in the global order, with its leaf.
func (o *Ops) Order(leaf []byte) {
	o.add(Order, Nowhere, nil, leaf, 0, 0)
	o.orders++
}

func (o *Ops) add(kind Kind, place Place, key, value []byte, bodyLen, sum uint32) {
	if len(key) > math.MaxUint8 || (len(key) != 0) != kind.keyed() {
		panic("log: an operation with a key of a wrong length")
	}
	o.n++
	o.ops = append(o.ops, byte(kind), byte(place), byte(len(key)), 0)
	o.ops = binary.BigEndian.AppendUint32(o.ops, uint32(len(value)))
	o.ops = binary.BigEndian.AppendUint32(o.ops, bodyLen)
	o.ops = binary.BigEndian.AppendUint32(o.ops, sum)
	o.ops = append(o.ops, key...)
	o.ops = append(o.ops, value...)
}

// BodySum returns the checksum of a key and its body. Because the key is included, the body
// of another row does not match, even if a damaged index points at it.
func BodySum(key, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
}

// decodeOps calls fn for each operation of a record, in order. It trusts none of the lengths:
// ok is false unless operations and bodies fill the record exactly.
func decodeOps(b []byte, h *header, segment uint64, offset uint32, fn func(*Op) error) (ok bool, err error) {
	var op Op
	body, end := offset+h.bodies(), offset+h.bodies()+h.bodiesLen
	index := h.first
	for range h.ops {
		if !op.decode(&b) {
			return false, nil
		}
		switch {
		case op.Place == Inline && op.Ref.Length > end-body:
			return false, nil
		case op.Place == Inline:
			op.Ref.Segment, op.Ref.Offset = segment, body
			body += op.Ref.Length
		case op.Kind == Order:
			op.Index = index
			index++
		}
		if err := fn(&op); err != nil {
			return true, err
		}
	}
	return len(b) == 0 && body == end, nil
}

// decode reads one operation from the front of b.
func (op *Op) decode(b *[]byte) bool {
	in := *b
	if len(in) < opLen || in[3] != 0 {
		return false
	}
	*op = Op{Kind: Kind(in[0]), Place: Place(in[1])}
	keyLen, valueLen := int(in[2]), uint64(binary.BigEndian.Uint32(in[4:]))
	op.Ref.Length, op.Ref.Sum = binary.BigEndian.Uint32(in[8:]), binary.BigEndian.Uint32(in[12:])
	in = in[opLen:]
	if !op.sound(keyLen) {
		return false
	}
	if op.Place == InFile {
		if len(in) < fileLen {
			return false
		}
		op.File = File{ID: tga.ID(in[:16]), Digest: [32]byte(in[16:48]), Length: binary.BigEndian.Uint64(in[48:])}
		in = in[fileLen:]
	}
	if uint64(len(in)) < uint64(keyLen)+valueLen {
		return false
	}
	n := keyLen + int(valueLen)
	op.Key, op.Value, *b = in[:keyLen:keyLen], in[keyLen:n:n], in[n:]
	return true
}

// sound reports whether the fields of an operation's header are consistent.
func (op *Op) sound(keyLen int) bool {
	if op.Kind < Put || op.Kind > Insert || op.Place > InFile || (keyLen != 0) != op.Kind.keyed() {
		return false
	}
	if op.Place != Nowhere && op.Kind != Put {
		return false
	}
	return op.Place == Inline && op.Ref.Length <= MaxInline || op.Place != Inline && op.Ref.Length == 0 && op.Ref.Sum == 0
}
