package turn

import (
	"encoding/json"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// These are the bodies of the records, in the order of the phases.

// initBody is the body of INIT's record (OSSA 0.2.9 §1 phase 1).
type initBody struct {
	AgentID           string      `json:"agent_id"`
	AgentName         string      `json:"agent_name"`
	AgentVersion      string      `json:"agent_version"`
	InvocationID      tga.ID      `json:"invocation_id"`      // the id of the invocation's first turn
	Previous          *tga.ID     `json:"previous,omitempty"` // the turn before this one in the chain
	PreviousHead      *tga.Digest `json:"previous_head,omitempty"`
	Chain             int         `json:"chain"` // the turn's number in the invocation, from 1
	InvocationStarted tga.Millis  `json:"invocation_started"`
	SessionID         string      `json:"session_id"`
	InstanceID        string      `json:"instance_id"`
	TurnNumber        uint32      `json:"turn_number"` // from 1, in the session
	TokensBefore      int64       `json:"tokens_before"`
	CallsBefore       int         `json:"tool_calls_before,omitempty"` // of the invocation's turns before this one
	StartedAt         tga.Millis  `json:"started_at"`
	Deadline          tga.Millis  `json:"deadline"`        // 0 = none
	Until             tga.Millis  `json:"until,omitempty"` // deadline of the whole invocation
	SpanContext       SpanContext `json:"span_context"`
	Parent            *Parent     `json:"parent,omitempty"`
	// These fields say which state the turn works on.
	Mode      state.Mode      `json:"state_mode"`
	Isolation state.Isolation `json:"isolation_level"`
	ScopeID   string          `json:"state_scope"`
	// Lent means that the state belongs to the parent, which commits the turn's changes.
	Lent bool `json:"lent,omitempty"`
	// Root is the invocation that a person's message began. DepthLeft is how deep delegations may
	// still nest below this turn.
	Root      tga.ID `json:"root"`
	DepthLeft int    `json:"depth_left"`
	// Input is the unchanged input; NORM's record has its meaning. Given are messages that came
	// in normalized: tool results, or a delegation's history. If the agent's filter removes
	// something from them, they are not stored: Received is then a keyed digest of the input, and
	// ReceivedBytes its length.
	Input         []byte            `json:"input,omitempty"`
	Received      tga.Digest        `json:"received,omitzero"`
	ReceivedBytes int               `json:"received_bytes,omitempty"`
	Format        string            `json:"format,omitempty"`
	Source        message.Source    `json:"source"`
	Given         []message.Message `json:"given,omitempty"`
	Context       json.RawMessage   `json:"custom_context,omitempty"`
}

// normalizeBody is the body of NORM's record.
type normalizeBody struct {
	Messages []message.Message `json:"messages"`
	Findings []message.Finding `json:"findings,omitempty"`
	Timing   PhaseTiming       `json:"timing"`
}

// resolveBody is the body of RESOL's record.
type resolveBody struct {
	Tools    []Tool      `json:"tools"`
	Warnings []Warning   `json:"warnings,omitempty"`
	Timing   PhaseTiming `json:"timing"`
}

// askedBody is the body of an Asked record: a question before it is sent.
type askedBody struct {
	What     string     `json:"what"` // "infer" or "summarize"
	Attempt  int        `json:"attempt"`
	Provider string     `json:"provider"`
	Question Question   `json:"question"`
	Digest   tga.Digest `json:"question_digest"`
}

// inferBody is the body of INFER's record.
type inferBody struct {
	Inferences []Inference `json:"inferences"`
	Answer     Answer      `json:"answer"`
	Timing     PhaseTiming `json:"timing"`
}

// executeBody is the body of EXEC's record.
type executeBody struct {
	Executions  []ToolExecution    `json:"executions"`
	Messages    []message.Message  `json:"messages"` // the results, as the next turn gets them
	Delegations []DelegationTiming `json:"delegations,omitempty"`
	// Handoff is the answer of an agent that took over.
	Handoff *message.Message `json:"handoff,omitempty"`
	Timing  PhaseTiming      `json:"timing"`
}

// persistBody is the body of PERSIST's record.
type persistBody struct {
	Transaction state.Transaction `json:"transaction,omitzero"`
	Timing      PhaseTiming       `json:"timing"`
}

// failedBody is the body of the record that ends a turn except for its EMIT phase.
type failedBody struct {
	Failure Failure `json:"failure"`
	// Effects are the calls whose effects stand although the state was rolled back.
	Effects []ToolExecution `json:"effects,omitempty"`
}

// parkedBody says what a turn waits for.
type parkedBody struct {
	Failure Failure `json:"failure"`
	Subject string  `json:"subject"` // what waits: "" is the phase, else a call's id
	Target  string  `json:"target,omitempty"`
	TraceID *tga.ID `json:"trace_id,omitempty"` // the call that waits for an approval or is in doubt
	Child   *tga.ID `json:"child,omitempty"`    // the turn of another agent that waits
	// Expires is when a delegation that nobody has approved is refused; 0 = never. The approval
	// of a governed call expires with the call.
	Expires tga.Millis `json:"expires,omitempty"`
}

// expired says that the time for an approval is over.
func (b *parkedBody) expired(now tga.Millis) bool { return b.Expires != 0 && now >= b.Expires }

// resumedBody says that a turn that waited goes on, and for how long its time was paused.
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

// emitBody is the body of EMIT's record, the last record of a turn.
type emitBody struct {
	Next   *tga.ID     `json:"next,omitempty"` // the turn that follows in the chain
	Failed bool        `json:"failed"`
	Timing PhaseTiming `json:"timing"`
}
