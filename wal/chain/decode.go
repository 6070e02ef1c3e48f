package chain

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// DecodeFrame reads an entry frame and checks that it is consistent in itself: its exact
// lengths, its flags against its parts, the entry digest over the canonical entry made from
// its fields, the artifact's digest over its bytes and against artifact_digest, and each
// document's digest and size against document_hashes. So its result may be shown to anyone.
// Whether the entry is at the right place in its trace is for [Replay] to check, which does
// not recompute these digests.
//
// If bytes were spilled, DecodeFrame calls readSpill once with their number, and readSpill
// returns exactly that many. It may be nil if the caller has none. The Entry keeps frame and
// the spilled bytes, so nobody may modify them afterwards.
//
// Errors are STATE_CHECKSUM_MISMATCH with Where "stored", trace and seq, and with both digests
// if two differ; FORMAT_TOO_NEW for a newer version; STORE_UNAVAILABLE for a frame with sealed
// parts, which [DecodeSealedFrame] reads; and readSpill's own error.
func DecodeFrame(frame []byte, readSpill func(size int64) ([]byte, error)) (Entry, error) {
	return DecodeSealedFrame(frame, nil, readSpill)
}

// DecodeSealedFrame is [DecodeFrame] for a frame whose parts may be sealed. If the entry's key
// was destroyed, the entry reads as one whose parts were erased, and still has the key's id.
// If keys is nil, or the key cannot be fetched now, the error is STORE_UNAVAILABLE: the trace
// itself is not at fault.
func DecodeSealedFrame(frame []byte, keys Keys, readSpill func(size int64) ([]byte, error)) (Entry, error) {
	h, err := decodeHeader(frame)
	if err != nil {
		return Entry{}, err
	}
	preimage := h.AppendPreimage(make([]byte, 0, preimageRoom+len(h.IdempotencyKey)))
	if sum := tga.Sum(preimage); sum != h.Digest {
		return Entry{}, storedMismatch(h, "entry_digest", sum, h.Digest)
	}
	// A right digest does not make the bytes a valid entry: another program may have
	// written them.
	if _, err := tga.DecodeEntryPreimage(preimage); err != nil {
		return Entry{}, storedFault(h, tga.StateChecksumMismatch, "canonical entry: %w", err)
	}
	parts, err := decodeParts(h, frame[headerLen+len(h.IdempotencyKey):], readSpill)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{LogEntry: h.LogEntry, Preimage: preimage, Committed: h.committed, Epoch: h.epoch}
	if h.version == tga.SealedFrameVersion {
		if open, err := e.open(h, parts, keys); err != nil {
			return Entry{}, err
		} else if !open {
			e.proof = proofOf(&e)
			return e, nil
		}
	}
	for _, p := range parts[1:] {
		e.Documents = append(e.Documents, Document{Pointer: p.pointer, Data: p.data, Erased: p.encoding == erased})
	}
	if parts[0].encoding != erased {
		a, err := tga.DecodeStoredArtifact(parts[0].data)
		if err != nil {
			return Entry{}, storedCause(h, err)
		}
		if a.Type != e.Type || a.ID != e.ArtifactID {
			return Entry{}, storedFault(h, tga.StateChecksumMismatch, "artifact is %s %s, its entry says %s %s",
				a.Type, a.ID, e.Type, e.ArtifactID)
		}
		if a.Digest != e.ArtifactDigest {
			return Entry{}, storedMismatch(h, "artifact's digest", e.ArtifactDigest, a.Digest)
		}
		e.Artifact = a
	}
	if err := checkDocuments(&e); err != nil {
		return Entry{}, storedCause(h, err)
	}
	e.proof = proofOf(&e)
	return e, nil
}

type part struct {
	encoding, place byte
	pointer         string
	data            []byte
	size            uint64
}

// decodeParts reads b, which must hold exactly the header's number of parts.
func decodeParts(h header, b []byte, readSpill func(size int64) ([]byte, error)) ([]part, error) {
	if h.parts == 0 {
		return nil, storedFault(h, tga.StateChecksumMismatch, "entry without a part for its artifact")
	}
	parts := make([]part, h.parts)
	var flags uint16
	var spill uint64
	for i := range parts {
		p, rest, err := decodePart(h, i, b)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			flags |= flagDocuments
		}
		if p.encoding == erased {
			flags |= flagErased
		}
		if p.encoding == sealed {
			flags |= flagSealed
		}
		if p.place == spilled {
			flags |= flagSpilled
			spill += p.size
		}
		parts[i], b = p, rest
	}
	if len(b) != 0 {
		return nil, storedFault(h, tga.StateChecksumMismatch, "%d bytes after the last part", len(b))
	}
	if flags != h.flags {
		return nil, storedFault(h, tga.StateChecksumMismatch, "frame flags are %#x, its parts say %#x", h.flags, flags)
	}
	if spill == 0 {
		return parts, nil
	}
	// Each size is at most MaxSpill and there are at most 255, so the sum is exact.
	if spill > MaxSpill {
		return nil, storedFault(h, tga.StateChecksumMismatch, "%d bytes spilled, over %d", spill, int64(MaxSpill))
	}
	if readSpill == nil {
		return nil, storedFault(h, tga.StateChecksumMismatch, "%d bytes spilled and no chunks", spill)
	}
	data, err := readSpill(int64(spill))
	if err != nil {
		return nil, err
	}
	if uint64(len(data)) != spill {
		return nil, storedFault(h, tga.StateChecksumMismatch, "%d bytes in chunks, the frame says %d", len(data), spill)
	}
	for i := range parts {
		if p := &parts[i]; p.place == spilled {
			p.data, data = data[:p.size:p.size], data[p.size:]
		}
	}
	return parts, nil
}

func decodePart(h header, i int, b []byte) (p part, rest []byte, err error) {
	fault := func(code tga.Code, why string) (part, []byte, error) {
		return part{}, nil, storedFault(h, code, "part %d: %s", i, why)
	}
	if len(b) < partLen {
		return fault(tga.StateChecksumMismatch, "cut short")
	}
	p = part{encoding: b[0], place: b[1], size: binary.BigEndian.Uint64(b[4:])}
	pointerLen := int(binary.BigEndian.Uint16(b[2:]))
	b = b[partLen:]
	switch {
	case p.encoding > erased:
		return fault(tga.StateChecksumMismatch, "unknown encoding")
	case p.encoding == sealed && h.version != tga.SealedFrameVersion:
		return fault(tga.FormatTooNew, "sealed, and the frame's version has no keys")
	case h.version == tga.SealedFrameVersion && (p.encoding == plain || p.encoding == erased && i == 0):
		return fault(tga.StateChecksumMismatch, "not sealed, in a frame of version 2")
	case p.encoding == sealed && p.size < keyLen+SealOverhead:
		return fault(tga.StateChecksumMismatch, "sealed, and shorter than nothing would be")
	case p.encoding == erased && (p.size != 0 || p.place != inline):
		return fault(tga.StateChecksumMismatch, "erased, but with bytes")
	case p.place == inline && p.size > MaxInline, p.place == spilled && p.size <= MaxInline,
		p.place > spilled, p.size > MaxSpill:
		// An entry has exactly one frame, so a size has exactly one place.
		return fault(tga.StateChecksumMismatch, "its size is not for its place")
	case len(b) < pointerLen:
		return fault(tga.StateChecksumMismatch, "pointer cut short")
	case (pointerLen == 0) != (i == 0):
		return fault(tga.StateChecksumMismatch, "only the first part is without a pointer")
	}
	p.pointer, b = string(b[:pointerLen]), b[pointerLen:]
	if p.place == spilled {
		return p, b, nil
	}
	if uint64(len(b)) < p.size {
		return fault(tga.StateChecksumMismatch, "bytes cut short")
	}
	p.data = b[:p.size:p.size]
	return p, b[p.size:], nil
}

func storedMismatch(h header, what string, want, got tga.Digest) *tga.Error {
	err := storedFault(h, tga.StateChecksumMismatch, "%s is %s, want %s", what, got, want)
	err.WantDigest, err.GotDigest = want, got
	return err
}

// storedCause turns the error of a check that does not know where its input comes from into
// a fault of stored bytes. Our own bytes were checked before they were written, so whatever
// is wrong with them now is damage.
func storedCause(h header, cause error) error {
	err := storedFault(h, tga.StateChecksumMismatch, "%w", cause)
	if c, ok := cause.(*tga.Error); ok { // the digests are named where they were compared
		err.WantDigest, err.GotDigest, err.Pointer = c.WantDigest, c.GotDigest, c.Pointer
	}
	return err
}
