package ledger

import (
	"encoding/binary"

	"github.com/tgad/tgad/schemas/tga"
)

// A record in bytes, version 1; integers big-endian:
//
//	  0  version 1 · status 1 · flags 1 · class 1
//	  4  request digest 32
//	 36  tool_call_id 16 · trace_id 16 · seq 8
//	 76  count 4 · unsent 4 · unsent mask 8 · first 8 · newest 8 · epoch 8 · permit 32
//	148  effect seq 8 · effect digest 32
//	188  confirmed at 8 · evidence digest 32
//
// An expired record ends after its request digest. Each record has one form: AppendBinary
// writes back, byte for byte, what DecodeRecord accepts.
const (
	expiredSize = 36
	recordSize  = 228

	flagExternal  = 1 << 0
	flagAbandoned = 1 << 1
)

// AppendBinary appends r's stored form to dst. A record that contradicts itself is
// refused with VALIDATION_ERROR.
func (r *Record) AppendBinary(dst []byte) ([]byte, error) {
	if why := r.flaw(); why != "" {
		return dst, tga.Errorf(tga.ValidationError, "encode ledger record: %s", why).In(r.TraceID)
	}
	var flags byte
	if r.Attempts.External {
		flags |= flagExternal
	}
	if r.Abandoned {
		flags |= flagAbandoned
	}
	dst = append(dst, tga.LedgerRecordVersion, byte(r.Status), flags, byte(r.Class))
	dst = append(dst, r.RequestDigest[:]...)
	if r.Status == Expired {
		return dst, nil
	}
	be := binary.BigEndian
	dst = append(dst, r.ToolCallID[:]...)
	dst = append(dst, r.TraceID[:]...)
	dst = be.AppendUint64(dst, r.Seq)
	dst = be.AppendUint32(dst, r.Attempts.Count)
	dst = be.AppendUint32(dst, r.Attempts.Unsent)
	dst = be.AppendUint64(dst, r.Attempts.UnsentMask)
	dst = be.AppendUint64(dst, uint64(r.Attempts.First))
	dst = be.AppendUint64(dst, uint64(r.Attempts.Newest))
	dst = be.AppendUint64(dst, r.Attempts.Epoch)
	dst = append(dst, r.Attempts.Permit[:]...)
	dst = be.AppendUint64(dst, r.EffectSeq)
	dst = append(dst, r.EffectDigest[:]...)
	dst = be.AppendUint64(dst, uint64(r.ConfirmedAt))
	return append(dst, r.EvidenceDigest[:]...), nil
}

// DecodeRecord reads only what [Record.AppendBinary] writes. A later version is
// FORMAT_TOO_NEW. Bytes that no version writes are STATE_CHECKSUM_MISMATCH (Where "stored").
func DecodeRecord(b []byte) (*Record, error) {
	bad := func(format string, args ...any) (*Record, error) {
		e := tga.Errorf(tga.StateChecksumMismatch, "ledger record of %d bytes: "+format, append([]any{len(b)}, args...)...)
		e.Where = "stored"
		return nil, e
	}
	if len(b) == 0 {
		return bad("empty")
	}
	if b[0] > tga.LedgerRecordVersion {
		return nil, tga.Errorf(tga.FormatTooNew, "ledger record of version %d; this program reads %d", b[0], tga.LedgerRecordVersion)
	}
	if len(b) < expiredSize || b[0] != tga.LedgerRecordVersion {
		return bad("unknown version %d, or too short", b[0])
	}
	r := &Record{Status: Status(b[1]), Class: Class(b[3]), Abandoned: b[2]&flagAbandoned != 0}
	r.Attempts.External = b[2]&flagExternal != 0
	if b[2]&^(flagExternal|flagAbandoned) != 0 {
		return bad("unknown flags %#x", b[2])
	}
	want := recordSize
	if r.Status == Expired {
		want = expiredSize
	}
	if len(b) != want {
		return bad("a record of status %d has %d bytes", b[1], want)
	}
	copy(r.RequestDigest[:], b[4:])
	if r.Status != Expired {
		be := binary.BigEndian
		copy(r.ToolCallID[:], b[36:])
		copy(r.TraceID[:], b[52:])
		r.Seq = be.Uint64(b[68:])
		r.Attempts.Count = be.Uint32(b[76:])
		r.Attempts.Unsent = be.Uint32(b[80:])
		r.Attempts.UnsentMask = be.Uint64(b[84:])
		r.Attempts.First = tga.Millis(be.Uint64(b[92:]))
		r.Attempts.Newest = tga.Millis(be.Uint64(b[100:]))
		r.Attempts.Epoch = be.Uint64(b[108:])
		copy(r.Attempts.Permit[:], b[116:])
		r.EffectSeq = be.Uint64(b[148:])
		copy(r.EffectDigest[:], b[156:])
		r.ConfirmedAt = tga.Millis(be.Uint64(b[188:]))
		copy(r.EvidenceDigest[:], b[196:])
	}
	if why := r.flaw(); why != "" {
		return bad("%s", why)
	}
	return r, nil
}

// flaw says how r contradicts itself, "" if it does not. Both sides of the codec call it: a
// flaw before a write is a fault of the program, and a flaw after a read is a fault of the
// disk.
func (r *Record) flaw() string {
	if why := r.outcomeFlaw(); why != "" {
		return why
	}
	switch {
	case r.RequestDigest.IsZero():
		return "no request digest"
	case r.Status == Expired && *r != Record{Status: Expired, RequestDigest: r.RequestDigest, Class: r.Class, Abandoned: r.Abandoned}:
		return "expired, and more than its digest and outcome"
	case r.Status == Expired:
		return ""
	}
	return r.callFlaw()
}

// outcomeFlaw says what is wrong with the status and the outcome, which every record has.
func (r *Record) outcomeFlaw() string {
	switch {
	case r.Status.String() == "":
		return "no such status"
	case r.Class != ClassNone && r.Class.String() == "":
		return "no such class"
	case (r.Class == ClassNone) != (r.Status == Reserved):
		return "only a settled or expired record has a class, and it must have one"
	case r.Abandoned && r.Class != ClassPermanent:
		return "abandoned, and not a permanent failure"
	}
	return ""
}

// callFlaw says what is wrong with the call, its attempts and its effect, which a record has
// until it expires.
func (r *Record) callFlaw() string {
	inTime := func(m tga.Millis) bool { return m >= 0 && m <= tga.LastMillis }
	switch {
	case r.ToolCallID.IsZero() || r.TraceID.IsZero() || r.Seq == 0:
		return "no tool_call_id, trace or sequence number"
	case !r.Attempts.consistent() || !inTime(r.Attempts.First) || !inTime(r.Attempts.Newest):
		return "the attempt counters contradict each other"
	case r.Status == Reserved && (r.EffectSeq != 0 || !r.EffectDigest.IsZero() || r.ConfirmedAt != 0 || !r.EvidenceDigest.IsZero()):
		return "reserved, and has an effect"
	case r.Status == Settled && (r.EffectSeq <= r.Seq || r.EffectDigest.IsZero()):
		return "settled, and has no effect after its call"
	case r.Class == ClassNotSent && r.Attempts.Count != r.Attempts.Unsent:
		return "not sent, and has an attempt that may have been"
	case !inTime(r.ConfirmedAt) || (r.ConfirmedAt == 0) != r.EvidenceDigest.IsZero():
		return "confirmed without evidence, or evidence without a time"
	}
	return ""
}
