package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// A row of the index has the value of its key, or says where the log has it:
//
//	0  1, and the value
//	0  2, and where the body lies: segment [8] offset [4] length [4] CRC-32C of key and body [4]
//	0  3, and the file of the body: id [16] SHA-256 [32] length [8]
//
// Integers are big-endian. A row is a function of the newest operation of its key.
const (
	rowValue = 1
	rowBody  = 2
	rowFile  = 3

	rowBodyLen = 1 + 20
	rowFileLen = 1 + 56
)

// appendRow appends the row of the key of op.
func appendRow(dst []byte, op *wal.Op) []byte {
	switch op.Place {
	case wal.Inline:
		dst = append(dst, rowBody)
		dst = binary.BigEndian.AppendUint64(dst, op.Ref.Segment)
		dst = binary.BigEndian.AppendUint32(dst, op.Ref.Offset)
		dst = binary.BigEndian.AppendUint32(dst, op.Ref.Length)
		return binary.BigEndian.AppendUint32(dst, op.Ref.Sum)
	case wal.InFile:
		dst = append(dst, rowFile)
		dst = append(dst, op.File.ID[:]...)
		dst = append(dst, op.File.Digest[:]...)
		return binary.BigEndian.AppendUint64(dst, op.File.Length)
	}
	return append(append(dst, rowValue), op.Value...)
}

// placed says where the value of a row is.
type placed struct {
	value []byte // of a rowValue; a part of the row
	ref   wal.Ref
	file  wal.File
	kind  byte
}

func decodeRow(row []byte) (p placed, err error) {
	if len(row) > 0 {
		p.kind = row[0]
	}
	switch {
	case p.kind == rowValue:
		p.value = row[1:]
	case p.kind == rowBody && len(row) == rowBodyLen:
		p.ref = wal.Ref{
			Segment: binary.BigEndian.Uint64(row[1:]), Offset: binary.BigEndian.Uint32(row[9:]),
			Length: binary.BigEndian.Uint32(row[13:]), Sum: binary.BigEndian.Uint32(row[17:]),
		}
	case p.kind == rowFile && len(row) == rowFileLen:
		p.file = wal.File{ID: tga.ID(row[1:17]), Digest: [32]byte(row[17:49]), Length: binary.BigEndian.Uint64(row[49:])}
	default:
		return p, indexDamaged(fmt.Errorf("invalid row: kind %d, %d bytes", p.kind, len(row)))
	}
	return p, nil
}

// content returns the value of a key from its row. The caller must hold a pin of the log that it
// took before it read the row. The value may be a part of row.
func (r *reading) content(key, row []byte) ([]byte, error) {
	p, err := decodeRow(row)
	if err != nil {
		return nil, err
	}
	switch p.kind {
	case rowBody:
		return r.log.Read(p.ref, key)
	case rowFile:
		return r.log.ReadFile(p.file, key)
	}
	return p.value, nil
}

// names reports whether a row names the body of an operation.
func (p placed) names(op *wal.Op) bool {
	return op.Place == wal.Inline && p.kind == rowBody && p.ref == op.Ref ||
		op.Place == wal.InFile && p.kind == rowFile && p.file == op.File
}

// names reports whether the row of a key is there and meets a condition.
func (r *reading) names(key []byte, named func(placed) bool) (bool, error) {
	row, err := r.row(key)
	if err != nil || row == nil {
		return false, err
	}
	at, err := decodeRow(row)
	return err == nil && named(at), err
}

// position is the newest record whose rows the index has.
type position struct {
	line tga.ID // timeline
	at   wal.Position
	keys uint64 // number of ledger keys that were ever reserved; sum is their sum, see [keySum]
	sum  uint64
}

// A place in the log: segment [8] start [4] end [4] group [8] CRC-32C of the record's header
// [4]. The value of a landmark: version 1 [1] place. The position row: version 1 [1] place
// timeline [16] ledger keys [8] their sum [8].
const (
	placeLen    = 28
	positionLen = placeLen + 32
)

func appendPlace(dst []byte, at wal.Position) []byte {
	dst = binary.BigEndian.AppendUint64(dst, at.Segment)
	dst = binary.BigEndian.AppendUint32(dst, at.Start)
	dst = binary.BigEndian.AppendUint32(dst, at.End)
	dst = binary.BigEndian.AppendUint64(dst, at.Group)
	return binary.BigEndian.AppendUint32(dst, at.Sum)
}

func decodePlace(b []byte) wal.Position {
	return wal.Position{
		Segment: binary.BigEndian.Uint64(b), Start: binary.BigEndian.Uint32(b[8:]), End: binary.BigEndian.Uint32(b[12:]),
		Group: binary.BigEndian.Uint64(b[16:]), Sum: binary.BigEndian.Uint32(b[24:]),
	}
}

func (p *position) appendValue(dst []byte) []byte {
	dst = appendPlace(append(dst, tga.StoreValueVersion), p.at)
	dst = append(dst, p.line[:]...)
	dst = binary.BigEndian.AppendUint64(dst, p.keys)
	return binary.BigEndian.AppendUint64(dst, p.sum)
}

func decodePosition(row []byte) (position, error) {
	r, err := decodeRow(row)
	if err != nil {
		return position{}, err
	}
	b, err := value("position", r.value, positionLen, false)
	if err != nil {
		return position{}, err
	}
	p := position{at: decodePlace(b), line: tga.ID(b[placeLen:])}
	p.keys, p.sum = binary.BigEndian.Uint64(b[placeLen+16:]), binary.BigEndian.Uint64(b[placeLen+24:])
	return p, nil
}

func decodeLandmark(row []byte) (wal.Position, error) {
	r, err := decodeRow(row)
	if err != nil {
		return wal.Position{}, err
	}
	b, err := value("landmark", r.value, placeLen, false)
	if err != nil {
		return wal.Position{}, err
	}
	return decodePlace(b), nil
}
