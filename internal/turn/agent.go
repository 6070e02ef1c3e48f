package turn

import (
	"encoding/json"
	"time"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// Agent is the part of a manifest that the runtime acts on. The zero value of every field but
// Name means the default that its comment gives.
type Agent struct {
	ID      string // "" = Name
	Name    string // required, ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$
	Version string // "" = "0.0.0"

	// Role is the first part of the system prompt, SystemPrompt the second.
	Role         string
	SystemPrompt string
	Examples     []Example
	Model        ModelSpec
	Tools        []ToolSpec
	Servers      []ToolServer

	Constraints Constraints
	Autonomy    Autonomy
	Retry       RetryPolicy // for tools without a policy of their own
	Breaker     BreakerSpec
	Handlers    []Handler // before the default table, in order
	State       StateSpec
	Workspace   WorkspaceSpec `json:",omitzero"`
	Chain       ChainSpec
	Memory      message.Memory
	Identity    Identity
	// Filter applies to content that comes in, Redact to the answers of tools before they are
	// stored.
	Filter message.Filter
	Redact message.Filter
}

// Example is one input and output of a few-shot prompt.
type Example struct {
	Input   string `json:"input"`
	Output  string `json:"output"`
	Context string `json:"context,omitempty"`
}

// ModelSpec says which model is asked and how.
type ModelSpec struct {
	Provider   string // names a [Model] in [Options.Models]
	Model      string
	Fallback   []ModelRef // asked, in order, when Model fails for good
	Parameters Parameters
	Timeout    time.Duration // of one question; 0 = what is left of the turn
	Retry      RetryPolicy
}

// ModelRef names a model of a provider.
type ModelRef struct {
	Provider string // "" = that of the agent's model
	Model    string
}

// Parameters are passed to the model. Nil means that the model's own default applies.
type Parameters struct {
	MaxTokens   *int64   `json:"max_tokens,omitempty"` // of the answer
	Temperature *float64 `json:"temperature,omitempty"`
	TopP        *float64 `json:"top_p,omitempty"`
	Stop        []string `json:"stop,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
}

// Transport says how a tool is reached.
type Transport string

// The transports.
const (
	OverFunction Transport = "function"
	OverHTTP     Transport = "http"
	OverMCP      Transport = "mcp"
	OverGRPC     Transport = "grpc"
)

// ToolSpec is a tool, or a server of tools, as a manifest names it.
type ToolSpec struct {
	Name        string
	Description string
	Transport   Transport
	// Server is the tool_server of its governed calls, Remote the tool_name; "" means Name.
	Server string
	Remote string
	// InputSchema is a JSON Schema, draft 4 to 2020-12; nil accepts every object.
	InputSchema json.RawMessage
	Timeout     time.Duration
	Retry       *RetryPolicy
	Breaker     *BreakerSpec
	Parallel    bool
	Risk        string // tga.RiskRead, …; "" = by the operator's policy
	Approve     bool   `json:",omitempty"` // each call waits for an approval
	// Discover means that the tools of Server are listed with tools/list. Name then names
	// nothing. Only, if it is not empty, lists the tools that the agent gets.
	Discover bool
	Only     []string
	// Delegation makes the tool a delegation to another agent.
	Delegation *Delegation
	// Fallback is the answer if the strategy for an error is fallback; nil = none.
	Fallback json.RawMessage
}

// ToolServer is the address that a manifest gives for a server of tools. The operator decides
// which server is reached: a name that the operator configured wins.
type ToolServer struct {
	Name      string
	Transport Transport
	URI       string
}

// Constraints bound an agent. Zero means none.
type Constraints struct {
	MaxTurns     int           // of a session
	Timeout      time.Duration // of a turn
	MaxExecution time.Duration // of an invocation: all turns of a chain, and those handed work by them
	MaxTokens    int64         // of a session, in and out together
	MaxToolCalls int           // of an invocation; not of those handed work by it
	// MaxDepth is how deep delegations may nest below the agent: with 1 the agent may delegate,
	// but its delegates may not. 0 = only [Options].MaxDepth limits it.
	MaxDepth int
}

// RetryPolicy says how often something is tried again, and how long to wait between the tries.
type RetryPolicy struct {
	MaxRetries   int           `json:"max_retries"` // after the first; 0 = the default table's, -1 = none
	InitialDelay time.Duration `json:"initial_delay"`
	MaxDelay     time.Duration `json:"max_delay"`
	Multiplier   float64       `json:"multiplier"` // 0 = 2; 1 = fixed
	Codes        []tga.Code    `json:"codes,omitempty"`
}

// BreakerSpec configures a circuit breaker.
type BreakerSpec struct {
	Disabled bool
	Failures int           // in a row that open it; 0 = 5
	Open     time.Duration // how long it refuses; 0 = 60 s
	HalfOpen int           // trials, after that, that close it; 0 = 3
}

// StateSpec configures an agent's state.
type StateSpec struct {
	Mode      state.Mode      // "" = session
	Isolation state.Isolation // "" = serializable
	TTL       time.Duration   // time to live of values that are set without one; 0 = they do not expire
}

// WorkspaceSpec names the files that an agent's tools work on, so that each of their calls is a
// transaction over these files (package workstate). A Runner ignores it: whoever builds the
// Runner's dispatcher applies it. The zero WorkspaceSpec names nothing.
type WorkspaceSpec struct {
	Directory string   `json:",omitempty"` // as written in the manifest: relative to the manifest's file
	Exclude   []string `json:",omitempty"` // paths below Directory, with slashes, that are left alone
	Database  string   `json:",omitempty"` // file of a SQLite database, likewise relative
}

// ChainSpec says what follows a turn whose answer asks for tools.
type ChainSpec struct {
	Stop         bool // no turn follows by itself: continue_on_tool_use false
	MaxToolTurns int  // turns in a row that ask for tools; 0 = 10
	Confirm      bool // confirm_between_turns: wait for a person before each next turn
}

// Identity says how the ids of sessions and instances are chosen, and what trace context is
// passed on.
type Identity struct {
	Scope          InstanceScope // "" = process
	NewSession     bool          // propagation.inherit_session false
	NoTraceContext bool          // propagation.trace_context none
	NoBaggage      bool
}

// InstanceScope says for how long an instance id stays the same.
type InstanceScope string

// The scopes. A pod's id follows from its host name, so it outlives a process.
const (
	PerPod     InstanceScope = "pod"
	PerProcess InstanceScope = "process"
	PerRequest InstanceScope = "request"
)

// DelegationType says what happens with the delegate's answer.
type DelegationType string

// The patterns of OSSA 0.2.9 §5.
const (
	Handoff    DelegationType = "handoff"    // the delegate's answer is the answer of the turn
	Parallel   DelegationType = "parallel"   // several delegates at once; their answers return to the agent
	Supervisor DelegationType = "supervisor" // the delegate's answer returns to the agent
)

// Delegation hands work to another agent.
type Delegation struct {
	Type        DelegationType
	Target      string        // name of an agent in [Options.Agents]
	Timeout     time.Duration // 0 = what is left of the turn
	OnFailure   Strategy      // Retry, Fallback or Escalate; "" = Escalate
	NoSession   bool          // include_session_id false: the delegate has a session of its own
	WithHistory bool
	WithState   bool
	Context     map[string]json.RawMessage // custom_context
}
