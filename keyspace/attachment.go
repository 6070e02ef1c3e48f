package keyspace

import (
	"encoding/binary"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// The owner of an attachment names it by its kind and by the fields after the kind: the
// owner's key. The functions of this file and of stream.go make the owners' keys;
// [AppendAttachment] puts the kind before one and refuses what is no key.

// ApprovalKey is the owner's key of a trace's pending approval.
func ApprovalKey(trace tga.ID) []byte { return slices.Clone(trace[:]) }

// DigestKey is the owner's key of a blob that has a name of 32 bytes, or of the row of a begin id.
func DigestKey(digest [32]byte) []byte { return slices.Clone(digest[:]) }

// EvidenceKey is the owner's key of a piece of evidence about a trace. Each trace has its own copy,
// which is erased with it: the same bytes beside another trace stay.
func EvidenceKey(digest [32]byte, trace tga.ID) []byte {
	return append(append(make([]byte, 0, 32), digest[:16]...), trace[:]...)
}

// EvidencePrefix is what the owners' keys of evidence with a digest begin with, of whichever trace.
// So does [DigestKey], under which a store of format 2 has one copy for all its traces.
func EvidencePrefix(digest [32]byte) []byte { return slices.Clone(digest[:16]) }

// TimerKey is the owner's key of a trace's timer. A due before 1970 makes a key that
// [AppendAttachment] refuses: the bytes of a negative number would sort last.
func TimerKey(due tga.Millis, trace tga.ID) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 24), uint64(due)), trace[:]...)
}

// ParseTimer reads the owner's key of a timer.
func ParseTimer(key []byte) (due tga.Millis, trace tga.ID, err error) {
	return parseTimer(whole(Timer, key))
}

// StreamKey is the owner's key of one item of a stream. The owner numbers the items as it
// likes, from 0 or 1.
func StreamKey(stream tga.ID, item uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 24), stream[:]...), item)
}

// ParseStream reads the owner's key of an item of a stream.
func ParseStream(key []byte) (stream tga.ID, item uint64, err error) {
	return parseTraceSeq(whole(Stream, key), Stream, 0)
}

// StreamPrefix is what the owners' keys of all items of a stream begin with.
func StreamPrefix(stream tga.ID) []byte { return slices.Clone(stream[:]) }

// AppendAttachment appends the key of an attachment that its owner names by kind and
// by the bytes after the kind. Bytes that are no such key are refused with
// VALIDATION_ERROR, so that an owner cannot write into keys that are not its own.
func AppendAttachment(dst []byte, kind Kind, rest []byte) ([]byte, error) {
	if !attachment(kind) {
		return nil, tga.Errorf(tga.ValidationError, "attachment kind %q: not one of a, i, q, t, w", byte(kind))
	}
	at := len(dst)
	dst = append(append(dst, byte(kind)), rest...)
	if err := Check(dst[at:]); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "attachment of kind %q, key %x: %w", byte(kind), clip(rest), err)
	}
	return dst, nil
}

// AttachmentBounds returns the bounds of the attachments of a kind whose remaining
// bytes start with p, which may be empty.
func AttachmentBounds(kind Kind, p []byte) (lower, upper []byte, err error) {
	if !attachment(kind) {
		return nil, nil, tga.Errorf(tga.ValidationError, "attachment kind %q: not one of a, i, q, t, w", byte(kind))
	}
	lower, upper = prefix(whole(kind, p))
	return lower, upper, nil
}

// Owned is what the owners' keys of all that is sealed together with an item of a stream, or with a
// node of a working state, begin with: the stream, or the family's part. It is nil for an item 0, where
// counters, locks and heads stand, and for other kinds.
func Owned(kind Kind, key []byte) []byte {
	switch {
	case kind == Stream && len(key) == 24 && binary.BigEndian.Uint64(key[16:]) != 0:
		return key[:16]
	case kind == Blob && len(key) == 32:
		return key[:8]
	}
	return nil
}

// EvidenceOf reports whether the owner's key of a blob is that of evidence of a trace.
func EvidenceOf(trace tga.ID, key []byte) bool { return len(key) == 32 && tga.ID(key[16:]) == trace }

func attachment(kind Kind) bool {
	return kind == Approval || kind == BeginID || kind == Timer || kind == Stream || kind == Blob
}

// whole is the store's key of an attachment that its owner knows as rest.
func whole(kind Kind, rest []byte) []byte { return append([]byte{byte(kind)}, rest...) }

func parseTimer(key []byte) (due tga.Millis, trace tga.ID, err error) {
	b, err := fields(key, Timer)
	if err != nil {
		return 0, tga.ID{}, err
	}
	if due = tga.Millis(binary.BigEndian.Uint64(b)); due < 0 {
		return 0, tga.ID{}, malformed("q key", key, "due over 63 bits")
	}
	if trace, err = id(key, Timer, 9); err != nil {
		return 0, tga.ID{}, err
	}
	return due, trace, nil
}
