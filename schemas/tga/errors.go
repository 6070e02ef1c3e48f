package tga

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is a stable error code. The same code appears in Go, on the wire, in logs
// and in the output of the command.
type Code string

// The codes, explained by [Codes] and docs/ERRORS.md. The first six are locked by Talos 9.3.
const (
	StateInvalidTransition   Code = "STATE_INVALID_TRANSITION"
	StateSequenceGap         Code = "STATE_SEQUENCE_GAP"
	StateChecksumMismatch    Code = "STATE_CHECKSUM_MISMATCH"
	StateRecoveryFailed      Code = "STATE_RECOVERY_FAILED"
	StateLockAcquireFailed   Code = "STATE_LOCK_ACQUIRE_FAILED"
	StateConcurrentExecution Code = "STATE_CONCURRENT_EXECUTION"

	MissingToolCallID      Code = "MISSING_TOOL_CALL_ID"
	IdempotencyKeyRequired Code = "IDEMPOTENCY_KEY_REQUIRED"
	IdempotencyKeyConflict Code = "IDEMPOTENCY_KEY_CONFLICT"
	IdempotencyKeyInFlight Code = "IDEMPOTENCY_KEY_IN_FLIGHT"
	IdempotencyKeyExpired  Code = "IDEMPOTENCY_KEY_EXPIRED"
	EffectInDoubt          Code = "EFFECT_IN_DOUBT"
	StoreUnavailable       Code = "STORE_UNAVAILABLE"
	ConfirmationMismatch   Code = "CONFIRMATION_MISMATCH"
	ConfirmationRequired   Code = "CONFIRMATION_REQUIRED"
	CapabilityInvalid      Code = "CAPABILITY_INVALID"
	ApprovalExpired        Code = "APPROVAL_EXPIRED"
	ToolSchemaChanged      Code = "TOOL_SCHEMA_CHANGED"
	SnapshotMismatch       Code = "SNAPSHOT_MISMATCH"
	RestoreFailed          Code = "RESTORE_FAILED"
	BudgetExceeded         Code = "BUDGET_EXCEEDED"
	StateConflict          Code = "STATE_CONFLICT"
	NotFound               Code = "NOT_FOUND"
	PermissionDenied       Code = "PERMISSION_DENIED"
	LimitExceeded          Code = "LIMIT_EXCEEDED"
	FormatTooNew           Code = "FORMAT_TOO_NEW"

	ValidationError    Code = "VALIDATION_ERROR"
	SchemaViolation    Code = "SCHEMA_VIOLATION"
	ContentFiltered    Code = "CONTENT_FILTERED"
	PolicyViolation    Code = "POLICY_VIOLATION"
	ToolError          Code = "TOOL_ERROR"
	ToolTimeout        Code = "TOOL_TIMEOUT"
	LLMError           Code = "LLM_ERROR"
	LLMTimeout         Code = "LLM_TIMEOUT"
	GenericStateError  Code = "STATE_ERROR"
	RateLimited        Code = "RATE_LIMITED"
	QuotaExceeded      Code = "QUOTA_EXCEEDED"
	CircuitOpen        Code = "CIRCUIT_OPEN"
	MaxTurnsExceeded   Code = "MAX_TURNS_EXCEEDED"
	MaxTokensExceeded  Code = "MAX_TOKENS_EXCEEDED"
	DelegationFailed   Code = "DELEGATION_FAILED"
	EscalationRequired Code = "ESCALATION_REQUIRED"
)

// Error is the one error type of the module. Match it by code:
// errors.Is(err, tga.StateSequenceGap). Code itself is an error for that purpose.
type Error struct {
	Code    Code
	Message string // what was attempted, with which values

	// Facts that a program may act on; zero where they do not apply.
	TraceID     ID
	Seq         uint64 // number of the entry at fault
	Note        uint32 // number of the note at fault
	Pointer     string // JSON Pointer (RFC 6901) to the offending place of the input
	ExpectedSeq uint64 // of an append: the number after the head
	ActualSeq   uint64 // of an append: the number that the caller gave
	WantDigest  Digest // what was computed or required
	GotDigest   Digest // what was given or stored
	Where       string // "stored" when our own bytes are at fault, "given" when the caller's are
	// RetryAfter is how long the other side asks the caller to wait, counted from when the
	// error was made. The next attempt must not be earlier. At most [MaxRetryAfter].
	RetryAfter time.Duration

	Err error // the cause, or nil
}

// Errorf makes an Error. A %w verb sets the cause. If the cause has the same code, the message
// does not repeat the code.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
	if cause, ok := errors.AsType[*Error](e.Err); ok && cause.Code == code {
		e.Message = strings.Replace(e.Message, cause.Error(), cause.said(), 1)
	}
	return e
}

// Error returns "CODE: message".
func (e *Error) Error() string { return string(e.Code) + ": " + e.said() }

func (e *Error) said() string {
	if e.Pointer != "" {
		return e.Message + " (at " + e.Pointer + ")"
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is e's code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// At returns e with the JSON Pointer set, for use while an error travels outward.
func (e *Error) At(pointer string) *Error {
	e.Pointer = pointer
	return e
}

// In returns e with the trace set.
func (e *Error) In(trace ID) *Error {
	e.TraceID = trace
	return e
}

// Error makes a Code usable as the target of errors.Is.
func (c Code) Error() string { return string(c) }

// MaxRetryAfter is the longest that anybody may ask tgad to wait; whoever asks for more is taken
// to have asked for this.
const MaxRetryAfter = 24 * time.Hour

// BoundRetryAfter puts what somebody asked for between 0 and [MaxRetryAfter].
func BoundRetryAfter(d time.Duration) time.Duration { return min(max(d, 0), MaxRetryAfter) }

// RetryAfterMS is what somebody asked for in whole milliseconds, within the bounds and never less.
func RetryAfterMS(d time.Duration) int64 {
	return int64((BoundRetryAfter(d) + time.Millisecond - 1) / time.Millisecond)
}

// ParseRetryAfterMS is its inverse; what is beyond a bound counts as that.
func ParseRetryAfterMS(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), MaxRetryAfter.Milliseconds())) * time.Millisecond
}

// RetryAfterOf returns what the outermost Error in err's chain asks for that asks for any
// time, within its bounds; 0 for none.
func RetryAfterOf(err error) time.Duration {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if d := BoundRetryAfter(e.RetryAfter); d > 0 {
			return d
		}
	}
	return 0
}

// CodeOf returns the code of the outermost Error in err's chain, or "" for none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
