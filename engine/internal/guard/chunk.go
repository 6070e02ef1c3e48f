package guard

import (
	"encoding/binary"
	"hash/crc32"
)

// The wire format of Pebble's package record. A file is a sequence of blocks of
// 32 KiB, a block a sequence of chunks; a chunk does not cross a block's end.
//
//	legacy      crc[4] length[2] type[1]                          payload   MANIFEST
//	recyclable  crc[4] length[2] type[1] log[4]                   payload   WAL, format < 20
//	sync        crc[4] length[2] type[1] log[4] sync offset[8]    payload   WAL, format >= 20
//
// All integers are little-endian. The checksum covers everything from the type on.
const (
	blockSize = 32 << 10

	legacyHeader     = 7
	recyclableHeader = 11
	syncHeader       = 19

	// trailerType is the type of the 11-byte header, with zero checksum and zero
	// length and the next log number, that ends a WAL that was closed.
	trailerType = 5
)

// position is a chunk's place in its record.
type position uint8

const (
	positionFull position = iota
	positionFirst
	positionMiddle
	positionLast
)

func (p position) starts() bool { return p == positionFull || p == positionFirst }
func (p position) ends() bool   { return p == positionFull || p == positionLast }

// layout is a chunk's header format.
type layout uint8

const (
	layoutNone layout = iota
	layoutLegacy
	layoutRecyclable
	layoutSync
)

var headerLen = [...]int{layoutLegacy: legacyHeader, layoutRecyclable: recyclableHeader, layoutSync: syncHeader}

// typeOf splits a type byte: 1-4 legacy, 5-8 recyclable, 9-12 sync; in each group
// full, first, middle, last.
func typeOf(b byte) (layout, position) {
	if b == 0 || b > 12 {
		return layoutNone, 0
	}
	return layout((b-1)/4) + layoutLegacy, position((b - 1) % 4)
}

// chunk is a decoded header. start and end are offsets in the block.
type chunk struct {
	layout
	position
	log        uint32
	syncOffset uint64
	start, end int
	payload    []byte
}

// found says what stands at an offset of a block.
type found uint8

const (
	foundChunk   found = iota // a chunk whose checksum is right
	foundPad                  // the unused end of a block
	foundZero                 // a zero header where a chunk could be
	foundTrailer              // the header that closes this log
	foundBad                  // anything else
)

// at decodes what stands at off in block, of a WAL whose chunks carry log, or of a
// MANIFEST, whose chunks are all legacy.
// foundBad with a non-zero end means that the header is plausible and that the next
// chunk, if there is one, starts at end.
func at(block []byte, off int, log uint32, wal bool) (chunk, found) {
	c := chunk{start: off}
	rest := block[off:]
	full := len(block) == blockSize
	if len(rest) < legacyHeader {
		if full || len(rest) == 0 {
			return c, foundPad
		}
		return c, foundBad
	}
	if allZero(rest[:legacyHeader]) {
		// A writer leaves the end of a block unused when its own header does not
		// fit: 19 bytes in the widest format.
		if full && len(rest) < syncHeader && allZero(rest) {
			return c, foundPad
		}
		return c, foundZero
	}
	length := int(binary.LittleEndian.Uint16(rest[4:6]))
	c.layout, c.position = typeOf(rest[6])
	if c.layout == layoutNone || (!wal && c.layout != layoutLegacy) {
		return c, foundBad
	}
	hdr := headerLen[c.layout]
	if hdr > len(rest) {
		return c, foundBad
	}
	if c.layout != layoutLegacy {
		c.log = binary.LittleEndian.Uint32(rest[7:11])
		if c.log == log+1 && rest[6] == trailerType && allZero(rest[:6]) {
			c.end = off + hdr
			return c, foundTrailer
		}
		if c.log != log {
			return c, foundBad
		}
	}
	if hdr+length > len(rest) {
		return c, foundBad
	}
	if c.layout == layoutSync {
		c.syncOffset = binary.LittleEndian.Uint64(rest[11:19])
	}
	c.end = off + hdr + length
	c.payload = rest[hdr : hdr+length]
	if binary.LittleEndian.Uint32(rest[0:4]) != checksum(rest[6:hdr+length]) {
		return c, foundBad
	}
	return c, foundChunk
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the masked CRC-32C of LevelDB's family of formats.
func checksum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
