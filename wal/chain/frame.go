package chain

import (
	"encoding/binary"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// MaxInline is the size in bytes up to which a part lies in the frame. A longer one
// is spilled, so that a scan of entries does not read tool answers.
const MaxInline = 32 << 10

// ChunkSize is the size in bytes of the pieces into which a store cuts what spills.
// MaxSpill is what the two-byte chunk number of a key leaves room for.
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
// The canonical entry, which entry_digest is the digest of, is made from these fields: it
// has no other, and one form.
//
// encoding is 0 plain, 1 sealed under a key id, 2 erased; place is 0 inline,
// 1 spilled. The bytes of spilled parts follow each other in the order of the parts,
// in what AppendFrame returns as spill.
//
// An erased artifact is the only part of its frame: without document_hashes nothing says
// what documents there should be. A document alone may be erased beside its artifact.
//
// Sealed is reserved: no version-1 frame has a sealed part, and decode answers
// FORMAT_TOO_NEW, because the bytes may be good and this program cannot tell.
//
// flags say what the parts say, so that a scan sees it in the header: flagSpilled,
// flagErased, flagDocuments. A version 1 frame has no other; decode refuses one that
// has (STATE_CHECKSUM_MISMATCH) and one whose flags and parts disagree. A newer
// version is FORMAT_TOO_NEW. What a new flag would mean takes a new version.
//
// Committed and epoch are under no digest: they are the store's own account of the
// append, nothing is decided from them that a digest has to carry.
const (
	entryMagic = 'E'
	headerLen  = 192
	partLen    = 12

	flagSpilled   = 1 << 0 // some part is spilled
	flagErased    = 1 << 1 // some part is erased
	flagDocuments = 1 << 2 // there are parts beside the artifact
	knownFlags    = flagSpilled | flagErased | flagDocuments

	plain  = 0
	sealed = 1
	erased = 2

	inline  = 0
	spilled = 1
)

// AppendFrame appends e's frame to dst, and returns beside it the bytes of the parts
// over [MaxInline], which the store keeps in chunks of [ChunkSize]; nil where there
// are none. A part without bytes to keep (Artifact nil, Document.Erased) is written
// as erased, so the frame of an entry whose content was destroyed is made by the same
// function. [Trace.Apply] has refused an entry over the sizes that a frame can hold;
// one that did not pass it may make AppendFrame panic.
func AppendFrame(dst []byte, e *Entry) (frame, spill []byte) {
	start := len(dst)
	dst = slices.Grow(dst, frameRoom(e))
	dst = append(dst, make([]byte, headerLen)...)
	dst = append(dst, e.IdempotencyKey...)

	var flags uint16
	if len(e.Documents) > 0 {
		flags |= flagDocuments
	}
	part := func(pointer string, data []byte, gone bool) {
		encoding, place := byte(plain), byte(inline)
		switch {
		case gone:
			encoding, data = erased, nil
			flags |= flagErased
		case len(data) > MaxInline:
			place = spilled
			flags |= flagSpilled
		}
		dst = append(dst, encoding, place)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(pointer)))
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(data)))
		dst = append(dst, pointer...)
		if place == spilled {
			spill = append(spill, data...)
		} else {
			dst = append(dst, data...)
		}
	}
	if e.Artifact == nil {
		part("", nil, true)
	} else {
		part("", e.Artifact.Canonical, false)
	}
	for _, d := range e.Documents {
		part(d.Pointer, d.Data, d.Erased)
	}
	if frameLimits(e) != "" {
		panic("wal: frame of an entry with " + frameLimits(e))
	}

	h := dst[start:]
	h[0], h[1] = entryMagic, tga.EntryFrameVersion
	binary.BigEndian.PutUint16(h[2:], flags)
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
	return dst, spill
}

// frameRoom estimates the length of e's frame, so that it is made in one piece. A part that is
// spilled counts as the longest one that is not.
func frameRoom(e *Entry) int {
	n := headerLen + partLen + len(e.IdempotencyKey)
	if e.Artifact != nil {
		n += min(len(e.Artifact.Canonical), MaxInline)
	}
	for _, d := range e.Documents {
		n += partLen + len(d.Pointer) + min(len(d.Data), MaxInline)
	}
	return n
}

// frameLimits says what of e a frame has no room for, "" for nothing. Within these
// limits the inline parts and the entry stay far below 4 GiB, the most that the frame
// length can say.
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
	if size > MaxSpill {
		return "over 4 GiB of parts"
	}
	return ""
}

// header is an entry frame without its parts.
type header struct {
	tga.LogEntry
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
	if v := frame[1]; v > tga.EntryFrameVersion {
		return h, storedFault(h, tga.FormatTooNew, "entry frame of version %d, this program knows %d", v, tga.EntryFrameVersion)
	}
	if len(frame) < headerLen || frame[1] != tga.EntryFrameVersion {
		return h, storedFault(h, tga.StateChecksumMismatch, "no entry frame: version %d, %d bytes", frame[1], len(frame))
	}
	h = header{
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
	if h.flags&^knownFlags != 0 {
		return h, storedFault(h, tga.StateChecksumMismatch, "unknown frame flags %#x", h.flags&^knownFlags)
	}
	return h, nil
}

// storedFault makes an error about a stored entry that its header names.
func storedFault(h header, code tga.Code, format string, args ...any) *tga.Error {
	err := tga.Errorf(code, "trace %s seq %d: "+format, append([]any{h.TraceID, h.Seq}, args...)...).In(h.TraceID)
	err.Seq, err.Where = h.Seq, "stored"
	return err
}
