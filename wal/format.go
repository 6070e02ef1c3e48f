package wal

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/tgad/tgad/schemas/tga"
)

// Sizes of the format, in bytes.
const (
	// identityLen is a whole disk block, so that no write of a record can tear the identity.
	identityLen = 4096
	headerLen   = 64
	opLen       = 16
	fileLen     = 56
	align       = 8

	// MaxInline is the longest body that a record holds. The caller first writes and syncs a
	// longer body as a file of its own, so that one large answer does not delay the commits
	// of other calls.
	MaxInline = 1 << 20
	// MaxRecord bounds one record. More operations than that make two groups.
	MaxRecord = 3 << 20
	// MinSegment is the smallest segment. A segment whose first record needs more room is
	// made longer.
	MinSegment = 64 << 10
	// MaxSegment is the largest segment: what the four bytes of an offset can address, less
	// one record.
	MaxSegment = 1<<32 - MaxRecord
)

const (
	identityMagic  = "TGADLOG\n"
	recordMagic    = 'R'
	checksumOffset = identityLen - 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Identity says to which store a segment belongs, and which use of its file this is. Every
// byte of a record is bound to the identity: the header's checksum begins with salt, number
// and offset. So bytes that an earlier use left in a recycled file are not accepted as
// records, and neither are records that were copied to another place.
type Identity struct {
	Store    tga.ID
	Timeline tga.ID // a new one after a restore, and after an operator accepted a loss
	Number   uint64 // from 1
	Salt     uint64 // drawn at random for each use of the file
	Size     uint32 // of the file, in bytes
}

// appendIdentity appends the first block of a segment.
//
//	   0  magic "TGADLOG\n" [8]
//	   8  format version [4] = 2      size of the file [4]
//	  16  store id [16]
//	  32  timeline [16]
//	  48  number [8]                  salt [8]
//	  64  zeros
//	4092  CRC-32C of the bytes before it [4]
func appendIdentity(dst []byte, id Identity) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, identityLen)...)
	b := dst[start:]
	copy(b, identityMagic)
	binary.BigEndian.PutUint32(b[8:], tga.LogSegmentVersion)
	binary.BigEndian.PutUint32(b[12:], id.Size)
	copy(b[16:], id.Store[:])
	copy(b[32:], id.Timeline[:])
	binary.BigEndian.PutUint64(b[48:], id.Number)
	binary.BigEndian.PutUint64(b[56:], id.Salt)
	binary.BigEndian.PutUint32(b[checksumOffset:], crc32.Checksum(b[:checksumOffset], castagnoli))
	return dst
}

// decodeIdentity reads the first block of the segment with a number. Its errors are
// STATE_CHECKSUM_MISMATCH and FORMAT_TOO_NEW.
func decodeIdentity(b []byte, number uint64) (Identity, error) {
	if len(b) < identityLen || string(b[:8]) != identityMagic ||
		binary.BigEndian.Uint32(b[checksumOffset:]) != crc32.Checksum(b[:checksumOffset], castagnoli) {
		return Identity{}, damaged("segment %d has no identity", number)
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != tga.LogSegmentVersion {
		return Identity{}, tga.Errorf(tga.FormatTooNew, "segment %d has format %d, this program knows %d", number, v, tga.LogSegmentVersion)
	}
	id := Identity{
		Size:  binary.BigEndian.Uint32(b[12:]),
		Store: tga.ID(b[16:32]), Timeline: tga.ID(b[32:48]),
		Number: binary.BigEndian.Uint64(b[48:]), Salt: binary.BigEndian.Uint64(b[56:]),
	}
	if id.Number != number {
		return Identity{}, damaged("the file of segment %d is segment %d", number, id.Number)
	}
	if id.Size < MinSegment || id.Size > MaxSegment || id.Size%identityLen != 0 {
		return Identity{}, damaged("segment %d says that it has %d bytes", number, id.Size)
	}
	for _, c := range b[64:checksumOffset] {
		if c != 0 {
			return Identity{}, damaged("segment %d: bytes after the identity are not zero", number)
		}
	}
	return id, nil
}

// header is the fixed part of a record.
//
//	 0  CRC-32C [4] of salt, number and offset of the record, and of the bytes 4 to 63
//	 4  'R' [1]   version [1] = 1   zeros [2]
//	 8  group [8]
//	16  checksum of the record before [4]     operations [4]
//	24  first index in the global order [8]
//	32  newest commit time [8]                newest ts [8], milliseconds since 1970
//	48  length of the operations [4]          of the bodies [4]
//	56  CRC-32C of the operations [4]         zeros [4]
//
// The first checksum covers the second, and the second covers the checksum of each body. So
// the first checksum covers the whole record, and the next record holds it. It is checked
// before any length is used.
type header struct {
	checksum  uint32
	group     uint64
	prev      uint32
	ops       uint32
	first     uint64
	committed tga.Millis
	ts        tga.Millis
	opsLen    uint32
	bodiesLen uint32
	opsSum    uint32
}

// size is the length of the whole record, in bytes.
func (h *header) size() uint32 {
	return headerLen + aligned(h.opsLen) + aligned(h.bodiesLen)
}

// bodies is where the bodies begin, from the start of the record.
func (h *header) bodies() uint32 { return headerLen + aligned(h.opsLen) }

func aligned(n uint32) uint32 { return (n + align - 1) &^ (align - 1) }

// seed returns the checksum of a record's place (salt, number, offset), with which the
// record's own checksum begins.
func (id *Identity) seed(offset uint32) uint32 {
	// Byte by byte: crc32 would make a slice escape to the heap for every record, and for
	// every offset that a scan tries.
	sum := ^uint32(0)
	add := func(v uint64, size int) {
		for size--; size >= 0; size-- {
			sum = castagnoli[byte(sum)^byte(v>>(8*size))] ^ sum>>8
		}
	}
	add(id.Salt, 8)
	add(id.Number, 8)
	add(uint64(offset), 4)
	return ^sum
}

// put writes the header to b and sets its checksum.
func (h *header) put(b []byte, id *Identity, offset uint32) {
	_ = b[headerLen-1]
	clear(b[:headerLen])
	b[4], b[5] = recordMagic, tga.LogRecordVersion
	binary.BigEndian.PutUint64(b[8:], h.group)
	binary.BigEndian.PutUint32(b[16:], h.prev)
	binary.BigEndian.PutUint32(b[20:], h.ops)
	binary.BigEndian.PutUint64(b[24:], h.first)
	binary.BigEndian.PutUint64(b[32:], uint64(h.committed))
	binary.BigEndian.PutUint64(b[40:], uint64(h.ts))
	binary.BigEndian.PutUint32(b[48:], h.opsLen)
	binary.BigEndian.PutUint32(b[52:], h.bodiesLen)
	binary.BigEndian.PutUint32(b[56:], h.opsSum)
	h.checksum = crc32.Update(id.seed(offset), castagnoli, b[4:headerLen])
	binary.BigEndian.PutUint32(b, h.checksum)
}

// readHeader reads a header at an offset. ok is false if it is not the header of a record that
// was written there in this use of the segment.
func readHeader(b []byte, id *Identity, offset uint32) (h header, ok bool) {
	if len(b) < headerLen || b[4] != recordMagic || b[5] != tga.LogRecordVersion || b[6]|b[7] != 0 {
		return h, false
	}
	h.checksum = binary.BigEndian.Uint32(b)
	if crc32.Update(id.seed(offset), castagnoli, b[4:headerLen]) != h.checksum {
		return h, false
	}
	h.group = binary.BigEndian.Uint64(b[8:])
	h.prev = binary.BigEndian.Uint32(b[16:])
	h.ops = binary.BigEndian.Uint32(b[20:])
	h.first = binary.BigEndian.Uint64(b[24:])
	h.committed = tga.Millis(binary.BigEndian.Uint64(b[32:]))
	h.ts = tga.Millis(binary.BigEndian.Uint64(b[40:]))
	h.opsLen = binary.BigEndian.Uint32(b[48:])
	h.bodiesLen = binary.BigEndian.Uint32(b[52:])
	h.opsSum = binary.BigEndian.Uint32(b[56:])
	return h, true
}

func damaged(format string, args ...any) *tga.Error {
	err := tga.Errorf(tga.StateChecksumMismatch, format, args...)
	err.Where = "stored"
	return err
}

func unavailable(what string, err error) error {
	return tga.Errorf(tga.StoreUnavailable, "log: %s: %w", what, err)
}
