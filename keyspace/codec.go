package keyspace

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// Kind is the first byte of a key.
type Kind byte

// The kinds of keys, in byte order.
const (
	Approval   Kind = 'a'
	Chunk      Kind = 'b'
	Checkpoint Kind = 'c'
	Entry      Kind = 'e'
	Global     Kind = 'g'
	BeginID    Kind = 'i'
	Ledger     Kind = 'l'
	Meta       Kind = 'm'
	Note       Kind = 'n'
	Open       Kind = 'o'
	Timer      Kind = 'q'
	Tombstone  Kind = 'r'
	Segment    Kind = 's'
	Stream     Kind = 't'
	Blob       Kind = 'w'
)

// MaxLen is the length of the longest key, in bytes.
const MaxLen = 1 + maxName

const maxName = 64

// widths gives the whole length of a key, 0 where the kind is unknown or, as for
// Meta, the length is not fixed.
var widths = [256]int{
	Approval:   1 + 16,
	Chunk:      1 + 16 + 8 + 2,
	Checkpoint: 1 + 16 + 8,
	Entry:      1 + 16 + 8,
	Global:     1 + 8,
	BeginID:    1 + 32,
	Ledger:     1 + 32,
	Note:       1 + 16 + 4,
	Open:       1 + 16,
	Timer:      1 + 8 + 16,
	Tombstone:  1 + 16,
	Segment:    1 + 8,
	Stream:     1 + 16 + 8,
	Blob:       1 + 32,
}

// KindOf returns the kind of a key. ok is false if the key has no known kind.
func KindOf(key []byte) (Kind, bool) {
	if len(key) == 0 {
		return 0, false
	}
	k := Kind(key[0])
	return k, k == Meta || widths[k] != 0
}

// Check returns an error unless an append function can have made the key. A scan of a whole
// store checks each key with it.
func Check(key []byte) error {
	kind, ok := KindOf(key)
	if !ok {
		return malformed("key", key, "unknown kind")
	}
	var err error
	switch kind {
	case Approval, Open, Tombstone:
		_, err = parseTrace(key, kind)
	case Checkpoint:
		_, _, err = ParseCheckpoint(key)
	case Chunk:
		_, _, _, err = ParseChunk(key)
	case Entry:
		_, _, err = ParseEntry(key)
	case Note:
		_, _, err = ParseNote(key)
	case Timer:
		_, _, err = parseTimer(key)
	case Stream:
		_, _, err = parseTraceSeq(key, Stream, 0)
	case Meta:
		_, err = ParseMeta(key)
	default:
		_, err = fields(key, kind)
	}
	return err
}

// Bounds returns the bounds of all keys of a kind: lower inclusive, upper exclusive.
func Bounds(kind Kind) (lower, upper []byte) {
	return []byte{byte(kind)}, []byte{byte(kind) + 1}
}

// fields checks kind and length and returns what follows the kind byte.
func fields(key []byte, kind Kind) ([]byte, error) {
	if len(key) == 0 || key[0] != byte(kind) {
		return nil, malformed(string(rune(kind))+" key", key, "other kind")
	}
	if len(key) != widths[kind] {
		return nil, malformed(string(rune(kind))+" key", key, "wrong length")
	}
	return key[1:], nil
}

func malformed(what string, key []byte, why string) error {
	err := tga.Errorf(tga.StateChecksumMismatch, "parse %s %x: %s", what, clip(key), why)
	err.Where = "stored"
	return err
}

// clip returns the part of a key that an error repeats.
func clip(key []byte) []byte { return key[:min(len(key), 2*MaxLen)] }

// id reads a UUIDv7. Append functions write no other ids, so any other sixteen bytes are an error.
func id(key []byte, kind Kind, at int) (tga.ID, error) {
	v := tga.ID(key[at : at+16])
	if v[6]>>4 != 7 || v[8]>>6 != 2 {
		return tga.ID{}, malformed(string(rune(kind))+" key", key, "id is no UUIDv7")
	}
	return v, nil
}

// prefix returns the bounds of the keys that start with p: lower inclusive, upper
// exclusive. p starts with a kind, which is never 0xff, so an upper bound exists.
func prefix(p []byte) (lower, upper []byte) {
	upper = append([]byte(nil), p...)
	for i := len(upper) - 1; i >= 0; i-- {
		if upper[i]++; upper[i] != 0 {
			return p, upper[:i+1]
		}
	}
	return p, nil
}

func appendTrace(dst []byte, kind Kind, trace tga.ID) []byte {
	return append(append(dst, byte(kind)), trace[:]...)
}

func parseTrace(key []byte, kind Kind) (tga.ID, error) {
	if _, err := fields(key, kind); err != nil {
		return tga.ID{}, err
	}
	return id(key, kind, 1)
}

func appendTraceSeq(dst []byte, kind Kind, trace tga.ID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendTrace(dst, kind, trace), seq)
}

// parseTraceSeq reads trace and seq of a key whose seq is at least min.
func parseTraceSeq(key []byte, kind Kind, min uint64) (tga.ID, uint64, error) {
	if _, err := fields(key, kind); err != nil {
		return tga.ID{}, 0, err
	}
	trace, err := id(key, kind, 1)
	if err != nil {
		return tga.ID{}, 0, err
	}
	seq := binary.BigEndian.Uint64(key[17:])
	if seq < min {
		return tga.ID{}, 0, malformed(string(rune(kind))+" key", key, "number 0")
	}
	return trace, seq, nil
}

func traceBounds(kind Kind, trace tga.ID) (lower, upper []byte) {
	return prefix(appendTrace(make([]byte, 0, 17), kind, trace))
}
