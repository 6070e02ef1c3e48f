package keyspace

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// AppendApproval appends the key of a trace's pending approval.
func AppendApproval(dst []byte, trace tga.ID) []byte { return appendTrace(dst, Approval, trace) }

// ParseApproval reads the key of a pending approval.
func ParseApproval(key []byte) (trace tga.ID, err error) { return parseTrace(key, Approval) }

// ApprovalBounds returns the bounds of the pending approvals.
func ApprovalBounds() (lower, upper []byte) { return Bounds(Approval) }

// AppendTimer appends the key of a trace's timer. A due before 1970 is in the past
// like 0 and is written as 0: the bytes of a negative number would sort last.
func AppendTimer(dst []byte, due tga.Millis, trace tga.ID) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, byte(Timer)), uint64(max(due, 0)))
	return append(dst, trace[:]...)
}

// ParseTimer reads the key of a timer.
func ParseTimer(key []byte) (due tga.Millis, trace tga.ID, err error) {
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

// TimerBounds returns the bounds of all timers.
func TimerBounds() (lower, upper []byte) { return Bounds(Timer) }

// DueBounds returns the bounds of the timers that are due at now or before.
func DueBounds(now tga.Millis) (lower, upper []byte) {
	lower, _ = Bounds(Timer)
	_, upper = prefix(binary.BigEndian.AppendUint64([]byte{byte(Timer)}, uint64(max(now, 0))))
	return lower, upper
}

// AppendStream appends the key of one item of a stream.
func AppendStream(dst []byte, stream tga.ID, seq uint64) []byte {
	return appendTraceSeq(dst, Stream, stream, seq)
}

// ParseStream reads the key of an item of a stream. The stream numbers its items as
// it likes, from 0 or 1.
func ParseStream(key []byte) (stream tga.ID, seq uint64, err error) {
	return parseTraceSeq(key, Stream, 0)
}

// StreamBounds returns the bounds of the items of a stream.
func StreamBounds(stream tga.ID) (lower, upper []byte) { return traceBounds(Stream, stream) }

// AppendBeginID appends the key of the trace of a begin id. digest is SHA-256 of the
// length-prefixed namespace, submitter and begin id, so that it has one width.
func AppendBeginID(dst []byte, digest [32]byte) []byte { return appendDigest(dst, BeginID, digest) }

// ParseBeginID reads the key of the trace of a begin id.
func ParseBeginID(key []byte) (digest [32]byte, err error) { return parseDigest(key, BeginID) }

// BeginIDBounds returns the bounds of the begin ids.
func BeginIDBounds() (lower, upper []byte) { return Bounds(BeginID) }

// AppendBlob appends the key of a content-addressed blob.
func AppendBlob(dst []byte, digest tga.Digest) []byte { return appendDigest(dst, Blob, digest) }

// ParseBlob reads the key of a blob.
func ParseBlob(key []byte) (digest tga.Digest, err error) { return parseDigest(key, Blob) }

// BlobBounds returns the bounds of the blobs.
func BlobBounds() (lower, upper []byte) { return Bounds(Blob) }

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
	lower, upper = prefix(append([]byte{byte(kind)}, p...))
	return lower, upper, nil
}

func attachment(kind Kind) bool {
	return kind == Approval || kind == BeginID || kind == Timer || kind == Stream || kind == Blob
}
