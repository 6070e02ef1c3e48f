package keyspace

import (
	"encoding/binary"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// The owner of an attachment names it by its kind and by the fields after the kind, which are
// called the owner's key. The functions of this file and of stream.go make owner's keys.
// [AppendAttachment] puts the kind before an owner's key, and refuses bytes that are none.

// ApprovalKey is the owner's key of a trace's pending approval.
func ApprovalKey(trace tga.ID) []byte { return slices.Clone(trace[:]) }

// DigestKey is the owner's key of a blob that has a name of 32 bytes, or of the row of a begin id.
func DigestKey(digest [32]byte) []byte { return slices.Clone(digest[:]) }

// EvidenceKey is the owner's key of a piece of evidence about a trace. Each trace has its own copy.
// An erasure of the trace erases that copy, and not the same evidence of another trace.
func EvidenceKey(digest [32]byte, trace tga.ID) []byte {
	return append(append(make([]byte, 0, 32), digest[:16]...), trace[:]...)
}

// EvidencePrefix is the common prefix of the owner's keys of the evidence with a digest, for all
// traces. The [DigestKey] has this prefix too: under it a store of format 2 has one copy for all traces.
func EvidencePrefix(digest [32]byte) []byte { return slices.Clone(digest[:16]) }

// TimerKey is the owner's key of a trace's timer. [AppendAttachment] refuses the key if due is
// before 1970, because the bytes of a negative number would sort last.
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

// StreamPrefix is the common prefix of the owner's keys of all items of a stream.
func StreamPrefix(stream tga.ID) []byte { return slices.Clone(stream[:]) }

// AppendAttachment appends the key of an attachment, made of its kind and its owner's key
// (rest). If the bytes are no valid key, it returns VALIDATION_ERROR, so that an owner cannot
// write to keys that are not its own.
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

// Owned returns the common prefix of the owner's keys of everything that is sealed under the same key
// as an item of a stream or a node of a working state: the stream, or the family's part. It is nil for
// item 0, which holds counters, locks and heads, and for other kinds.
func Owned(kind Kind, key []byte) []byte {
	switch {
	case kind == Stream && len(key) == 24 && binary.BigEndian.Uint64(key[16:]) != 0:
		return key[:16]
	case kind == Blob && len(key) == 32:
		return key[:8]
	}
	return nil
}

// EvidenceOf reports whether the owner's key of a blob is an [EvidenceKey] of the trace.
func EvidenceOf(trace tga.ID, key []byte) bool { return len(key) == 32 && tga.ID(key[16:]) == trace }

func attachment(kind Kind) bool {
	return kind == Approval || kind == BeginID || kind == Timer || kind == Stream || kind == Blob
}

// whole returns the store's key of the attachment with the owner's key rest.
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
