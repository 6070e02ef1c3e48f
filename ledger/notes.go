package ledger

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// Mark is the body of an attempt note: a send that is about to be made.
type Mark struct {
	Attempt uint32     // number of the attempt, from 1
	Epoch   uint64     // lease epoch under which it is made; a decimal string in JSON, as it may be over 2^53
	Permit  tga.Digest // digest of the remote executor's permit; zero where the store's process sends
	BeginID string     // the remote executor's own id of its Begin, "" = absent
}

// NotSent is the body of a not_sent note: no byte of the attempt was sent.
type NotSent struct {
	Attempt uint32
	Reason  string
	// RetryAfterMS is how many milliseconds the tool server asked to wait before another
	// request, at most those of [tga.MaxRetryAfter]; 0 if it did not ask.
	RetryAfterMS int64
}

// Executors named in the body of an attempt note.
const (
	executorLocal    = "local"
	executorExternal = "external"
)

// Body returns m as a canonical JSON object.
func (m Mark) Body() []byte {
	b := append([]byte(`{"attempt":`), strconv.FormatUint(uint64(m.Attempt), 10)...)
	if m.BeginID != "" {
		b = appendString(append(b, `,"begin_id":`...), m.BeginID)
	}
	b = appendString(append(b, `,"epoch":`...), strconv.FormatUint(m.Epoch, 10))
	if m.Permit.IsZero() {
		return append(appendString(append(b, `,"executor":`...), executorLocal), '}')
	}
	b = appendString(append(b, `,"executor":`...), executorExternal)
	return append(appendString(append(b, `,"permit_digest":`...), m.Permit.String()), '}')
}

// ParseMark reads only what [Mark.Body] writes.
func ParseMark(body []byte) (Mark, error) {
	var m Mark
	members, err := object(body)
	if err != nil {
		return Mark{}, err
	}
	var epoch, permit string
	for _, f := range []struct {
		name string
		to   any
	}{{"attempt", &m.Attempt}, {"begin_id", &m.BeginID}, {"epoch", &epoch}, {"permit_digest", &permit}} {
		if err := member(members, f.name, f.to); err != nil {
			return Mark{}, err
		}
	}
	if m.Epoch, err = strconv.ParseUint(epoch, 10, 64); err != nil {
		return Mark{}, tga.Errorf(tga.ValidationError, "attempt note: epoch %.80q: %w", epoch, err).At("/body/epoch")
	}
	if permit != "" {
		if m.Permit, err = tga.ParseDigest(permit); err != nil {
			return Mark{}, tga.Errorf(tga.ValidationError, "attempt note: permit_digest: %w", err).At("/body/permit_digest")
		}
	}
	// Encoding m again must give the same bytes. That refuses unknown members, other
	// spellings, and an executor that disagrees with the permit.
	if m.Attempt == 0 || !bytes.Equal(m.Body(), body) {
		return Mark{}, tga.Errorf(tga.ValidationError, "attempt note: body %.200q is not {attempt, begin_id?, epoch, executor, permit_digest?}", body).At("/body")
	}
	return m, nil
}

// Body returns n as a canonical JSON object.
func (n NotSent) Body() []byte {
	b := append([]byte(`{"attempt":`), strconv.FormatUint(uint64(n.Attempt), 10)...)
	b = appendString(append(b, `,"reason":`...), n.Reason)
	if n.RetryAfterMS != 0 {
		b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), n.RetryAfterMS, 10)
	}
	return append(b, '}')
}

// ParseNotSent reads what [NotSent.Body] writes and nothing else.
func ParseNotSent(body []byte) (NotSent, error) {
	var n NotSent
	members, err := object(body)
	if err != nil {
		return NotSent{}, err
	}
	if err := member(members, "attempt", &n.Attempt); err != nil {
		return NotSent{}, err
	}
	if err := member(members, "reason", &n.Reason); err != nil {
		return NotSent{}, err
	}
	if err := member(members, "retry_after_ms", &n.RetryAfterMS); err != nil {
		return NotSent{}, err
	}
	if n.Attempt == 0 || n.RetryAfterMS < 0 || n.RetryAfterMS > tga.MaxRetryAfter.Milliseconds() || !bytes.Equal(n.Body(), body) {
		return NotSent{}, tga.Errorf(tga.ValidationError, "not_sent note: body %.200q is not {attempt, reason, retry_after_ms?}", body).At("/body")
	}
	return n, nil
}

// Findings of a confirmation note. Only the first changes the record.
const (
	Confirmed   = "confirmed"   // every change that could be checked holds, or a person says so
	Mismatched  = "mismatch"    // at least one change does not hold
	Unconfirmed = "not_checked" // there is no verifier for any of them
	Rejected    = "rejected"    // a person says that the record must not be relied on
)

// Confirmation is the body of a confirmation note.
type Confirmation struct {
	Checked        int        `json:"checked"`
	EvidenceDigest tga.Digest `json:"evidence_digest"` // of the stored evidence
	Finding        string     `json:"finding"`
	// MismatchDigest identifies the changes and the states in which they were found. A
	// person's answer applies only to the same digest. Zero without a mismatch.
	MismatchDigest tga.Digest `json:"mismatch_digest,omitzero"`
	Mismatches     int        `json:"mismatches"`
	Unchecked      int        `json:"unchecked"`
}

// Body returns c as a canonical JSON object.
func (c Confirmation) Body() ([]byte, error) { return canonicalBody("confirmation", c) }

// ParseConfirmation reads what [Confirmation.Body] writes and nothing else.
func ParseConfirmation(body []byte) (c Confirmation, err error) {
	err = parseBody("confirmation", body, &c, func() ([]byte, error) { return c.Body() })
	switch c.Finding {
	case Confirmed, Mismatched, Unconfirmed, Rejected:
	default:
		if err == nil {
			err = tga.Errorf(tga.ValidationError, "confirmation note: finding %.80q", c.Finding).At("/body/finding")
		}
	}
	return c, err
}

// Undone is the body of a compensated note: the settled effect that undid this one.
type Undone struct {
	EffectDigest tga.Digest `json:"effect_digest"`
	TraceID      tga.ID     `json:"trace_id"`
}

// Body returns u as a canonical JSON object.
func (u Undone) Body() ([]byte, error) { return canonicalBody("compensated", u) }

// ParseUndone reads what [Undone.Body] writes and nothing else.
func ParseUndone(body []byte) (u Undone, err error) {
	err = parseBody("compensated", body, &u, func() ([]byte, error) { return u.Body() })
	return u, err
}

func canonicalBody(kind string, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "%s note: %w", kind, err)
	}
	return tga.Canonicalize(raw, tga.Limits{})
}

// parseBody reads a body into v. again encodes v, and must return the same bytes.
func parseBody(kind string, body []byte, v any, again func() ([]byte, error)) error {
	if err := json.Unmarshal(body, v); err != nil {
		return tga.Errorf(tga.ValidationError, "%s note: body %.200q: %w", kind, body, err).At("/body")
	}
	if b, err := again(); err != nil || !bytes.Equal(b, body) {
		return tga.Errorf(tga.ValidationError, "%s note: body %.200q is not of its form", kind, body).At("/body")
	}
	return nil
}

// ChangesRecord reports whether a note of this kind can change a ledger record. afterEffect
// says whether such a note comes after the effect (a confirmation) or before it (an attempt).
func ChangesRecord(kind tga.NoteKind) (changes, afterEffect bool) {
	switch kind {
	case tga.NoteAttempt, tga.NoteNotSent:
		return true, false
	case tga.NoteConfirmation, tga.NoteCompensated:
		return true, true
	}
	return false, false
}

// ApplyNote returns the record after a note of its trace. Attempt and not_sent notes
// change a reserved record, confirmation and compensated notes a settled one; the other
// kinds change none.
//
// An attempt must have the next number, otherwise the error is STATE_SEQUENCE_GAP. If the
// newest attempt is a remote executor's, the next must be one too, otherwise the error is
// STATE_INVALID_TRANSITION: a remote executor's send can neither be observed nor fenced.
func (r Record) ApplyNote(n *tga.Note) (Record, error) {
	changes, afterEffect := ChangesRecord(n.Kind)
	if !changes {
		return r, nil
	}
	refuse := func(code tga.Code, format string, args ...any) (Record, error) {
		return Record{}, tga.Errorf(code, string(n.Kind)+" note: "+format, args...).In(n.TraceID)
	}
	want := Reserved
	if afterEffect {
		want = Settled
	}
	if r.Status != want || n.TraceID != r.TraceID {
		return refuse(tga.StateInvalidTransition, "the record is %v by trace %v", r.Status, r.TraceID)
	}
	switch n.Kind {
	case tga.NoteConfirmation:
		c, err := ParseConfirmation(n.Body)
		if err != nil {
			return Record{}, err
		}
		if c.Finding == Confirmed {
			r.ConfirmedAt, r.EvidenceDigest = n.TS, c.EvidenceDigest
		}
		return r, nil
	case tga.NoteCompensated:
		if _, err := ParseUndone(n.Body); err != nil {
			return Record{}, err
		}
		if r.Class != ClassCommitted && r.Class != ClassCompensatable {
			return refuse(tga.StateInvalidTransition, "the outcome is %v: nothing is there to undo", r.Class)
		}
		r.Class = ClassCompensated
		return r, nil
	}
	if n.Kind == tga.NoteNotSent {
		b, err := ParseNotSent(n.Body)
		if err != nil {
			return Record{}, err
		}
		a, ok := r.Attempts.notSent(b.Attempt)
		if !ok {
			return refuse(tga.StateInvalidTransition, "attempt %d of %d is not one that may have been sent", b.Attempt, r.Attempts.Count)
		}
		r.Attempts = a
		return r, nil
	}
	m, err := ParseMark(n.Body)
	if err != nil {
		return Record{}, err
	}
	if m.Attempt != r.Attempts.Count+1 {
		return refuse(tga.StateSequenceGap, "attempt %d: the newest is %d", m.Attempt, r.Attempts.Count)
	}
	if r.Attempts.External && m.Permit.IsZero() {
		return refuse(tga.StateInvalidTransition, "attempt %d: attempt %d belongs to a remote executor", m.Attempt, r.Attempts.Count)
	}
	r.Attempts = r.Attempts.mark(m.Epoch, n.TS, m.Permit)
	return r, nil
}

func object(body []byte) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "note body %.200q: %w", body, err).At("/body")
	}
	return members, nil
}

func member(members map[string]json.RawMessage, name string, to any) error {
	raw, ok := members[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return tga.Errorf(tga.ValidationError, "note body: %w", err).At("/body/" + name)
	}
	return nil
}

// appendString appends s as a JSON string in the one form RFC 8785 §3.2.2.2 allows.
// Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range s { // an invalid byte ranges as utf8.RuneError
		switch c {
		case '"', '\\':
			b = append(b, '\\', byte(c))
		case '\b':
			b = append(b, `\b`...)
		case '\t':
			b = append(b, `\t`...)
		case '\n':
			b = append(b, `\n`...)
		case '\f':
			b = append(b, `\f`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			if c < 0x20 {
				b = append(b, `\u00`...)
				b = append(b, hex[c>>4], hex[c&15])
				continue
			}
			b = utf8.AppendRune(b, c)
		}
	}
	return append(b, '"')
}
