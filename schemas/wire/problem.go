package wire

import (
	"errors"

	"github.com/tgad/tgad/schemas/tga"
)

// Problem is an error in the form of a problem document (RFC 9457), with the facts of the
// error as extension members.
type Problem struct {
	Type      string   `json:"type"`             // "about:blank"
	Title     string   `json:"title"`            // of the code; Detail says what is wrong here
	Status    int      `json:"status"`           // HTTP status
	Detail    string   `json:"detail"`           // what was attempted, with which values
	Code      tga.Code `json:"code"`             // the stable code
	Retryable bool     `json:"retryable"`        // the same request may succeed later
	Causes    []string `json:"causes,omitempty"` // codes of the errors behind this one

	TraceID     tga.ID     `json:"trace_id,omitempty"`
	Seq         uint64     `json:"sequence_number,omitempty"`
	Note        uint32     `json:"note_number,omitempty"`
	Pointer     string     `json:"pointer,omitempty"`
	ExpectedSeq uint64     `json:"expected_seq,omitempty"`
	ActualSeq   uint64     `json:"actual_seq,omitempty"`
	DigestWant  tga.Digest `json:"digest_want,omitempty"`
	DigestGot   tga.Digest `json:"digest_got,omitempty"`
	Where       string     `json:"where,omitempty"` // "given" or "stored"
	// RetryAfterMS is how long the tool server asked to wait before another request.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`

	// Call is what is known of the request's call.
	Call *Call `json:"call,omitempty"`
}

// ProblemOf makes the problem of an error. An error without a code is the daemon's own
// failure, STATE_ERROR.
func ProblemOf(err error) Problem {
	var e *tga.Error
	if !errors.As(err, &e) {
		e = tga.Errorf(tga.GenericStateError, "%w", err)
	}
	p := Problem{
		Type: "about:blank", Title: string(e.Code), Detail: e.Message, Code: e.Code,
		TraceID: e.TraceID, Seq: e.Seq, Note: e.Note, Pointer: e.Pointer,
		ExpectedSeq: e.ExpectedSeq, ActualSeq: e.ActualSeq,
		DigestWant: e.WantDigest, DigestGot: e.GotDigest, Where: e.Where,
		RetryAfterMS: tga.RetryAfterMS(tga.RetryAfterOf(e)),
	}
	for cause := e; errors.As(cause.Err, &cause); {
		p.Causes = append(p.Causes, string(cause.Code))
	}
	return p
}

// Err rebuilds the error. Its causes have only their codes.
func (p Problem) Err() *tga.Error {
	e := &tga.Error{
		Code: p.Code, Message: p.Detail,
		TraceID: p.TraceID, Seq: p.Seq, Note: p.Note, Pointer: p.Pointer,
		ExpectedSeq: p.ExpectedSeq, ActualSeq: p.ActualSeq,
		WantDigest: p.DigestWant, GotDigest: p.DigestGot, Where: p.Where,
		RetryAfter: tga.ParseRetryAfterMS(p.RetryAfterMS),
	}
	var causes []error
	for _, c := range p.Causes {
		causes = append(causes, tga.Code(c))
	}
	if len(causes) > 0 {
		e.Err = errors.Join(causes...)
	}
	return e
}
