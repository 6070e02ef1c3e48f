package emit

// SchemaURL is the URL of the OpenTelemetry conventions that define the gen_ai names. The OSSA
// names have none.
const SchemaURL = "https://opentelemetry.io/schemas/1.27.0"

// Scope is the instrumentation scope of spans and metrics.
const Scope = "github.com/tgad/tgad/runtime/turn/emit"

// Spans (OSSA 0.2.9, semantic conventions).
const (
	spanInvoke    = "ossa.agent.invoke"
	spanTurn      = "ossa.agent.turn"
	spanChat      = "gen_ai.chat"
	spanTool      = "ossa.tool.call"
	spanHandoff   = "ossa.delegation.handoff"
	spanStateLoad = "ossa.state.load"
	spanStateSave = "ossa.state.save"
)

// Attributes.
const (
	attrAgentID       = "ossa.agent.id"
	attrAgentName     = "ossa.agent.name"
	attrAgentVersion  = "ossa.agent.version"
	attrInstanceID    = "ossa.instance.id"
	attrSessionID     = "ossa.session.id"
	attrInteractionID = "ossa.interaction.id"
	attrTurnNumber    = "ossa.turn.number"

	attrSystem           = "gen_ai.system"
	attrModel            = "gen_ai.request.model"
	attrMaxTokens        = "gen_ai.request.max_tokens"
	attrTemperature      = "gen_ai.request.temperature"
	attrTopP             = "gen_ai.request.top_p"
	attrResponseID       = "gen_ai.response.id"
	attrResponseModel    = "gen_ai.response.model"
	attrFinishReason     = "gen_ai.response.finish_reason"
	attrInputTokens      = "gen_ai.usage.input_tokens"
	attrOutputTokens     = "gen_ai.usage.output_tokens"
	attrTotalTokens      = "gen_ai.usage.total_tokens"
	attrErrorType        = "error.type"
	attrCapability       = "ossa.capability.name"
	attrToolName         = "ossa.tool.name"
	attrToolType         = "ossa.tool.type"
	attrToolSource       = "ossa.tool.source"
	attrStateMode        = "ossa.state.mode"
	attrStateStorage     = "ossa.state.storage_type"
	attrStateTTL         = "ossa.state.ttl_seconds"
	attrDelegationTarget = "ossa.delegation.target"
	attrDelegationType   = "ossa.delegation.type"
	attrParentAgent      = "ossa.parent.agent.id"
	attrParentTurn       = "ossa.parent.interaction.id"

	attrLinkType   = "ossa.link.type"
	attrLinkSource = "ossa.link.source_agent"
	attrLinkTarget = "ossa.link.target_agent"

	// Of this module: the governed call behind a span, and how often it was tried again.
	attrCall    = "tgad.trace_id"
	attrRetries = "tgad.retries"
)

// system is the value that the conventions require for gen_ai.system.
const system = "ossa"

// Baggage members that spans copy into attributes.
var baggageKeys = []string{"ossa.workflow.id", "ossa.tenant.id", "ossa.environment"}

// Metrics.
const (
	metricInvocations = "ossa.agent.invocations"
	metricTurns       = "ossa.agent.turns"
	metricErrors      = "ossa.agent.errors"
	metricLatency     = "ossa.agent.latency"
	metricTokensIn    = "ossa.tokens.input"
	metricTokensOut   = "ossa.tokens.output"
	metricToolCalls   = "ossa.tool.calls"
	metricToolErrors  = "ossa.tool.errors"
)

// Types of events.
const (
	eventTurnStarted         = "io.ossa.agent.turn.started"
	eventTurnCompleted       = "io.ossa.agent.turn.completed"
	eventTurnFailed          = "io.ossa.agent.turn.failed"
	eventToolCalled          = "io.ossa.tool.called"
	eventToolCompleted       = "io.ossa.tool.completed"
	eventToolFailed          = "io.ossa.tool.failed"
	eventStateChanged        = "io.ossa.state.changed"
	eventDelegationStarted   = "io.ossa.delegation.started"
	eventDelegationCompleted = "io.ossa.delegation.completed"
)
