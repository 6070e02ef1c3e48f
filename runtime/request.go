package runtime

import (
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Request asks for one governed tool call. Server, Tool and Args are required, and for a
// write tool also Key.
type Request struct {
	// TraceID names the call; zero means a new one. A repeated Call with the same
	// TraceID and the same proposal goes on with that trace.
	TraceID tga.ID

	Server string
	Tool   string
	Args   []byte // JSON object; nil means {}
	// Key is the idempotency key, 1..255 characters, the same for every repeat of one
	// intended call.
	Key string
	// Scope and Step name the call if the caller has no Key: a key is derived from
	// them, the tool and the arguments ([ledger.DeriveKey]). The same call in the same
	// step counts as a repeat until its answer was delivered ([Runtime.Delivered]), and as
	// a new call after that.
	Scope, Step string

	Namespace string // "" means tga.DefaultNamespace
	PlanID    tga.ID // zero means a new one
	AgentID   tga.ID // zero means Options.AgentID
	Risk      string // "" means tga.RiskRead for a read tool, else tga.RiskWrite
	Intent    string // 10..1000 characters; "" means a sentence naming the tool
	Resources []tga.Resource
	// Deadline ends the call: there is no first send after it, not in recovery and not after
	// an approval. Zero means none. The context says how long the caller waits for the answer;
	// that changes nothing about the call.
	Deadline time.Time
	// Retry asks for a new attempt if the key is settled as a retryable failure.
	Retry bool
	// Fresh is the caller's assertion that Key was never used. A store in quarantine, which
	// may have lost records, sends a write call with an unused key only if Fresh is set.
	Fresh bool
	// Replay says that the caller relies on a recorded effect as if it had just
	// happened: it is confirmed before it is served.
	Replay bool
	// Submitter is who submits the request. The submitter must not approve it.
	Submitter string
	// Meta is added to the request's meta. The names that tgad uses are refused.
	Meta tga.Meta

	whole []byte   // canonical whole arguments, if Args is their redacted form
	own   tga.Meta // meta under the runtime's own names: of a retry, a compensation, a derived key
	// unused is the key that was looked up while this call was begun, if it was never used.
	unused ledger.Key
}

// deadline returns the deadline in the log's form, 0 for none. A deadline at the beginning of 1970 or
// before is over, and must not become the 0 that means none.
func (req *Request) deadline() tga.Millis {
	if req.Deadline.IsZero() {
		return 0
	}
	return max(tga.MillisOf(req.Deadline), 1)
}

// Result is the state of a call. A FAILED or DENIED trace is a result, not an
// error: see [Result.Err].
type Result struct {
	TraceID tga.ID
	State   tga.State
	Seq     uint64 // of the head
	Digest  tga.Digest

	ToolCallID tga.ID
	Key        string
	Attempts   uint32 // sends that were marked for this trace; 0 for a served call
	Sent       uint32 // those of them that may have been sent: a byte may have left

	// Set in a terminal state with an effect.
	Status       string       // tga.StatusSuccess, …
	Class        ledger.Class // outcome class
	Value        []byte       // the tool's whole answer, exact bytes, the caller's own copy; nil where there was none
	ResultBytes  int64        // size of an answer whose bytes are not kept: it was too long, or is erased
	ResultDigest tga.Digest   // its digest
	Summary      string
	ErrorCode    tga.Code
	ErrorMessage string
	// ToolErrorCode is the tool's own name of its error, if ErrorCode is another code.
	ToolErrorCode string
	// RetryAfter is how long the tool server asked callers to wait, counted from its answer;
	// 0 if it did not say.
	RetryAfter time.Duration
	// ResolvedBy says who settled the effect if it is not the tool's own answer:
	// "probe" or "person"; "late_reply" is reserved.
	ResolvedBy string
	// ResolvedVia is [ViaModel] if a model decided it with the right of a person; else "".
	ResolvedVia string
	// ServedFrom is the trace whose recorded effect this is; zero if it is the effect of
	// this trace's own call.
	ServedFrom tga.ID
	// Replayed says that the answer was recorded before: the trace was terminal before this
	// call of the method, or the effect of another trace is served (ServedFrom).
	Replayed bool
	// Redacted says that Value is the redacted form of the answer, as it was stored.
	Redacted bool

	// Rationale is the decision's, set once there is one.
	Rationale string

	// Changes is what the effect says it changed.
	Changes []tga.StateChange
	// Confirmation is set if the record was confirmed before it was served.
	Confirmation *Confirmation
	// CompensatedBy is the trace that undid the effect; Class is then ledger.ClassCompensated.
	CompensatedBy tga.ID
	// Receipt is set if a client asked the daemon for receipts. In process it is nil: see [Runtime.Receipt].
	Receipt *Receipt
}

// Err returns nil for a COMPLETED trace, and otherwise an error with a code that a
// program can act on: POLICY_VIOLATION for DENIED, the effect's code for FAILED
// (TOOL_ERROR if it has none), STATE_ERROR for a trace that is not terminal.
func (r Result) Err() error {
	switch r.State {
	case tga.Completed:
		return nil
	case tga.Denied:
		return tga.Errorf(tga.PolicyViolation, "call denied: %s", r.Rationale).In(r.TraceID)
	case tga.Failed:
		code := r.ErrorCode
		if code == "" {
			code = tga.ToolError
		}
		return tga.Errorf(code, "call failed: %s", firstOf(r.ErrorMessage, r.Summary, r.Status)).In(r.TraceID)
	}
	return tga.Errorf(tga.GenericStateError, "trace is %s, not terminal", r.State).In(r.TraceID)
}

func firstOf(ss ...string) string {
	for _, s := range ss {
		if s != "" {
			return s
		}
	}
	return ""
}
