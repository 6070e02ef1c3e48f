package turn

import (
	"encoding/json"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// What the records of the phases say, in the order in which they come.

// initBody is INIT's (OSSA 0.2.9 §1 phase 1).
type initBody struct {
	AgentID           string      `json:"agent_id"`
	AgentName         string      `json:"agent_name"`
	AgentVersion      string      `json:"agent_version"`
	InvocationID      tga.ID      `json:"invocation_id"`      // the id of its first turn
	Previous          *tga.ID     `json:"previous,omitempty"` // turn of the chain before this one
	PreviousHead      *tga.Digest `json:"previous_head,omitempty"`
	Chain             int         `json:"chain"` // from 1: place in the invocation
	InvocationStarted tga.Millis  `json:"invocation_started"`
	SessionID         string      `json:"session_id"`
	InstanceID        string      `json:"instance_id"`
	TurnNumber        uint32      `json:"turn_number"` // from 1, in the session
	TokensBefore      int64       `json:"tokens_before"`
	CallsBefore       int         `json:"tool_calls_before,omitempty"` // of the invocation's turns before this one
	StartedAt         tga.Millis  `json:"started_at"`
	Deadline          tga.Millis  `json:"deadline"`        // 0 = none
	Until             tga.Millis  `json:"until,omitempty"` // deadline of all that is done for who handed over
	SpanContext       SpanContext `json:"span_context"`
	Parent            *Parent     `json:"parent,omitempty"`
	// Scope is where the turn's state is.
	Mode      state.Mode      `json:"state_mode"`
	Isolation state.Isolation `json:"isolation_level"`
	ScopeID   string          `json:"state_scope"`
	// Lent means that the state is the parent's: what the turn does to it is handed back.
	Lent bool `json:"lent,omitempty"`
	// Root is the invocation that a person's message began; DepthLeft how deep delegations
	// may still be below this turn.
	Root      tga.ID `json:"root"`
	DepthLeft int    `json:"depth_left"`
	// Input is what came in, as it came; NORM's record says what it means. Given are
	// messages that came in normalized: tool results, or a delegation's history. Where the
	// agent's filter takes something out of them they are not kept: Received is a keyed
	// digest of the input then, ReceivedBytes its length.
	Input         []byte            `json:"input,omitempty"`
	Received      tga.Digest        `json:"received,omitzero"`
	ReceivedBytes int               `json:"received_bytes,omitempty"`
	Format        string            `json:"format,omitempty"`
	Source        message.Source    `json:"source"`
	Given         []message.Message `json:"given,omitempty"`
	Context       json.RawMessage   `json:"custom_context,omitempty"`
}

// normalizeBody is NORM's.
type normalizeBody struct {
	Messages []message.Message `json:"messages"`
	Findings []message.Finding `json:"findings,omitempty"`
	Timing   PhaseTiming       `json:"timing"`
}

// resolveBody is RESOL's.
type resolveBody struct {
	Tools    []Tool      `json:"tools"`
	Warnings []Warning   `json:"warnings,omitempty"`
	Timing   PhaseTiming `json:"timing"`
}

// askedBody is a question before it is sent.
type askedBody struct {
	What     string     `json:"what"` // "infer" or "summarize"
	Attempt  int        `json:"attempt"`
	Provider string     `json:"provider"`
	Question Question   `json:"question"`
	Digest   tga.Digest `json:"question_digest"`
}

// inferBody is INFER's.
type inferBody struct {
	Inferences []Inference `json:"inferences"`
	Answer     Answer      `json:"answer"`
	Timing     PhaseTiming `json:"timing"`
}

// executeBody is EXEC's.
type executeBody struct {
	Executions  []ToolExecution    `json:"executions"`
	Messages    []message.Message  `json:"messages"` // the results, as the next turn gets them
	Delegations []DelegationTiming `json:"delegations,omitempty"`
	// Handoff is the answer of an agent that took over.
	Handoff *message.Message `json:"handoff,omitempty"`
	Timing  PhaseTiming      `json:"timing"`
}

// persistBody is PERSIST's.
type persistBody struct {
	Transaction state.Transaction `json:"transaction,omitzero"`
	Timing      PhaseTiming       `json:"timing"`
}

// failedBody ends a turn but for its EMIT phase.
type failedBody struct {
	Failure Failure `json:"failure"`
	// Effects are the calls whose effects stand although the state was rolled back.
	Effects []ToolExecution `json:"effects,omitempty"`
}

// parkedBody says what a turn waits for.
type parkedBody struct {
	Failure Failure `json:"failure"`
	Subject string  `json:"subject"` // what of the phase: "" the phase, else a call's id
	Target  string  `json:"target,omitempty"`
	TraceID *tga.ID `json:"trace_id,omitempty"` // of the call that waits or is in doubt
	Child   *tga.ID `json:"child,omitempty"`    // turn of another agent that waits
	// Expires is when a delegation that nobody has approved is refused; 0 = never. The
	// approval of a governed call has its own expiry, with the call.
	Expires tga.Millis `json:"expires,omitempty"`
}

// expired says that nobody may approve any more what is waited for.
func (b *parkedBody) expired(now tga.Millis) bool { return b.Expires != 0 && now >= b.Expires }

// resumedBody says that a turn goes on that waited, and for how long its time stood still.
type resumedBody struct {
	WaitedMS int64 `json:"waited_ms"`
}

// decidedBody is a person's answer to a parked turn.
type decidedBody struct {
	Who    string          `json:"who"`
	Action Strategy        `json:"action"` // Retry, Fallback, Skip or Abort
	Value  json.RawMessage `json:"value,omitempty"`
	Note   string          `json:"note,omitempty"`
}

// emitBody is EMIT's, the last record of a turn.
type emitBody struct {
	Next   *tga.ID     `json:"next,omitempty"` // the turn that follows in the chain
	Failed bool        `json:"failed"`
	Timing PhaseTiming `json:"timing"`
}
