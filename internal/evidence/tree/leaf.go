package tree

import (
	"crypto/sha256"
	"encoding/binary"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/schemas/tga"
)

// Leaf is one append, as the store's global order records it.
type Leaf struct {
	Index     uint64 // from 1
	TraceID   tga.ID
	FirstSeq  uint64 // of the entries appended; 0 when there are none
	Entries   uint16
	FirstNote uint32 // of the notes appended; 0 when there are none
	Notes     uint16
	// HeadDigest and NoteDigest are of the trace's last entry and last note after the
	// append; NoteDigest is zero for a trace without notes.
	HeadDigest, NoteDigest tga.Digest
	// Committed and NewestTS are the newest commit time and the newest ts of any append
	// up to this one.
	Committed, NewestTS tga.Millis
}

// OfTrace says whether entries or notes were appended. Otherwise the append changed something beside
// the traces: a working state, the journal of a turn, or a timer.
func (l *Leaf) OfTrace() bool { return l.Entries > 0 || l.Notes > 0 }

// LeafSize is how many bytes a leaf has.
const LeafSize = 8 + 1 + 16 + 8 + 2 + 4 + 2 + 32 + 32 + 8 + 8

// Append appends the bytes that the tree hashes.
func (l *Leaf) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, l.Index)
	dst = append(dst, tga.EvidenceLeafVersion)
	dst = append(dst, l.TraceID[:]...)
	dst = binary.BigEndian.AppendUint64(dst, l.FirstSeq)
	dst = binary.BigEndian.AppendUint16(dst, l.Entries)
	dst = binary.BigEndian.AppendUint32(dst, l.FirstNote)
	dst = binary.BigEndian.AppendUint16(dst, l.Notes)
	dst = append(dst, l.HeadDigest[:]...)
	dst = append(dst, l.NoteDigest[:]...)
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Committed))
	return binary.BigEndian.AppendUint64(dst, uint64(l.NewestTS))
}

// ParseLeaf reads what [Leaf.Append] wrote. It ignores no byte: other bytes are another leaf or an
// error.
func ParseLeaf(b []byte) (Leaf, error) {
	if len(b) != LeafSize {
		return Leaf{}, tga.Errorf(tga.SchemaViolation, "leaf of %d bytes, want %d", len(b), LeafSize)
	}
	if b[8] != tga.EvidenceLeafVersion {
		return Leaf{}, tga.Errorf(tga.SchemaViolation, "leaf of version %d, want %d", b[8], tga.EvidenceLeafVersion)
	}
	l := Leaf{Index: binary.BigEndian.Uint64(b)}
	b = b[9:]
	copy(l.TraceID[:], b)
	l.FirstSeq = binary.BigEndian.Uint64(b[16:])
	l.Entries = binary.BigEndian.Uint16(b[24:])
	l.FirstNote = binary.BigEndian.Uint32(b[26:])
	l.Notes = binary.BigEndian.Uint16(b[30:])
	copy(l.HeadDigest[:], b[32:])
	copy(l.NoteDigest[:], b[64:])
	l.Committed = tga.Millis(binary.BigEndian.Uint64(b[96:]))
	l.NewestTS = tga.Millis(binary.BigEndian.Uint64(b[104:]))
	if l.Index == 0 {
		return Leaf{}, tga.Errorf(tga.SchemaViolation, "leaf 0: the first is 1")
	}
	return l, nil
}

// Hash returns the hash of the leaf in the tree. It is that of [tlog.RecordHash], which would allocate
// memory for each append.
func (l *Leaf) Hash() tlog.Hash {
	var b [1 + LeafSize]byte // RFC 6962 §2.1: a byte 0, then the leaf
	l.Append(b[:1])
	return sha256.Sum256(b[:])
}
