package keyspace

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// AppendLedger appends the key of a ledger record. digest is SHA-256 of the
// length-prefixed parts of the record's key, so that it has one width.
func AppendLedger(dst []byte, digest [32]byte) []byte { return appendDigest(dst, Ledger, digest) }

// ParseLedger reads the key of a ledger record.
func ParseLedger(key []byte) (digest [32]byte, err error) { return parseDigest(key, Ledger) }

// LedgerBounds returns the bounds of the ledger records.
func LedgerBounds() (lower, upper []byte) { return Bounds(Ledger) }

// AppendGlobal appends the key of a batch in the global order.
func AppendGlobal(dst []byte, index uint64) []byte { return appendNumber(dst, Global, index) }

// ParseGlobal reads the key of a batch in the global order.
func ParseGlobal(key []byte) (index uint64, err error) { return parseNumber(key, Global) }

// GlobalBounds returns the bounds of the global order.
func GlobalBounds() (lower, upper []byte) { return Bounds(Global) }

// AppendSegment appends the key of a sealed segment.
func AppendSegment(dst []byte, number uint64) []byte { return appendNumber(dst, Segment, number) }

// ParseSegment reads the key of a sealed segment.
func ParseSegment(key []byte) (number uint64, err error) { return parseNumber(key, Segment) }

// SegmentBounds returns the bounds of the sealed segments.
func SegmentBounds() (lower, upper []byte) { return Bounds(Segment) }

// AppendMeta appends the key of a piece of store metadata. The name is a constant of
// the program: one that [ParseMeta] would refuse is a programmer's error and panics.
func AppendMeta(dst []byte, name string) []byte {
	if !metaName([]byte(name)) {
		panic("keyspace: meta name " + name)
	}
	return append(append(dst, byte(Meta)), name...)
}

// ParseMeta reads the key of a piece of store metadata.
func ParseMeta(key []byte) (name string, err error) {
	if len(key) == 0 || key[0] != byte(Meta) {
		return "", malformed("m key", key, "other kind")
	}
	if !metaName(key[1:]) {
		return "", malformed("m key", key, "name is not 1..64 of [a-z0-9_.-]")
	}
	return string(key[1:]), nil
}

// MetaBounds returns the bounds of the store metadata.
func MetaBounds() (lower, upper []byte) { return Bounds(Meta) }

func metaName(name []byte) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return 1 <= len(name) && len(name) <= maxName
}

func appendNumber(dst []byte, kind Kind, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, byte(kind)), n)
}

func parseNumber(key []byte, kind Kind) (uint64, error) {
	b, err := fields(key, kind)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b), nil
}

func appendDigest(dst []byte, kind Kind, digest tga.Digest) []byte {
	return append(append(dst, byte(kind)), digest[:]...)
}

func parseDigest(key []byte, kind Kind) (tga.Digest, error) {
	b, err := fields(key, kind)
	if err != nil {
		return tga.Digest{}, err
	}
	return tga.Digest(b), nil
}
