package turn

import (
	"context"
	"time"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Emitter sends telemetry of finished turns to a receiver. Emit is best effort: its error is
// logged and changes nothing. A turn whose EMIT phase was cut off by a crash is emitted again:
// use [Emission.InteractionID] to recognize the repeat.
type Emitter interface {
	Emit(ctx context.Context, e *Emission) error
}

// Placer is an [Emitter] that makes spans. The spans of a turn are made only when it has ended.
// Place says earlier which span context they will have, so that the servers that are asked
// meanwhile can be told.
type Placer interface {
	Emitter
	// Place returns the context of the span of a part; empty if no span is made. e only
	// identifies the turn and has none of its results. It must not block.
	Place(e *Emission, of Part) SpanContext
}

// Part is a question to a model or a call of a tool; one of the two is set.
type Part struct {
	Question tga.ID // trace of the governed call
	ToolCall string // the model's id
}

// SpanContext has the W3C Trace Context and Baggage that came in, as unchanged header values;
// empty if there was none.
type SpanContext = runtime.SpanContext

// Parent is the turn that delegated to this one.
type Parent struct {
	AgentID       string `json:"agent_id"`
	InteractionID tga.ID `json:"interaction_id"`
}

// Emission is the telemetry of one turn (OSSA 0.2.9 §1 phase 7).
type Emission struct {
	Agent         *Agent
	InvocationID  tga.ID
	InteractionID tga.ID
	SessionID     string
	InstanceID    string
	Parent        *Parent // nil unless delegated
	TurnNumber    uint32
	SpanContext   SpanContext

	InvocationStarted time.Time // start of the first turn of the chain
	Started           time.Time
	Ended             time.Time
	Phases            []PhaseTiming
	Inferences        []Inference
	Tools             []ToolExecution
	Delegations       []DelegationTiming
	State             StateTiming
	Usage             Usage
	// First and Last say that the invocation began and ended with this turn.
	First, Last bool
	// Failure is nil if the turn completed.
	Failure *Failure
}

// PhaseTiming says when a phase ran. A phase that went on after a crash has the times of the
// process that ended it.
type PhaseTiming struct {
	Phase   Phase     `json:"phase"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}

// Inference is one question to a model.
type Inference struct {
	TraceID    tga.ID       `json:"trace_id,omitzero"` // of the governed call
	Attempt    uint32       `json:"attempt"`
	Provider   string       `json:"provider"`
	Model      string       `json:"model"` // asked
	Answered   string       `json:"answered,omitempty"`
	ResponseID string       `json:"response_id,omitempty"`
	Parameters Parameters   `json:"parameters"`
	Finish     FinishReason `json:"finish_reason,omitempty"`
	Usage      Usage        `json:"usage"`
	Started    time.Time    `json:"started"`
	Ended      time.Time    `json:"ended"`
	Failure    *Failure     `json:"failure,omitempty"`
}

// DelegationTiming is one delegation.
type DelegationTiming struct {
	Type          DelegationType `json:"type"`
	Target        string         `json:"target"`
	InteractionID tga.ID         `json:"interaction_id,omitzero"` // the delegate's first turn
	Started       time.Time      `json:"started"`
	Ended         time.Time      `json:"ended"`
	Failure       *Failure       `json:"failure,omitempty"`
}

// StateTiming says when the turn's state was loaded and saved, and what was changed.
type StateTiming struct {
	Mode        state.Mode
	Isolation   state.Isolation
	TTL         time.Duration
	Transaction string // id; "" where nothing was changed
	Changes     int
	LoadStarted time.Time
	LoadEnded   time.Time
	SaveStarted time.Time
	SaveEnded   time.Time
}

// ToolStatus is the outcome of a requested call (OSSA 0.2.9 §1 phase 5).
type ToolStatus string

// The statuses.
const (
	ToolSucceeded ToolStatus = "success"
	ToolFailed    ToolStatus = "error"
	ToolTimedOut  ToolStatus = "timeout"
)

// ToolExecution is one requested call and its outcome.
type ToolExecution struct {
	CallID     string     `json:"call_id"` // the model's
	Name       string     `json:"tool_name"`
	Server     string     `json:"server,omitempty"`
	Remote     string     `json:"remote,omitempty"`
	Source     SourceType `json:"source,omitempty"`
	Transport  Transport  `json:"transport,omitempty"`
	TraceID    tga.ID     `json:"trace_id,omitzero"` // of the governed call; zero where none was made
	Input      string     `json:"input"`
	Status     ToolStatus `json:"status"`
	Output     string     `json:"output,omitempty"` // as stored, after redaction; after a timeout, what there was
	Failure    *Failure   `json:"failure,omitempty"`
	Retries    int        `json:"retries"`
	Started    time.Time  `json:"started_at"`
	Ended      time.Time  `json:"completed_at"`
	DurationMS int64      `json:"duration_ms"`
}
