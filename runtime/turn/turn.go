// Package turn runs whole turns of an agent: a message in, tools resolved, a model
// asked, its tool calls made, state persisted, telemetry out (OSSA 0.2.9 §1).
//
// The package is experimental: its names may change in any release. Package runtime, on which
// it stands, does not.
//
// A turn is journaled: it writes a chained stream of records into the store, one or more
// for each of its seven phases. A phase whose record is durable never runs again. A turn
// asks its model and calls its tools through package runtime, so an answer that is durable
// there is served and not asked for again.
//
// # Usage
//
// [New] makes a [Runner] on a store. [Options] has the agents, a [Model] for each provider
// and a [Resolver], which finds an agent's tools. Call Recover first: it continues the turns
// that a crash interrupted. Then Run takes a message:
//
//	res, err := runner.Run(ctx, turn.Request{Agent: "treasurer", SessionID: "s1", Message: []byte("pay invoice 7")})
//
// The result's Status says whether the turns have completed, have failed, or wait for a
// person. Settle a call that waits with Settle, decide an escalation with Decide, and continue
// with Resume.
//
// The types are aliases of the types of an internal package. This package has those that a
// program must name; other types in their fields have a safe zero value.
package turn

import (
	"context"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/runtime"
)

// A runner, its options, its requests and its results.
type (
	// Runner runs turns on a store. Its methods may be called from any number of goroutines.
	Runner = turn.Runner
	// Options configure a Runner.
	Options = turn.Options
	// Request asks for the turns that a message leads to.
	Request = turn.Request
	// Result says where an invocation stands.
	Result = turn.Result
	// Progress is something that happens in a turn, for a live view.
	Progress = turn.Progress
	// Decision is a person's answer to a turn that waits.
	Decision = turn.Decision
	// Settlement is what a person says about the call that a turn waits for.
	Settlement = turn.Settlement
)

// An agent. Only its name and its model are required.
type (
	// Agent is what an agent is, and what it may do.
	Agent = turn.Agent
	// Example is a pair of question and answer that a model is shown.
	Example = turn.Example
	// ModelSpec says which model an agent asks, and how.
	ModelSpec = turn.ModelSpec
	// ModelRef names a model that is asked when another has failed for good.
	ModelRef = turn.ModelRef
	// ToolSpec is a tool of an agent, for a Resolver.
	ToolSpec = turn.ToolSpec
	// ToolServer is a server of an agent's tools, for a Resolver.
	ToolServer = turn.ToolServer
	// Handler says how failures with one of its codes are handled.
	Handler = turn.Handler
	// RetryPolicy says how often, and after which waits, something is tried again.
	RetryPolicy = turn.RetryPolicy
	// Delegation lets an agent call another agent as a tool.
	Delegation = turn.Delegation
	// Constraints bound what an agent uses.
	Constraints = turn.Constraints
	// Autonomy restricts what an agent does by itself.
	Autonomy = turn.Autonomy
)

// The interfaces that a program may implement, and the types of their arguments and results.
type (
	// Model asks one language model.
	Model = turn.Model
	// Question is what a model is asked.
	Question = turn.Question
	// Answer is what a model said.
	Answer = turn.Answer
	// Usage counts tokens.
	Usage = turn.Usage
	// Failure is an error of a phase, with a code that says how it is handled.
	Failure = turn.Failure
	// Message is one message of a conversation, in the same form for all providers.
	Message = message.Message
	// Part is a piece of a message: a text, an image, a file.
	Part = message.Part
	// ToolCall is a call that a model asks for.
	ToolCall = message.ToolCall

	// Resolver finds an agent's tools.
	Resolver = turn.Resolver
	// Tool is a tool that was found.
	Tool = turn.Tool
	// ToolSource says where a tool was found.
	ToolSource = turn.ToolSource
	// Warning says why something that an agent names is left out, or has changed.
	Warning = turn.Warning

	// Emitter sends telemetry of finished turns somewhere.
	Emitter = turn.Emitter
	// Emission is the telemetry of one turn.
	Emission = turn.Emission

	// View is the state of a turn as one tool call sees it: see [StateFrom].
	View = turn.View
)

// The statuses of a [Result]. A turn with status Waiting waits for a person.
const (
	Completed    = turn.Completed
	Unsuccessful = turn.Unsuccessful
	Waiting      = turn.Waiting
	Open         = turn.Open
)

// The roles of a [Message].
const (
	RoleSystem    = message.System
	RoleUser      = message.User
	RoleAssistant = message.Assistant
	RoleTool      = message.Tool
)

// The reasons why a model stopped: Finish of an [Answer].
const (
	FinishStop          = turn.FinishStop
	FinishLength        = turn.FinishLength
	FinishToolUse       = turn.FinishToolUse
	FinishContentFilter = turn.FinishContentFilter
)

// How a failure is handled (OSSA 0.2.9 §2): Strategy of a [Handler]. All but Escalate are
// also actions of a [Decision].
const (
	Retry    = turn.Retry
	Fallback = turn.Fallback
	Skip     = turn.Skip
	Escalate = turn.Escalate
	Abort    = turn.Abort
)

// The actions of a [Settlement]. The first two are for a call that waits for an approval, the
// others for one that is in doubt.
const (
	Approve   = turn.Approve
	Deny      = turn.Deny
	Ran       = turn.Ran       // it was executed, and succeeded
	RanFailed = turn.RanFailed // it was executed or refused, and failed for good
	NotRun    = turn.NotRun    // it was not executed and never will be
	GiveUp    = turn.GiveUp    // whether it ran stays unknown
)

// New makes a Runner. next sends calls to the tools. A Runner starts nothing: its method
// Recover continues the turns that a crash interrupted.
func New(store runtime.Store, next runtime.Dispatcher, supervisor runtime.Supervisor, o Options) (*Runner, error) {
	return turn.New(store, next, supervisor, o)
}

// Said makes the message of an [Answer] from a model's text. The calls that the model asks for may
// be added to it.
func Said(text string) Message {
	return message.TextMessage(message.Assistant, text, message.FromModel, 0)
}

// ModelServer returns the tool_server of questions to a provider's models. Rules and audits use this
// name.
func ModelServer(provider string) string { return turn.ModelServer(provider) }

// AgentFrom returns the name of the agent for which a tool is called, from the contexts of
// [runtime.Dispatcher] and [runtime.Preparer]; false if it is no call of a turn.
func AgentFrom(ctx context.Context) (name string, ok bool) { return turn.AgentFrom(ctx) }

// StateFrom returns the state that a tool call works on; false if it is no call of a turn, or
// a call that is sent again although its turn has continued without it.
func StateFrom(ctx context.Context) (*View, bool) { return turn.StateFrom(ctx) }
