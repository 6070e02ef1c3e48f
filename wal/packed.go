package wal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"sort"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/zstd"

	"github.com/tgad/tgad/schemas/tga"
)

// A packed segment is what [Log.Rewrite] keeps of a raw one: its identity, its headers and
// operations, and those bodies that are still needed. Each piece keeps the offset that it had
// in the raw segment, so every [Ref] and the chain of checksums stay valid.
//
//	header
//	     0  magic "TGADPAK\n" [8]
//	     8  version [4] = 2   generation [4]
//	blocks  one after another: a zstd frame of pieces
//	footer  per block, 24 bytes
//	     0  what is in it [1]: 1 headers and operations, 2 bodies; zeros [3]
//	     4  CRC-32C of the frame [4]
//	     8  offset in the raw segment of the first piece [4]   length before compression [4]
//	    16  offset in this file [4]                            length [4]
//	trailer
//	     0  blocks [4]   CRC-32C of header and footer and of the bytes 0 to 4, 8 to 24 here [4]
//	     8  end of the raw segment's records [4]   length of all bodies here, before compression [4]
//	    16  magic "TGADEND\n" [8]
//
// Blocks of headers come first. Within one kind, blocks are in the order of their pieces'
// offsets. A block before compression:
//
//	0  pieces [4]
//	4  per piece: offset in the raw segment [4], length [4]
//	   the bytes of each
const (
	packedMagic   = "TGADPAK\n"
	packedEnd     = "TGADEND\n"
	packedHeader  = 16
	packedBlock   = 24
	packedTrailer = 24

	// blockTarget is the size after which a block ends, in bytes. A larger block compresses
	// better, but a single read has to decompress more.
	blockTarget = 16 << 10
	// maxBlock is the longest block: blockTarget and one more piece.
	maxBlock = blockTarget + MaxRecord + 64<<10

	headPieces = 1
	bodyPieces = 2
)

// packed reads a packed segment as if it were the raw one.
type packed struct {
	f      io.ReaderAt
	id     Identity
	end    uint32
	bodies uint32 // length of all bodies in it, in bytes before compression
	heads  []packedEntry
	body   []packedEntry
	cache  *blocks
	key    uint64 // in the cache: number and checksum, as another generation has the same number
}

type packedEntry struct {
	sum   uint32
	first uint32
	plain uint32
	at    uint32
	size  uint32
}

// openPacked reads the table of blocks and the identity. The caller still has to close f.
func openPacked(f vfs.File, number uint64, cache *blocks) (*packed, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, unavailable("look at packed segment "+segmentName(number), err)
	}
	size := info.Size()
	if size < packedHeader+packedTrailer || size > MaxSegment {
		return nil, damaged("packed segment %d has %d bytes", number, size)
	}
	var head [packedHeader]byte
	var tail [packedTrailer]byte
	if err := errors.Join(readFull(f, head[:], 0), readFull(f, tail[:], size-packedTrailer)); err != nil {
		return nil, err
	}
	count := int64(binary.BigEndian.Uint32(tail[:]))
	if string(head[:8]) != packedMagic || string(tail[16:]) != packedEnd || count*packedBlock > size-packedHeader-packedTrailer {
		return nil, damaged("packed segment %d: header or trailer is damaged", number)
	}
	if v := binary.BigEndian.Uint32(head[8:]); v != tga.LogPackedVersion {
		return nil, tga.Errorf(tga.FormatTooNew, "packed segment %d has version %d, this program knows %d", number, v, tga.LogPackedVersion)
	}
	footer := make([]byte, count*packedBlock)
	at := size - packedTrailer - int64(len(footer))
	if err := readFull(f, footer, at); err != nil {
		return nil, err
	}
	sum := packedSum(head[:], footer, tail[:])
	if sum != binary.BigEndian.Uint32(tail[4:]) {
		return nil, damaged("packed segment %d: its table of blocks does not have its checksum", number)
	}
	p := &packed{f: f, end: binary.BigEndian.Uint32(tail[8:]), bodies: binary.BigEndian.Uint32(tail[12:]), cache: cache, key: number<<32 | uint64(sum)}
	next := uint32(packedHeader)
	for b := footer; len(b) > 0; b = b[packedBlock:] {
		e := packedEntry{
			sum: binary.BigEndian.Uint32(b[4:]), first: binary.BigEndian.Uint32(b[8:]), plain: binary.BigEndian.Uint32(b[12:]),
			at: binary.BigEndian.Uint32(b[16:]), size: binary.BigEndian.Uint32(b[20:]),
		}
		list := &p.heads
		switch {
		case b[0] == bodyPieces:
			list = &p.body
		case b[0] != headPieces || len(p.body) > 0:
			return nil, damaged("packed segment %d: a block of kind %d", number, b[0])
		}
		if e.at != next || int64(e.at)+int64(e.size) > at || e.plain > maxBlock || len(*list) > 0 && (*list)[len(*list)-1].first >= e.first {
			return nil, damaged("packed segment %d: a block that is out of its place", number)
		}
		next += e.size
		*list = append(*list, e)
	}
	if int64(next) != at {
		return nil, damaged("packed segment %d: bytes between its blocks and their table", number)
	}
	b := make([]byte, identityLen)
	if err := p.read(p.heads, b, 0); err != nil {
		return nil, err
	}
	p.id, err = decodeIdentity(b, number)
	return p, err
}

func packedSum(head, footer, tail []byte) uint32 {
	sum := crc32.Checksum(head, castagnoli)
	sum = crc32.Update(sum, castagnoli, footer)
	sum = crc32.Update(sum, castagnoli, tail[:4])
	return crc32.Update(sum, castagnoli, tail[8:])
}

// ReadAt reads at an offset of the raw segment, for scans: identity, headers and operations
// are at their offsets, and everything else reads as zeros.
func (p *packed) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(b)) > int64(p.id.Size) {
		return 0, io.EOF
	}
	if err := p.read(p.heads, b, uint32(off)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// readBody reads a body that the segment still has.
func (p *packed) readBody(b []byte, ref Ref) error {
	if ref.Length == 0 {
		return nil // an empty body has no piece: the piece would have the offset of the next body
	}
	i := sort.Search(len(p.body), func(i int) bool { return p.body[i].first > ref.Offset }) - 1
	if i < 0 {
		return gone(ref)
	}
	plain, err := p.block(&p.body[i])
	if err != nil {
		return err
	}
	at, n := search(plain, ref.Offset)
	if n != ref.Length {
		return gone(ref)
	}
	copy(b, plain[at:at+n])
	return nil
}

var errGone = errors.New("the body was erased or replaced, and is no longer there")

func gone(ref Ref) error {
	return damaged("segment %d offset %d: %w", ref.Segment, ref.Offset, errGone)
}

// search returns where in a block the piece of a raw offset is, and its length. If there is
// no such piece, the length is one that no piece has.
func search(plain []byte, offset uint32) (at, n uint32) {
	count := int(binary.BigEndian.Uint32(plain))
	at = 4 + 8*uint32(count)
	for i := range count {
		e := plain[4+8*i:]
		n = binary.BigEndian.Uint32(e[4:])
		if binary.BigEndian.Uint32(e) == offset {
			return at, n
		}
		at += n
	}
	return 0, 1<<32 - 1
}

// read fills b with the raw segment's bytes from off on, as far as the blocks of list have
// them, and with zeros elsewhere.
func (p *packed) read(list []packedEntry, b []byte, off uint32) error {
	clear(b)
	end := uint64(off) + uint64(len(b))
	i := sort.Search(len(list), func(i int) bool { return list[i].first > off })
	for i = max(0, i-1); i < len(list) && uint64(list[i].first) < end; i++ {
		plain, err := p.block(&list[i])
		if err != nil {
			return err
		}
		count := int(binary.BigEndian.Uint32(plain))
		data := plain[4+8*count:]
		for j := range count {
			e := plain[4+8*j:]
			first, n := binary.BigEndian.Uint32(e), binary.BigEndian.Uint32(e[4:])
			piece := data[:n]
			data = data[n:]
			if uint64(first)+uint64(n) <= uint64(off) || uint64(first) >= end {
				continue
			}
			if first < off {
				piece, first = piece[off-first:], off
			}
			copy(b[first-off:], piece)
		}
	}
	return nil
}

// block returns the pieces of a block, decompressed. Every length in it was checked.
func (p *packed) block(e *packedEntry) ([]byte, error) {
	at := blockKey{p.key, e.at}
	if plain := p.cache.get(at); plain != nil {
		return plain, nil
	}
	stored := make([]byte, e.size)
	if err := readFull(p.f, stored, int64(e.at)); err != nil {
		return nil, err
	}
	if crc32.Checksum(stored, castagnoli) != e.sum {
		return nil, damaged("packed segment %d offset %d: a block does not have its checksum", p.id.Number, e.at)
	}
	plain, err := decoder().DecodeAll(stored, make([]byte, 0, e.plain))
	if err != nil || uint32(len(plain)) != e.plain || !piecesFit(plain, e.first) {
		return nil, damaged("packed segment %d offset %d: a block does not decompress: %v", p.id.Number, e.at, err)
	}
	p.cache.put(at, plain)
	return plain, nil
}

// piecesFit reports whether the pieces fill the block exactly, in rising order of offsets and
// without overlap.
func piecesFit(plain []byte, first uint32) bool {
	if len(plain) < 4 {
		return false
	}
	count := uint64(binary.BigEndian.Uint32(plain))
	if count == 0 || 4+8*count > uint64(len(plain)) {
		return false
	}
	sum, next := 4+8*count, uint64(first)
	for i := range count {
		e := plain[4+8*i:]
		at, n := uint64(binary.BigEndian.Uint32(e)), uint64(binary.BigEndian.Uint32(e[4:]))
		if i == 0 && at != next || at < next {
			return false
		}
		next = at + n
		sum += n
	}
	return sum == uint64(len(plain)) && next <= MaxSegment
}

// decoder decompresses blocks of any reader. It never takes more memory than the largest
// block.
var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlock), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		panic("log: options of zstd: " + err.Error())
	}
	return d
})

// blocks is a cache of decompressed blocks. It evicts the least recently used.
type blocks struct {
	mu    sync.Mutex
	size  int
	limit int
	list  map[blockKey]*block
	tick  uint64
}

type blockKey struct {
	use uint64
	at  uint32
}

type block struct {
	plain []byte
	used  uint64
}

func (c *blocks) init(limit int) { c.limit, c.list = limit, map[blockKey]*block{} }

// clear empties the cache.
func (c *blocks) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.list)
	c.size = 0
}

func (c *blocks) get(k blockKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.list[k]
	if b == nil {
		return nil
	}
	c.tick++
	b.used = c.tick
	return b.plain
}

func (c *blocks) put(k blockKey, plain []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.list[k] != nil || len(plain) > c.limit {
		return
	}
	for c.size+len(plain) > c.limit {
		var oldest blockKey
		var found *block
		for k, b := range c.list {
			if found == nil || b.used < found.used {
				oldest, found = k, b
			}
		}
		c.size -= len(found.plain)
		delete(c.list, oldest)
	}
	c.tick++
	c.list[k] = &block{plain, c.tick}
	c.size += len(plain)
}
