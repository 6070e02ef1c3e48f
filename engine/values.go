package engine

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The values below start with a version byte. A later version is FORMAT_TOO_NEW; bytes
// of any other shape are STATE_CHECKSUM_MISMATCH with Where "stored". Integers are
// big-endian.

// value checks the version byte, and checks that exactly size bytes follow it, or at least size
// bytes if open is true.
func value(what string, b []byte, size int, open bool) ([]byte, error) {
	if len(b) > 0 && b[0] > tga.StoreValueVersion {
		return nil, tga.Errorf(tga.FormatTooNew, "%s of version %d; this program reads %d", what, b[0], tga.StoreValueVersion)
	}
	if len(b) < 1+size || b[0] != tga.StoreValueVersion || !open && len(b) != 1+size {
		return nil, damaged("%s of %d bytes is none of version %d", what, len(b), tga.StoreValueVersion)
	}
	return b[1:], nil
}

func damaged(format string, args ...any) *tga.Error {
	err := tga.Errorf(tga.StateChecksumMismatch, format, args...)
	err.Where = "stored"
	return err
}

// Value of an `o` key: state 1 · since 8 · deadline 8 · namespace. It is a function of the
// trace's log. It is stored so that recovery need not read finished traces.
func appendOpenValue(dst []byte, t *chain.Trace) []byte {
	dst = append(dst, tga.StoreValueVersion, byte(t.Head.State))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.Entries[len(t.Entries)-1].TS))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.Deadline))
	return append(dst, t.Namespace...)
}

func decodeOpenValue(id tga.ID, b []byte) (chain.OpenTrace, error) {
	b, err := value("open index", b, 17, true)
	if err != nil {
		return chain.OpenTrace{}, err
	}
	return chain.OpenTrace{
		TraceID:   id,
		State:     tga.State(b[0]),
		Since:     tga.Millis(binary.BigEndian.Uint64(b[1:])),
		Deadline:  tga.Millis(binary.BigEndian.Uint64(b[9:])),
		Namespace: string(b[17:]),
	}, nil
}

// Leaf is one position of the global order.
type Leaf = chain.Leaf

// Value of a `g` key: trace 16 · first seq 8 · entries 2 · first note 4 ·
// notes 2 · head digest 32 · note digest 32 · newest commit time 8 · newest ts 8. The
// index is in the key.
const leafSize = 16 + 8 + 2 + 4 + 2 + 32 + 32 + 8 + 8

// leafLen is the length of that value, with its version.
const leafLen = 1 + leafSize

func appendLeafValue(dst []byte, l *Leaf) []byte {
	dst = append(dst, tga.StoreValueVersion)
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

func decodeLeaf(index uint64, b []byte) (Leaf, error) {
	b, err := value("order leaf", b, leafSize, false)
	if err != nil {
		return Leaf{}, err
	}
	return Leaf{
		Index:      index,
		TraceID:    tga.ID(b[:16]),
		FirstSeq:   binary.BigEndian.Uint64(b[16:]),
		Entries:    binary.BigEndian.Uint16(b[24:]),
		FirstNote:  binary.BigEndian.Uint32(b[26:]),
		Notes:      binary.BigEndian.Uint16(b[30:]),
		HeadDigest: tga.Digest(b[32:64]),
		NoteDigest: tga.Digest(b[64:96]),
		Committed:  tga.Millis(binary.BigEndian.Uint64(b[96:])),
		NewestTS:   tga.Millis(binary.BigEndian.Uint64(b[104:])),
	}, nil
}

// tombstone is what the store keeps of an archived trace outside its archive segment.
type tombstone struct {
	First, Last uint64 // sequence numbers
	Head        tga.Digest
	Segment     uint64
}

// Value of an `r` key: first 8 · last 8 · head digest 32 · segment 8.
func (t tombstone) appendValue(dst []byte) []byte {
	dst = append(dst, tga.StoreValueVersion)
	dst = binary.BigEndian.AppendUint64(dst, t.First)
	dst = binary.BigEndian.AppendUint64(dst, t.Last)
	dst = append(dst, t.Head[:]...)
	return binary.BigEndian.AppendUint64(dst, t.Segment)
}

func decodeTombstone(b []byte) (tombstone, error) {
	b, err := value("tombstone", b, 56, false)
	if err != nil {
		return tombstone{}, err
	}
	return tombstone{
		First:   binary.BigEndian.Uint64(b),
		Last:    binary.BigEndian.Uint64(b[8:]),
		Head:    tga.Digest(b[16:48]),
		Segment: binary.BigEndian.Uint64(b[48:]),
	}, nil
}
