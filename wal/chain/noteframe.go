package chain

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// A note frame holds one note. Integers are big-endian.
//
//	     0      1      2      3      4      5      6      7
//	 0  'N'    version flags         note number
//	 8  committed, milliseconds since 1970
//	16  epoch
//	24  trace id[16]
//	40  prev note digest[32]
//	72  note digest[32]
//	104 preimage length             frame length
//	112 preimage: canonical note without note_digest
//
// Version 1 has no flags: a flag that is set is STATE_CHECKSUM_MISMATCH. A newer version is
// FORMAT_TOO_NEW.
const (
	noteMagic     = 'N'
	noteHeaderLen = 112
)

// AppendNoteFrame appends the frame of a note that was committed at a time under an
// epoch.
func AppendNoteFrame(dst []byte, n *tga.Note, committed tga.Millis, epoch Epoch) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, noteHeaderLen)...)
	dst = n.AppendPreimage(dst)
	h := dst[start:]
	h[0], h[1] = noteMagic, tga.NoteFrameVersion
	binary.BigEndian.PutUint32(h[4:], n.Number)
	binary.BigEndian.PutUint64(h[8:], uint64(committed))
	binary.BigEndian.PutUint64(h[16:], uint64(epoch))
	copy(h[24:], n.TraceID[:])
	copy(h[40:], n.Prev[:])
	copy(h[72:], n.Digest[:])
	binary.BigEndian.PutUint32(h[104:], uint32(len(h)-noteHeaderLen))
	binary.BigEndian.PutUint32(h[108:], uint32(len(h)))
	return dst
}

// DecodeNoteFrame reads a note frame and checks its lengths, its header against the
// canonical note, and the note digest over the canonical bytes. Errors are those of
// [DecodeFrame], with the note's number.
func DecodeNoteFrame(b []byte) (n tga.Note, committed tga.Millis, epoch Epoch, err error) {
	none := func(err error) (tga.Note, tga.Millis, Epoch, error) { return tga.Note{}, 0, 0, err }
	switch {
	case len(b) < 2 || b[0] != noteMagic:
		return none(noteFault(tga.ID{}, 0, tga.StateChecksumMismatch, "no note frame: %d bytes", len(b)))
	case b[1] > tga.NoteFrameVersion:
		return none(noteFault(tga.ID{}, 0, tga.FormatTooNew, "note frame of version %d, this program knows %d", b[1], tga.NoteFrameVersion))
	case b[1] != tga.NoteFrameVersion || len(b) < noteHeaderLen:
		return none(noteFault(tga.ID{}, 0, tga.StateChecksumMismatch, "no note frame: version %d, %d bytes", b[1], len(b)))
	}
	number, trace := binary.BigEndian.Uint32(b[4:]), tga.ID(b[24:40])
	prev, digest := tga.Digest(b[40:72]), tga.Digest(b[72:104])
	size, whole := binary.BigEndian.Uint32(b[104:]), binary.BigEndian.Uint32(b[108:])
	preimage := b[noteHeaderLen:]
	switch {
	case b[2] != 0 || b[3] != 0:
		return none(noteFault(trace, number, tga.StateChecksumMismatch, "unknown frame flags %x", b[2:4]))
	case uint64(size) != uint64(len(preimage)) || uint64(whole) != uint64(len(b)):
		return none(noteFault(trace, number, tga.StateChecksumMismatch, "frame has %d bytes, its header says %d, of which note %d", len(b), whole, size))
	}
	if sum := tga.Sum(preimage); sum != digest {
		err := noteFault(trace, number, tga.StateChecksumMismatch, "note_digest is %s, want %s", digest, sum)
		err.WantDigest, err.GotDigest = sum, digest
		return none(err)
	}
	note, err := tga.DecodeNotePreimage(preimage)
	if err != nil {
		return none(noteFault(trace, number, tga.StateChecksumMismatch, "canonical note: %w", err))
	}
	if note.Number != number || note.TraceID != trace || note.Prev != prev {
		return none(noteFault(trace, number, tga.StateChecksumMismatch, "header differs from the note %d of trace %s", note.Number, note.TraceID))
	}
	return *note, tga.Millis(binary.BigEndian.Uint64(b[8:])), Epoch(binary.BigEndian.Uint64(b[16:])), nil
}

// noteFault makes an error about a stored note.
func noteFault(trace tga.ID, number uint32, code tga.Code, format string, args ...any) *tga.Error {
	err := tga.Errorf(code, "trace %s note %d: "+format, append([]any{trace, number}, args...)...).In(trace)
	err.Note, err.Where = number, "stored"
	return err
}
