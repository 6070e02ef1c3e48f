package segment

import (
	"encoding/binary"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// BlockTarget is the size in bytes of the trace records after which a block ends. A larger
// block compresses better, but the lookup of one trace has to read and unpack more.
const BlockTarget = 64 << 10

// Limits of a segment. What [Writer] accepts, [Verify] can read.
const (
	MaxTrace  = 256 << 20 // bytes of one trace record
	MaxTraces = 1 << 20   // traces of one segment
	MaxList   = 256 << 20 // bytes of what the list says of all of them
)

const (
	headerMagic  = "TGADSEG\n"
	trailerMagic = "TGADEND\n"
	blockMagic   = "BLOK"
	listMagic    = "LIST"
	footerMagic  = "FOOT"

	headerLen      = 16
	blockHeaderLen = 16
	recordLen      = 24
	entryHeadLen   = 12 // of an entry in a record: the lengths of its frame and of what is beside it
	noteHeadLen    = 4
	listingHeadLen = 32 // of a trace in the list: what comes before its strings
	footerHeadLen  = 16
	blockEntryLen  = 48
	traceEntryLen  = 104
	trailerLen     = 88
	trailerSummed  = 48 // bytes of the trailer that the file's digest covers

	// leastLen is the length of a segment without traces.
	leastLen = headerLen + blockHeaderLen + footerHeadLen + blockEntryLen + trailerLen

	// maxWindow is the largest window of a zstd frame, in bytes: what a frame may make its
	// reader allocate before it delivers a byte. The writer uses no larger one.
	maxWindow = 8 << 20

	// maxFooter follows from MaxTraces: a block holds at least one trace.
	maxFooter = footerHeadLen + blockEntryLen + MaxTraces*(blockEntryLen+traceEntryLen)
)

// Info is what a footer says about a trace.
type Info struct {
	TraceID    tga.ID
	Block      uint32 // number of the block, from 0
	Notes      uint32
	First      uint64 // sequence numbers
	Last       uint64
	HeadDigest tga.Digest
	NoteDigest tga.Digest // of the last note, zero where there is none
}

type blockInfo struct {
	offset uint64
	stored uint64 // bytes after the block's header
	digest tga.Digest
}

type footer struct {
	blocks []blockInfo
	list   blockInfo
	traces []Info // in the order of their ids
}

func appendHeader(dst []byte) []byte {
	dst = append(dst, headerMagic...)
	dst = binary.BigEndian.AppendUint32(dst, tga.SealedSegmentVersion)
	return binary.BigEndian.AppendUint32(dst, 0)
}

func checkHeader(b []byte) error {
	if string(b[:8]) != headerMagic {
		return fault("header: no segment")
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != tga.SealedSegmentVersion && v != 0 {
		err := tga.Errorf(tga.FormatTooNew, "segment of version %d, this program knows %d", v, tga.SealedSegmentVersion)
		err.Where = "stored"
		return err
	} else if v != tga.SealedSegmentVersion {
		return fault("header: version %d", v)
	}
	if flags := binary.BigEndian.Uint32(b[12:]); flags != 0 {
		return fault("header: unknown flags %#x", flags)
	}
	return nil
}

// appendBlockHeader writes the header of a block, or of the list.
func appendBlockHeader(dst []byte, magic string, traces uint32, stored uint64) []byte {
	dst = append(dst, magic...)
	dst = binary.BigEndian.AppendUint32(dst, traces)
	return binary.BigEndian.AppendUint64(dst, stored)
}

func (f *footer) append(dst []byte) []byte {
	dst = append(dst, footerMagic...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.blocks)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.traces)))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	for _, b := range f.blocks {
		dst = b.append(dst)
	}
	dst = f.list.append(dst)
	for _, t := range f.traces {
		dst = append(dst, t.TraceID[:]...)
		dst = binary.BigEndian.AppendUint32(dst, t.Block)
		dst = binary.BigEndian.AppendUint32(dst, t.Notes)
		dst = binary.BigEndian.AppendUint64(dst, t.First)
		dst = binary.BigEndian.AppendUint64(dst, t.Last)
		dst = append(dst, t.HeadDigest[:]...)
		dst = append(dst, t.NoteDigest[:]...)
	}
	return dst
}

func (b *blockInfo) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, b.offset)
	dst = binary.BigEndian.AppendUint64(dst, b.stored)
	return append(dst, b.digest[:]...)
}

// decodeFooter reads a footer. Its blocks, and then the list, must follow each other without a
// gap between the header and end, so that no byte belongs to two of them or to none.
func decodeFooter(b []byte, end uint64) (*footer, error) {
	if len(b) < footerHeadLen || string(b[:4]) != footerMagic || binary.BigEndian.Uint32(b[12:]) != 0 {
		return nil, fault("footer: none at its place")
	}
	blocks, traces := uint64(binary.BigEndian.Uint32(b[4:])), uint64(binary.BigEndian.Uint32(b[8:]))
	if want := footerHeadLen + (blocks+1)*blockEntryLen + traces*traceEntryLen; want != uint64(len(b)) {
		return nil, fault("footer: %d blocks and %d traces in %d bytes", blocks, traces, len(b))
	}
	b = b[footerHeadLen:]
	f := &footer{blocks: make([]blockInfo, blocks+1), traces: make([]Info, traces)}
	left := end - headerLen // bytes of the blocks and the list still to come
	for i := range f.blocks {
		f.blocks[i] = blockInfo{
			offset: binary.BigEndian.Uint64(b), stored: binary.BigEndian.Uint64(b[8:]), digest: tga.Digest(b[16:48]),
		}
		next := end - left
		if bl := f.blocks[i]; bl.offset != next || left < blockHeaderLen || bl.stored > left-blockHeaderLen {
			return nil, fault("footer: block %d at %d with %d bytes, want offset %d and an end before %d", i, bl.offset, bl.stored, next, end)
		}
		left -= blockHeaderLen + f.blocks[i].stored
		b = b[blockEntryLen:]
	}
	if left != 0 {
		return nil, fault("footer: %d bytes between the list and the footer, which starts at %d", left, end)
	}
	f.blocks, f.list = f.blocks[:blocks], f.blocks[blocks]
	for i := range f.traces {
		t := Info{
			TraceID: tga.ID(b[:16]), Block: binary.BigEndian.Uint32(b[16:]), Notes: binary.BigEndian.Uint32(b[20:]),
			First: binary.BigEndian.Uint64(b[24:]), Last: binary.BigEndian.Uint64(b[32:]),
			HeadDigest: tga.Digest(b[40:72]), NoteDigest: tga.Digest(b[72:104]),
		}
		if uint64(t.Block) >= blocks {
			return nil, fault("footer: trace %s in block %d of %d", t.TraceID, t.Block, blocks)
		}
		if i > 0 && compareIDs(f.traces[i-1].TraceID, t.TraceID) >= 0 {
			return nil, fault("footer: trace %s out of order", t.TraceID)
		}
		f.traces[i] = t
		b = b[traceEntryLen:]
	}
	return f, nil
}

type trailer struct {
	offset, length     uint64 // of the footer
	footerSum, fileSum tga.Digest
}

func (t *trailer) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, t.offset)
	dst = binary.BigEndian.AppendUint64(dst, t.length)
	dst = append(dst, t.footerSum[:]...)
	dst = append(dst, t.fileSum[:]...)
	return append(dst, trailerMagic...)
}

// decodeTrailer reads the last bytes of a segment of a given size.
func decodeTrailer(b []byte, size int64) (trailer, error) {
	if len(b) != trailerLen || string(b[80:]) != trailerMagic {
		return trailer{}, fault("trailer: segment does not end with one: cut short, or with bytes added")
	}
	t := trailer{
		offset: binary.BigEndian.Uint64(b), length: binary.BigEndian.Uint64(b[8:]),
		footerSum: tga.Digest(b[16:48]), fileSum: tga.Digest(b[48:80]),
	}
	room := uint64(size) - headerLen - trailerLen
	if t.length > maxFooter || t.length > room || t.offset != headerLen+room-t.length {
		return trailer{}, fault("trailer: footer of %d bytes at %d in a segment of %d", t.length, t.offset, size)
	}
	return t, nil
}

func compareIDs(a, b tga.ID) int {
	for i := range a {
		if a[i] != b[i] {
			return int(a[i]) - int(b[i])
		}
	}
	return 0
}

// fault makes an error about the bytes of a segment.
func fault(format string, args ...any) *tga.Error {
	err := tga.Errorf(tga.StateChecksumMismatch, "segment "+format, args...)
	err.Where = "stored"
	return err
}

func mismatch(what string, want, got tga.Digest) *tga.Error {
	err := fault("%s: stored %s, computed %s", what, got, want)
	err.WantDigest, err.GotDigest = want, got
	return err
}

func (f *footer) find(id tga.ID) (int, bool) {
	return slices.BinarySearchFunc(f.traces, id, func(t Info, id tga.ID) int { return compareIDs(t.TraceID, id) })
}

func (f *footer) lookup(id tga.ID) (Info, bool) {
	i, ok := f.find(id)
	if !ok {
		return Info{}, false
	}
	return f.traces[i], true
}
