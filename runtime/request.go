package runtime

import (
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Request asks for one governed tool call. Server, Tool and Args are required, and
// Key where the tool is a write tool.
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
	// Scope and Step name the call where the caller has no Key: a key is derived from
	// them, the tool and the arguments ([ledger.DeriveKey]). The same call again in one
	// step is a repeat until its answer was delivered ([Runtime.Delivered]), and a new
	// call afterwards.
	Scope, Step string

	Namespace string // "" means tga.DefaultNamespace
	PlanID    tga.ID // zero means a new one
	AgentID   tga.ID // zero means Options.AgentID
	Risk      string // "" means tga.RiskRead for a read tool, else tga.RiskWrite
	Intent    string // 10..1000 characters; "" means a sentence naming the tool
	Resources []tga.Resource
	// Deadline ends the call: no first send after it, in recovery and after an approval
	// too. Zero means none. How long somebody waits for the answer is the context's to say
	// and changes nothing about the call.
	Deadline time.Time
	// Retry asks for a new attempt where the key is settled as a retryable failure.
	Retry bool
	// Fresh is the caller's word that Key was never used. A store in quarantine, which
	// may have lost records, sends a write call with an unused key only with it.
	Fresh bool
	// Replay says that the caller relies on a recorded effect as if it had just
	// happened: it is confirmed before it is served.
	Replay bool
	// Submitter is who hands the request in; it must not be the one who approves it.
	Submitter string
	// Meta is added to the request's meta. The names that tgad uses are refused.
	Meta tga.Meta

	whole []byte   // canonical arguments, where Args is what a Redactor left of them
	own   tga.Meta // the runtime's own names: of a retry, a compensation, a derived key
	// unused is the key that was looked for while this call was begun, and that was never used.
	unused ledger.Key
}

// Result says where a call stands. A FAILED or DENIED trace is a result, not an
// error: see [Result.Err].
type Result struct {
	TraceID tga.ID
	State   tga.State
	Seq     uint64 // of the head
	Digest  tga.Digest

	ToolCallID tga.ID
	Key        string
	Attempts   uint32 // sends that were marked for this trace; 0 for a served call
	Sent       uint32 // those of them of which it is not known that no byte left

	// Set in a terminal state with an effect.
	Status       string       // tga.StatusSuccess, …
	Class        ledger.Class // outcome class
	Value        []byte       // the tool's whole answer, exact bytes; nil where there was none
	ResultBytes  int64        // size of an answer of which no bytes are kept, too long or erased; and its digest
	ResultDigest tga.Digest
	Summary      string
	ErrorCode    tga.Code
	ErrorMessage string
	// ToolErrorCode is what the tool called its error, where ErrorCode is not that.
	ToolErrorCode string
	// RetryAfter is how long the tool server asked not to be asked again, from when it
	// answered; 0 where it did not say.
	RetryAfter time.Duration
	// ResolvedBy says who settled the effect where it is not the tool's own answer:
	// "probe", "person" or "late_reply".
	ResolvedBy string
	// ResolvedVia is [ViaModel] where a model decided it, by the right of a person; else "".
	ResolvedVia string
	// ServedFrom is the trace whose recorded effect this is; zero where this trace's
	// own call led to it.
	ServedFrom tga.ID
	// Replayed says that the answer is a recorded one: the trace was terminal before this
	// call of the method, or the effect of another trace is served (ServedFrom).
	Replayed bool
	// Redacted says that Value is what was left of the answer when it was stored.
	Redacted bool

	// Rationale is the decision's, set once there is one.
	Rationale string

	// Changes is what the effect says it changed.
	Changes []tga.StateChange
	// Confirmation is set where the record was looked at before it was served.
	Confirmation *Confirmation
	// CompensatedBy is the trace that undid the effect; Class then says so too.
	CompensatedBy tga.ID
	// Receipt is what a daemon sent along for a client that asked for receipts. In process it is nil: see [Runtime.Receipt].
	Receipt *Receipt
}

// Err returns nil for a COMPLETED trace, and otherwise an error with the code that a
// program may act on: POLICY_VIOLATION for DENIED, the effect's code for FAILED
// (TOOL_ERROR where it has none), STATE_ERROR for a trace that is not terminal.
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
