package wire

import (
	"encoding/json"

	"github.com/tgad/tgad/schemas/tga"
)

// CallRequest asks for one governed call: POST /v1/tool-calls.
type CallRequest struct {
	TraceID        tga.ID          `json:"trace_id,omitempty"`
	ToolServer     string          `json:"tool_server"`
	ToolName       string          `json:"tool_name"`
	Args           json.RawMessage `json:"args,omitempty"` // object; absent = {}
	IdempotencyKey string          `json:"idempotency_key,omitempty" wire:"filled"`
	Namespace      string          `json:"namespace,omitempty"` // absent = the peer's
	PlanID         tga.ID          `json:"plan_id,omitempty"`
	AgentID        tga.ID          `json:"agent_id,omitempty"`
	RiskLevel      string          `json:"risk_level,omitempty" wire:"filled"`
	Intent         string          `json:"intent,omitempty" wire:"filled"`
	Resources      []Resource      `json:"resources,omitempty"`
	Deadline       tga.Millis      `json:"deadline,omitempty"`
	Retry          bool            `json:"retry,omitempty"`
	Fresh          bool            `json:"fresh,omitempty"`  // the caller vouches that the key was never used; required in quarantine
	Replay         bool            `json:"replay,omitempty"` // a recorded effect is confirmed before it is served
	// Scope and Step name the call if it has no key: the key is derived from them.
	Scope string   `json:"scope,omitempty"`
	Step  string   `json:"step,omitempty"`
	Meta  tga.Meta `json:"meta,omitempty"`
}

// Resource is something a request says it touches.
type Resource struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// Call is what is known of a call.
type Call struct {
	TraceID        tga.ID     `json:"trace_id,omitempty"`
	State          string     `json:"state,omitempty"` // absent: nothing of the call is durable
	Seq            uint64     `json:"sequence_number"`
	EntryDigest    tga.Digest `json:"entry_digest,omitempty"`
	ToolCallID     tga.ID     `json:"tool_call_id,omitempty"`
	IdempotencyKey string     `json:"idempotency_key,omitempty"`
	Attempts       uint32     `json:"attempts"`
	Sent           uint32     `json:"sent"` // attempts that may have reached the tool

	Status       string          `json:"status,omitempty"`
	OutcomeClass string          `json:"outcome_class,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"` // the answer, if it is JSON
	// ResultBase64 has the tool's answer if Result does not have it byte for byte.
	ResultBase64 []byte `json:"result_base64,omitempty"`
	// ResultBytes and ResultDigest describe an answer of which no bytes are kept.
	ResultBytes  int64      `json:"result_bytes,omitempty"`
	ResultDigest tga.Digest `json:"result_digest,omitempty"`
	Summary      string     `json:"summary,omitempty"`
	ErrorCode    tga.Code   `json:"error_code,omitempty"`
	ErrorMessage string     `json:"error_message,omitempty"`
	// ToolErrorCode is the tool's own error code, if ErrorCode is another one.
	ToolErrorCode string `json:"tool_error_code,omitempty"`
	// RetryAfterMS is how long the tool server asked to wait before another request, counted from its answer.
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	ResolvedBy   string `json:"resolved_by,omitempty"`  // "probe" or "person" ("late_reply" is reserved); "" if the tool answered
	ResolvedVia  string `json:"resolved_via,omitempty"` // "model" if a model decided, with the rights of a person
	ServedFrom   tga.ID `json:"served_from,omitempty"`
	Replayed     bool   `json:"replayed"`
	Redacted     bool   `json:"redacted,omitempty"` // parts of the answer were taken out before it was stored
	Rationale    string `json:"rationale,omitempty"`

	Changes       []tga.StateChange `json:"changes,omitempty"`      // what the effect says it changed
	Confirmation  *Confirmation     `json:"confirmation,omitempty"` // set if the recorded effect was confirmed before it was served
	CompensatedBy tga.ID            `json:"compensated_by,omitempty"`
	Receipt       json.RawMessage   `json:"receipt,omitempty"` // if [HeaderReceipt] was sent: as GET /v1/traces/{id}/receipt
}

// Confirmation is the result of verifying a recorded effect's changes in the world.
type Confirmation struct {
	Checked        int        `json:"checked"`
	Unchecked      int        `json:"unchecked"` // changes without a verifier
	Mismatches     []Mismatch `json:"mismatches"`
	Skipped        bool       `json:"skipped"`                   // an earlier confirmation still holds
	EvidenceDigest tga.Digest `json:"evidence_digest,omitempty"` // GET /v1/evidence/{digest}
}

// Mismatch is a recorded change that no longer holds.
type Mismatch struct {
	Change  tga.StateChange `json:"change"`
	Finding string          `json:"finding"`          // gone, changed or cannot_tell
	Reason  string          `json:"reason,omitempty"` // of a verifier that failed
}

// BeginRequest asks for permission to send a call oneself: POST /v1/begin.
type BeginRequest struct {
	CallRequest
	BeginID    string      `json:"begin_id"`
	Connection *Connection `json:"connection,omitempty"`
	Hint       string      `json:"hint,omitempty" wire:"filled"` // see [runtime.BeginRequest]
	// Licence is the claim of the program, which runs the tool itself, about what running it again would
	// do. The other two members are the times of a dedupe_key and of a probe licence; 0 means the
	// operator's time. See [runtime.BeginRequest].
	Licence              string `json:"licence,omitempty" wire:"filled"`
	LicenceWindowMS      int64  `json:"licence_window_ms,omitempty" wire:"filled"`
	LicenceMaxInFlightMS int64  `json:"licence_max_in_flight_ms,omitempty" wire:"filled"`
	// Delivered are traces whose whole answers have reached the caller; see [runtime.BeginRequest].
	Delivered []tga.ID `json:"delivered,omitempty"`
}

// Connection is the client's end of a call that an executor begins for it; see
// [runtime.Connection].
type Connection struct {
	ID       string `json:"id"`
	Lock     string `json:"lock,omitempty"`
	Executor string `json:"executor,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Asks     bool   `json:"asks,omitempty"`
	Again    tga.ID `json:"again,omitempty"`
}

// Begun is the answer to a begin. Only standing "send" permits a send.
type Begun struct {
	Standing string `json:"standing"`
	Attempt  uint32 `json:"attempt,omitempty"`
	Permit   string `json:"permit,omitempty"`
	// SendWithinMS is how many milliseconds after its begin request the executor may start the
	// send at the latest, by the larger of its own monotonic and wall time. It is absent if nothing may be sent.
	SendWithinMS   int64  `json:"send_within_ms,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// Args are the arguments to send, byte for byte: the canonical form that was digested.
	Args  json.RawMessage `json:"args,omitempty"`
	Call  Call            `json:"call"`
	Cause *Problem        `json:"cause,omitempty"`
	// Ask says that the client is to ask its person. Since is the newest time known of the
	// identical call.
	Ask   bool       `json:"ask,omitempty"`
	Since tga.Millis `json:"since,omitempty"`
	// Barred says that the peer that began the call may not vote on it.
	Barred bool `json:"barred,omitempty"`
}

// Outcome is what somebody learnt of a call: from the tool server, or as evidence.
type Outcome struct {
	Status       string          `json:"status"`
	OutcomeClass string          `json:"outcome_class,omitempty" wire:"filled"`
	Summary      string          `json:"summary,omitempty"`
	ErrorCode    string          `json:"error_code,omitempty"`
	ErrorMessage string          `json:"error_message,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`        // the answer if it is JSON, exact
	ResultBase64 []byte          `json:"result_base64,omitempty"` // the bytes of any other answer
	// ResultBytes and ResultDigest describe an answer that was too long to keep.
	ResultBytes  int64      `json:"result_bytes,omitempty" wire:"filled"`
	ResultDigest tga.Digest `json:"result_digest,omitempty"`
	// RetryAfterMS is how long the tool server asks to wait before another request, at most a day.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Changes is what the call changed, if the daemon's rules do not determine that.
	Changes []tga.StateChange `json:"changes,omitempty"`
}

// FinishRequest records the effect of a begun call: POST /v1/traces/{id}/finish.
type FinishRequest struct {
	Permit string `json:"permit"`
	Outcome
}

// NotSentRequest returns a permit, asserting that no byte reached the tool: POST /v1/traces/{id}/not-sent.
type NotSentRequest struct {
	Permit string `json:"permit"`
	Reason string `json:"reason,omitempty"`
	// RetryAfterMS is how long the tool server asks to wait before another request, at most a day.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

// GiveUpRequest says that an executor has stopped executing its attempt and does not know
// whether it took effect: POST /v1/traces/{id}/give-up.
type GiveUpRequest struct {
	Permit string `json:"permit"`
	Cause  string `json:"cause,omitempty"` // why that is not known; at most 500 characters are kept
	// RetryAfterMS is how long the tool server asks to wait before another request, at most a day.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

// ResolveRequest ends a call in doubt: POST /v1/traces/{id}/resolve.
type ResolveRequest struct {
	Outcome
	Via            string          `json:"via,omitempty" wire:"filled"` // see [runtime.ViaModel]
	Evidence       json.RawMessage `json:"evidence,omitempty"`
	EvidenceBase64 []byte          `json:"evidence_base64,omitempty"`
	// Attempts is how many attempts the call had when somebody checked what it did in the
	// world; see [runtime.Resolution].
	Attempts uint32 `json:"attempts,omitempty" wire:"filled"`
}

// AbandonRequest ends a call in doubt although it stays unknown whether it ran: POST
// /v1/traces/{id}/abandon.
type AbandonRequest struct {
	Reason string `json:"reason,omitempty"`
	Via    string `json:"via,omitempty" wire:"filled"` // see [runtime.ViaModel]
}

// RelicenseRequest applies the tool's present licence to a call in doubt, instead of the licence of
// its newest attempt: POST /v1/traces/{id}/relicense.
type RelicenseRequest struct {
	Reason string `json:"reason"`            // 1..500 characters; it is recorded
	DryRun bool   `json:"dry_run,omitempty"` // say what would follow, and change nothing
}

// Relicensed says what a RelicenseRequest changed.
type Relicensed struct {
	Was  string `json:"was"`  // the licence of the newest attempt
	Now  string `json:"now"`  // the present licence
	Next string `json:"next"` // resend, probe, begin
	Call Call   `json:"call"`
}

// DecideRequest is a vote on a pending request: POST /v1/traces/{id}/decide.
type DecideRequest struct {
	Approve   bool   `json:"approve"`
	Rationale string `json:"rationale"` // 10..1000 characters
	// About is the [Approval.About] of the question that the voter was shown.
	About tga.Digest `json:"about,omitempty"`
}

// OpenTrace is a trace that is not terminal.
type OpenTrace struct {
	TraceID        tga.ID     `json:"trace_id"`
	Namespace      string     `json:"namespace"`
	State          string     `json:"state"`
	Since          tga.Millis `json:"since"`
	Deadline       tga.Millis `json:"deadline,omitempty"`
	ToolServer     string     `json:"tool_server,omitempty"`
	ToolName       string     `json:"tool_name,omitempty"`
	IdempotencyKey string     `json:"idempotency_key,omitempty"`
	ToolCallID     tga.ID     `json:"tool_call_id,omitempty"`
	Held           bool       `json:"held"` // a live process is executing it
	// Only the in-doubt and recovery lists have Window and Attempts.
	Window   string   `json:"window,omitempty"`
	Attempts uint32   `json:"attempts,omitempty"`
	Doubt    *Doubt   `json:"doubt,omitempty"`   // only in the in-doubt list
	Problem  *Problem `json:"problem,omitempty"` // why it is quarantined, or not finished
}

// Doubt is what is known of a call in doubt, and what would end it.
type Doubt struct {
	Since    tga.Millis `json:"since"`   // of the newest attempt
	Licence  string     `json:"licence"` // park, probe, …
	External bool       `json:"external"`
	Cause    string     `json:"cause,omitempty"` // why the newest attempt has no certain answer
	// The questions that a probe licence permits, and the answer to the last of them.
	Probes         uint32     `json:"probes"`
	Asked          tga.Millis `json:"asked,omitempty"`
	Answer         string     `json:"answer,omitempty"` // ran, not_ran or unknown
	Fenced         bool       `json:"fenced,omitempty"`
	Source         string     `json:"source,omitempty"` // what was probed
	EvidenceDigest tga.Digest `json:"evidence_digest,omitempty"`
	Next           tga.Millis `json:"next,omitempty"` // when the next probe is due
	// Settles lists what would end the doubt: finish (its executor's answer), begin (its
	// executor sends again), recover (it is sent again), probe, resolve, abandon.
	Settles []string `json:"settles"`
}

// Traces is a page of traces, by trace id or the newest first.
type Traces struct {
	Traces []OpenTrace `json:"traces"`
	Next   tga.ID      `json:"next,omitempty"` // after= of the next page
	// Before is set together with Next if the newest come first: before= of the next page.
	Before tga.Millis `json:"before,omitempty"`
}

// Recovered is the result of recovering the open traces.
type Recovered struct {
	Traces []RecoveredTrace `json:"traces"`
}

// RecoveredTrace is the result of recovering one trace.
type RecoveredTrace struct {
	OpenTrace
	Call Call `json:"call"`
}

// Entry is one link of a trace's log with what was stored with it.
type Entry struct {
	Entry     json.RawMessage `json:"entry"`    // canonical execution_log_entry
	Artifact  json.RawMessage `json:"artifact"` // canonical, null when erased
	Documents []Document      `json:"documents,omitempty"`
	Committed tga.Millis      `json:"committed"` // the store's clock at the commit
	Epoch     string          `json:"epoch"`     // of the lease, decimal
}

// Document describes a stored document; GET /v1/traces/{id}/documents has its bytes.
type Document struct {
	Pointer   string     `json:"pointer"`
	SizeBytes int64      `json:"size_bytes"`
	Hash      tga.Digest `json:"hash"`
	Erased    bool       `json:"erased,omitempty"`
}

// Timeline is everything about one trace: GET /v1/traces/{id}.
type Timeline struct {
	TraceID   tga.ID            `json:"trace_id"`
	PlanID    tga.ID            `json:"plan_id,omitempty"` // absent if the trace was erased
	Namespace string            `json:"namespace"`
	Deadline  tga.Millis        `json:"deadline,omitempty"`
	Held      bool              `json:"held"`
	Call      Call              `json:"call"`
	Entries   []Entry           `json:"entries"`
	Notes     []json.RawMessage `json:"notes"` // canonical notes
	Approval  *Approval         `json:"approval,omitempty"`
}

// What people are asked.
const (
	KindDecision     = "decision"     // may the request become a call?
	KindConfirmation = "confirmation" // may the record be relied on although some changes no longer hold?
)

// Approval is a trace that waits for people.
type Approval struct {
	TraceID  tga.ID     `json:"trace_id"`
	Kind     string     `json:"kind"`
	Since    tga.Millis `json:"since"`
	Expires  tga.Millis `json:"expires,omitempty"`
	Required int        `json:"required"`
	Why      string     `json:"why"`
	Votes    []Vote     `json:"votes,omitempty"`
	// About identifies the question, if there can be several about the trace. Changed says that a
	// vote to approve must name it. See [runtime.Approval].
	About   tga.Digest `json:"about,omitempty"`
	Changed bool       `json:"changed,omitempty"`

	// Of a confirmation: what was found, the stored evidence, and the traces that wait.
	MismatchDigest tga.Digest `json:"mismatch_digest,omitempty"`
	EvidenceDigest tga.Digest `json:"evidence_digest,omitempty"`
	Waiting        []tga.ID   `json:"waiting,omitempty"`
}

// Vote is one person's vote.
type Vote struct {
	Who       string     `json:"who"`
	Approve   bool       `json:"approve"`
	Rationale string     `json:"rationale"`
	TS        tga.Millis `json:"ts"`
}

// Approvals lists what waits for people.
type Approvals struct {
	Approvals []Approval `json:"approvals"`
	Unread    []Unread   `json:"unread,omitempty"` // traces that wait too, and cannot be read now
}

// RollbackPlan says what undoing a set of traces would do, the newest effect first:
// GET /v1/rollback-plan?trace=…&trace=…
type RollbackPlan struct {
	Steps []RollbackStep `json:"steps"`
}

// RollbackStep is one effect of a plan.
type RollbackStep struct {
	TraceID       tga.ID     `json:"trace_id"`
	State         string     `json:"state"`
	ToolServer    string     `json:"tool_server,omitempty"`
	ToolName      string     `json:"tool_name,omitempty"`
	OutcomeClass  string     `json:"outcome_class,omitempty"`
	Settled       tga.Millis `json:"settled,omitempty"` // when the effect was recorded
	CanUndo       bool       `json:"can_undo"`
	Inverse       *Inverse   `json:"inverse,omitempty"` // with can_undo
	CompensatedBy tga.ID     `json:"compensated_by,omitempty"`
	Why           string     `json:"why,omitempty"` // why it cannot be undone, or need not
}

// Inverse is the call that undoes another.
type Inverse struct {
	ToolServer string          `json:"tool_server"`
	ToolName   string          `json:"tool_name"`
	Args       json.RawMessage `json:"args"`
}
