package chain

import (
	"encoding/binary"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// MaxInline is the size in bytes up to which a part is stored in the frame. A longer part is
// spilled: it is stored in chunks beside the frame, so that a scan of entries does not read
// tool answers.
const MaxInline = 32 << 10

// ChunkSize is the size in bytes of the chunks into which a store cuts spilled parts. MaxSpill
// is the most that the two-byte chunk number of a key has room for.
const (
	ChunkSize = 64 << 10
	MaxSpill  = ChunkSize << 16
)

// An entry frame holds one entry and its parts: the artifact, then the documents.
// Integers are big-endian.
//
//	     0      1      2      3      4      5      6      7
//	 0  'E'    version flags         from   to     type   parts
//	 8  seq
//	16  trace id[16]
//	32  committed, milliseconds since 1970
//	40  epoch
//	48  prev entry digest[32]
//	80  entry digest[32]
//	112 key length                  frame length
//	120 artifact digest[32]
//	152 artifact id[16]
//	168 tool call id[16], zeros for null
//	184 ts, milliseconds since 1970
//	192 idempotency key, none for null
//	    parts
//
//	part
//	 0  encoding (1 byte), place (1), pointer length (2), size of the bytes (8)
//	12  pointer, empty for the artifact
//	    the bytes, where place is inline
//
// The canonical entry, which entry_digest covers, is made from these fields. It has no other
// members, and exactly one form.
//
// encoding is 0 plain, 1 sealed under a key id, 2 erased; place is 0 inline,
// 1 spilled. The bytes of spilled parts follow each other in the order of the parts,
// in what AppendFrame returns as spill.
//
// If the artifact is erased, it is the only part of its frame: without document_hashes nothing
// says what documents there should be. A document may be erased while its artifact stays.
//
// A frame of version 2 is that of an entry with a key. Its artifact is sealed, each document
// is sealed or erased, and all are sealed under one key; size and place are those of the sealed
// bytes, see [Keys]. A frame of version 1 with a sealed part is FORMAT_TOO_NEW: no version of
// this program writes one, but the bytes of another program may be good.
//
// flags repeat what the parts say, so that a scan sees it in the header: flagSpilled,
// flagErased, flagDocuments, and in version 2, always, flagSealed. Any other flag, and flags
// that disagree with the parts, are STATE_CHECKSUM_MISMATCH. A newer version is
// FORMAT_TOO_NEW. A new flag needs a new version.
//
// No digest covers committed and epoch. They are the store's own record of the append, and
// no decision that must be provable depends on them.
const (
	entryMagic = 'E'
	headerLen  = 192
	partLen    = 12

	flagSpilled   = 1 << 0 // some part is spilled
	flagErased    = 1 << 1 // some part is erased
	flagDocuments = 1 << 2 // there are parts beside the artifact
	flagSealed    = 1 << 3 // the parts are sealed
	knownFlags    = flagSpilled | flagErased | flagDocuments

	plain  = 0
	sealed = 1
	erased = 2

	inline  = 0
	spilled = 1
)

// AppendFrame appends e's frame to dst. It also returns the bytes of the parts over
// [MaxInline], which the store keeps in chunks of [ChunkSize]; nil if there are none. A part
// without bytes to keep (Artifact nil, Document.Erased) is written as erased, so the same
// function makes the frame of an entry whose content was destroyed. AppendFrame seals nothing,
// whatever key e has: see [AppendSealedFrame]. [Trace.Apply] refuses an entry over the sizes
// that a frame can hold. AppendFrame panics for such an entry.
func AppendFrame(dst []byte, e *Entry) (frame, spill []byte) {
	frame, spill, err := appendFrame(dst, e, nil)
	if err != nil {
		panic("wal: " + err.Error()) // nothing seals, so nothing fails
	}
	return frame, spill
}

// framing is a frame that is being made.
type framing struct {
	seal       func(part int, pointer string, data []byte) ([]byte, error) // nil: nothing is sealed
	dst, spill []byte
	parts      int
	flags      uint16
}

// part appends the next part; gone says that its bytes were destroyed.
func (f *framing) part(pointer string, data []byte, gone bool) error {
	encoding, place := byte(plain), byte(inline)
	if gone {
		encoding, data = erased, nil
		f.flags |= flagErased
	} else if f.seal != nil {
		encoding = sealed
		f.flags |= flagSealed
		var err error
		if data, err = f.seal(f.parts, pointer, data); err != nil {
			return err
		}
	}
	if len(data) > MaxInline {
		place = spilled
		f.flags |= flagSpilled
	}
	f.parts++
	f.dst = append(f.dst, encoding, place)
	f.dst = binary.BigEndian.AppendUint16(f.dst, uint16(len(pointer)))
	f.dst = binary.BigEndian.AppendUint64(f.dst, uint64(len(data)))
	f.dst = append(f.dst, pointer...)
	if place == spilled {
		f.spill = append(f.spill, data...)
	} else {
		f.dst = append(f.dst, data...)
	}
	return nil
}

// appendFrame makes the frame of e. If seal is not nil, it seals each part.
func appendFrame(dst []byte, e *Entry, seal func(part int, pointer string, data []byte) ([]byte, error)) (frame, spill []byte, err error) {
	start := len(dst)
	dst = slices.Grow(dst, frameRoom(e))
	dst = append(dst, make([]byte, headerLen)...)
	f := framing{seal: seal, dst: append(dst, e.IdempotencyKey...)}
	if len(e.Documents) > 0 {
		f.flags |= flagDocuments
	}
	if frameLimits(e) != "" {
		panic("wal: frame of an entry with " + frameLimits(e))
	}
	if e.Artifact == nil {
		err = f.part("", nil, true)
	} else {
		err = f.part("", e.Artifact.Canonical, false)
	}
	for i := 0; i < len(e.Documents) && err == nil; i++ {
		d := &e.Documents[i]
		err = f.part(d.Pointer, d.Data, d.Erased)
	}
	if err != nil {
		return nil, nil, err
	}
	h := f.dst[start:]
	h[0], h[1] = entryMagic, tga.EntryFrameVersion
	if seal != nil {
		h[1] = tga.SealedFrameVersion
	}
	binary.BigEndian.PutUint16(h[2:], f.flags)
	h[4], h[5], h[6], h[7] = byte(e.From), byte(e.To), byte(e.Type), byte(1+len(e.Documents))
	binary.BigEndian.PutUint64(h[8:], e.Seq)
	copy(h[16:], e.TraceID[:])
	binary.BigEndian.PutUint64(h[32:], uint64(e.Committed))
	binary.BigEndian.PutUint64(h[40:], uint64(e.Epoch))
	copy(h[48:], e.Prev[:])
	copy(h[80:], e.Digest[:])
	binary.BigEndian.PutUint32(h[112:], uint32(len(e.IdempotencyKey)))
	binary.BigEndian.PutUint32(h[116:], uint32(len(h)))
	copy(h[120:], e.ArtifactDigest[:])
	copy(h[152:], e.ArtifactID[:])
	copy(h[168:], e.ToolCallID[:])
	binary.BigEndian.PutUint64(h[184:], uint64(e.TS))
	return f.dst, f.spill, nil
}

// frameRoom estimates the length of e's frame, so that it is allocated once. A spilled part
// counts as MaxInline bytes.
func frameRoom(e *Entry) int {
	over := 0
	if e.Key != 0 {
		over = keyLen + SealOverhead
	}
	n := headerLen + partLen + over + len(e.IdempotencyKey)
	if e.Artifact != nil {
		n += min(len(e.Artifact.Canonical), MaxInline)
	}
	for _, d := range e.Documents {
		n += partLen + over + len(d.Pointer) + min(len(d.Data), MaxInline)
	}
	return n
}

// frameLimits says what in e is too large for a frame, "" for nothing. Within these limits the
// inline parts and the entry stay far below 4 GiB, the most that the frame length can express.
func frameLimits(e *Entry) string {
	const maxDocuments, maxPointer = 254, 1 << 10
	if len(e.Documents) > maxDocuments {
		return "over 254 documents"
	}
	var size int64
	if e.Artifact != nil {
		size = int64(len(e.Artifact.Canonical))
	}
	for _, d := range e.Documents {
		if len(d.Pointer) > maxPointer {
			return "a document pointer over 1 KiB"
		}
		size += int64(len(d.Data))
	}
	if e.Key != 0 {
		size += int64(1+len(e.Documents)) * (keyLen + SealOverhead)
	}
	if size > MaxSpill {
		return "over 4 GiB of parts"
	}
	return ""
}

// header is an entry frame without its parts.
type header struct {
	tga.LogEntry
	version   byte
	flags     uint16
	parts     int
	committed tga.Millis
	epoch     Epoch
}

func decodeHeader(frame []byte) (header, error) {
	var h header
	if len(frame) < 2 || frame[0] != entryMagic {
		return h, storedFault(h, tga.StateChecksumMismatch, "no entry frame: %d bytes", len(frame))
	}
	if v := frame[1]; v > tga.SealedFrameVersion {
		return h, storedFault(h, tga.FormatTooNew, "entry frame of version %d, this program knows %d", v, tga.SealedFrameVersion)
	}
	if len(frame) < headerLen || frame[1] < tga.EntryFrameVersion {
		return h, storedFault(h, tga.StateChecksumMismatch, "no entry frame: version %d, %d bytes", frame[1], len(frame))
	}
	h = header{
		version:   frame[1],
		flags:     binary.BigEndian.Uint16(frame[2:]),
		parts:     int(frame[7]),
		committed: tga.Millis(binary.BigEndian.Uint64(frame[32:])),
		epoch:     Epoch(binary.BigEndian.Uint64(frame[40:])),
		LogEntry: tga.LogEntry{
			From: tga.State(frame[4]), To: tga.State(frame[5]), Type: tga.ArtifactType(frame[6]),
			Seq:            binary.BigEndian.Uint64(frame[8:]),
			TraceID:        tga.ID(frame[16:32]),
			Prev:           tga.Digest(frame[48:80]),
			Digest:         tga.Digest(frame[80:112]),
			ArtifactDigest: tga.Digest(frame[120:152]),
			ArtifactID:     tga.ID(frame[152:168]),
			ToolCallID:     tga.ID(frame[168:184]),
			TS:             tga.Millis(binary.BigEndian.Uint64(frame[184:])),
		},
	}
	keyLen := binary.BigEndian.Uint32(frame[112:])
	if n := binary.BigEndian.Uint32(frame[116:]); uint64(n) != uint64(len(frame)) {
		return h, storedFault(h, tga.StateChecksumMismatch, "entry frame has %d bytes, its header says %d", len(frame), n)
	}
	if uint64(keyLen) > uint64(len(frame)-headerLen) {
		return h, storedFault(h, tga.StateChecksumMismatch, "key of %d bytes in a frame of %d", keyLen, len(frame))
	}
	h.IdempotencyKey = string(frame[headerLen : headerLen+int(keyLen)])
	known := uint16(knownFlags)
	if h.version == tga.SealedFrameVersion {
		known |= flagSealed
	}
	if h.flags&^known != 0 {
		return h, storedFault(h, tga.StateChecksumMismatch, "unknown frame flags %#x", h.flags&^known)
	}
	return h, nil
}

// storedFault makes an error about a stored entry that its header names.
func storedFault(h header, code tga.Code, format string, args ...any) *tga.Error {
	err := tga.Errorf(code, "trace %s seq %d: "+format, append([]any{h.TraceID, h.Seq}, args...)...).In(h.TraceID)
	err.Seq, err.Where = h.Seq, "stored"
	return err
}
