package manifest

import "slices"

// Field is a field of an agent and the places where manifests have it, best first: the names of
// the runtime semantics, then those of the published schemas and of real manifests. If several
// places have the field, the first wins, and the report says so if they differ. Names that end in
// "seconds" or "ms" contain a duration's unit.
type Field struct {
	Name  string
	Paths []string // for a part, such as Tools[] or Retry: paths within the part
	Rule  string   // how the value is interpreted, if that is not obvious
}

// Fields returns the table of fields.
func Fields() []Field { return slices.Clone(fields) }

var fields = []Field{
	{"Name", []string{"metadata.name"}, "required; lower case, digits and inner hyphens, at most 253"},
	{"ID", []string{"metadata.id"}, "absent: the name"},
	{"Version", []string{"metadata.version"}, "absent: 0.0.0"},
	{"Role", []string{"spec.role"}, ""},
	{"SystemPrompt", []string{"spec.prompts.system", "spec.prompts.system.content", "spec.prompts.system.text", "spec.prompts.system.template", "spec.system_prompt"}, "a template of one line is the name of a file, and is not read"},
	{"Examples", []string{"spec.prompts.few_shot_examples"}, "entries without input or output are left out"},

	{"Model.Provider", []string{"spec.llm.provider", "spec.llm.model.provider"}, ""},
	{"Model.Model", []string{"spec.llm.model", "spec.llm.model.name", "spec.llm.model.id", "spec.llm.model.model"}, "absent: whoever runs the agent names one"},
	{"Model.Fallback", []string{"spec.llm.fallback_models"}, "text, or objects with provider and model"},
	{"Fallback[].Model", []string{"model", "model.name", "model.id", "name"}, ""},
	{"Fallback[].Provider", []string{"provider", "model.provider"}, "absent: the agent's"},
	{"Model.Timeout", []string{"spec.llm.timeout_seconds", "spec.llm.timeout_ms", "spec.llm.parameters.timeout_seconds", "spec.llm.timeout"}, ""},
	{"Model.Parameters.MaxTokens", []string{"spec.llm.parameters.max_tokens", "spec.llm.parameters.maxTokens", "spec.llm.max_tokens", "spec.llm.maxTokens"}, "never more than Model.MaxRequestTokens"},
	{"Model.MaxRequestTokens", []string{"spec.constraints.max_tokens_per_request", "spec.constraints.max_tokens_per_turn", "spec.constraints.cost.maxTokensPerRequest"}, "bounds the answer's tokens; the least of all places"},
	{"Model.Parameters.Temperature", []string{"spec.llm.parameters.temperature", "spec.llm.temperature"}, ""},
	{"Model.Parameters.TopP", []string{"spec.llm.parameters.top_p", "spec.llm.parameters.topP", "spec.llm.top_p", "spec.llm.topP"}, ""},
	{"Model.Parameters.Stop", []string{"spec.llm.parameters.stop_sequences", "spec.llm.parameters.stop", "spec.llm.stop_sequences", "spec.llm.stop"}, ""},
	{"Model.Parameters.Seed", []string{"spec.llm.parameters.seed", "spec.llm.seed"}, ""},
	{"Model.Retry", []string{"spec.llm.retry_config"}, "see the retry policy"},

	{"Autonomy.Level", []string{"spec.autonomy.level"}, "autonomous and fully_autonomous restrict nothing; under any other every tool call waits for an approval, unless approval_required lists which"},
	{"Autonomy.Approval", []string{"spec.autonomy.approval_required"}, "true: every tool call waits for an approval; a list: calls of those tools"},
	{"Autonomy.Allowed", []string{"spec.autonomy.allowed_actions"}, "exact names of tools, or server/tool; * is any text"},
	{"Autonomy.Blocked", []string{"spec.autonomy.blocked_actions"}, "names of tools or servers in any spelling; * is any text"},
	{"Human", []string{"spec.safety.human_in_loop"}, "an object or true; on unless enabled is false"},
	{"Human.Enabled", []string{"enabled"}, ""},
	{"Human.Triggers", []string{"triggers"}, "absent: every tool call waits for an approval. high_risk_action: those of high risk, and writes whose risk_level nobody states; policy_violation: a refusal waits for a person; others are refused"},
	{"Human.Timeout", []string{"timeout_seconds", "timeout_ms", "timeout"}, "then the call is denied"},

	{"Constraints.MaxTurns", []string{"spec.constraints.max_turns", "spec.constraints.maxTurns", "spec.constraints.safety.maxTurns", "spec.lifecycle.max_turns", "spec.autonomy.max_turns"}, "1 or more; the least of all places"},
	{"Constraints.Timeout", []string{"spec.constraints.timeout_seconds", "spec.constraints.timeoutSeconds", "spec.constraints.performance.timeout_seconds", "spec.constraints.performance.timeoutSeconds", "spec.constraints.performance.maxLatencySeconds"}, "of a turn; the least of all places"},
	{"Constraints.MaxExecution", []string{"spec.safety.guardrails.max_execution_time_seconds"}, "of all turns that a message leads to"},
	{"Constraints.MaxTokens", []string{"spec.constraints.max_tokens", "spec.constraints.maxTokens"}, "of a session; the least of all places"},
	{"Constraints.MaxToolCalls", []string{"spec.constraints.max_tool_calls", "spec.constraints.maxToolCalls", "spec.safety.guardrails.max_tool_calls"}, "of all turns of the agent's own that a message leads to, delegations included; not of the agents that they hand work to; the least of all places"},
	{"Guardrails", []string{"spec.safety.guardrails", "spec.safety.guardrails.policies"}, "a list: limits hold, sentences are told to the model, named policies are refused"},
	{"Guardrails[].Enabled", []string{"enabled"}, "false: the policy is off"},
	{"Guardrails[].Rules", []string{"rules"}, "sentences that the model is told"},
	{"Guardrails[].MaxToolCalls", []string{"max_tool_calls"}, "bounds Constraints.MaxToolCalls"},
	{"Guardrails[].MaxExecution", []string{"max_execution_time_seconds"}, "bounds Constraints.MaxExecution"},

	{"Retry", []string{"spec.reliability.retry", "spec.reliability.retry_policy"}, "see the retry policy"},
	{"Breaker", []string{"spec.reliability.circuit_breaker"}, "see the circuit breaker"},
	{"Handlers", []string{"spec.error_handling", "spec.error_handling.handlers", "spec.error_handlers", "spec.reliability.error_handling", "spec.reliability.error_handling.handlers", "spec.reliability.error_handlers"}, "a list"},

	{"State.Mode", []string{"spec.state.mode"}, "stateless is none, long_running is persistent"},
	{"State.Isolation", []string{"spec.state.isolation_level", "spec.state.isolationLevel", "spec.state.isolation"}, "an unknown level is an error"},
	{"State.TTL", []string{"spec.state.ttl_seconds", "spec.state.ttl", "spec.state.storage.ttl_seconds", "spec.state.storage.retention"}, "forever is none"},

	{"Workspace.Directory", []string{"spec.workspace.directory", "spec.workspace.path"}, "relative to the manifest's file; elsewhere only where the operator's configuration permits it"},
	{"Workspace.Exclude", []string{"spec.workspace.exclude"}, "paths below the directory that are left alone"},
	{"Workspace.Database", []string{"spec.workspace.database"}, "file of a SQLite database; as the directory"},

	{"Memory.Window", []string{"spec.memory.window_size", "spec.conversation_memory.window_size", "spec.conversation.window_size", "spec.state.context_window.max_messages"}, ""},
	{"Memory.Tokens", []string{"spec.memory.max_history_tokens", "spec.conversation_memory.max_history_tokens", "spec.conversation.max_history_tokens", "spec.state.context_window.max_tokens"}, ""},
	{"Memory.Strategy", []string{"spec.memory.summarization", "spec.memory.summarization.strategy", "spec.conversation_memory.summarization", "spec.conversation_memory.summarization.strategy", "spec.conversation.summarization", "spec.conversation.summarization.strategy", "spec.state.context_window.strategy"}, "sliding_window is sliding, summarization is summarize; others are read as sliding"},

	{"Memory.Summarize", []string{"spec.memory.summarization.enabled", "spec.conversation_memory.summarization.enabled", "spec.conversation.summarization.enabled"}, "false is truncate, true is summarize where no strategy is named"},

	{"Chain.Stop", []string{"spec.turn_chain.continue_on_tool_use", "spec.chain.continue_on_tool_use", "spec.multi_turn.continue_on_tool_use"}, "the opposite"},
	{"Chain.MaxToolTurns", []string{"spec.turn_chain.max_tool_turns", "spec.chain.max_tool_turns", "spec.multi_turn.max_tool_turns"}, ""},
	{"Chain.Confirm", []string{"spec.turn_chain.confirm_between_turns", "spec.chain.confirm_between_turns", "spec.multi_turn.confirm_between_turns"}, ""},

	{"Identity.Scope", []string{"spec.identity.instance_id.scope"}, "an unknown scope is read as process"},
	{"Identity.NewSession", []string{"spec.identity.propagation.inherit_session"}, "the opposite"},
	{"Identity.NoTraceContext", []string{"spec.identity.propagation.trace_context"}, "none; all else is w3c"},
	{"Identity.NoBaggage", []string{"spec.identity.propagation.baggage"}, "the opposite"},
	{"Identity.Interaction", []string{"spec.identity.interaction_id.scope"}, "always turn"},

	{"Filter", []string{"spec.safety.content_filtering"}, "see the filters"},
	{"Filter.PII", []string{"spec.safety.pii_detection"}, "of what comes in and of tools' answers; its action is that of its kinds alone. A kind of which content_filtering says otherwise is blocked"},
	{"Redact", []string{"spec.security.output_filtering", "spec.safety.output_filtering"}, "see the filters"},
	{"Redact.Audit", []string{"spec.security.audit.pii_redaction"}, "true: PII of tools' answers is redacted"},

	{"Tools", []string{"spec.tools"}, "see the tools"},
	{"Handoffs", []string{"spec.collaboration.handoffs"}, "a delegation tool for each"},
	{"Delegates", []string{"spec.collaboration.delegation.allowed_agents", "spec.collaboration.delegation.allowed_targets", "spec.collaboration.delegation.agents"}, "a supervisor delegation tool for each; a2a tools and handoffs of other agents are left out"},
	{"Delegates.Enabled", []string{"spec.collaboration.delegation.enabled"}, "false: no tool is another agent"},
	{"Delegates.MaxDepth", []string{"spec.collaboration.delegation.max_depth"}, "how deep delegations may be below this agent"},
	{"Delegates.Timeout", []string{"spec.collaboration.delegation.timeout_ms", "spec.collaboration.delegation.timeout_seconds"}, ""},

	{"Tools[].Type", []string{"type", "source.type", "transport.protocol", "transport"}, "mcp, http, grpc, function, a2a; custom is function; others are left out"},
	{"Tools[].Name", []string{"name"}, ""},
	{"Tools[].Description", []string{"description"}, ""},
	{"Tools[].Server", []string{"server", "source.server"}, "absent: the host of an mcp:// address, or the name"},
	{"Tools[].URI", []string{"endpoint", "source.uri", "uri", "url", "transport.endpoint"}, ""},
	{"Tools[].Remote", []string{"remote", "source.capability"}, "absent: the path of an mcp:// address, or the name; a name of mcp servers beside a server is one tool of it"},
	{"Tools[].Capabilities", []string{"capabilities"}, "each is a tool; of mcp servers, what is taken of tools/list"},
	{"Tools[].InputSchema", []string{"input_schema", "inputSchema", "input", "parameters"}, "of mcp servers asked with tools/list, the server's own"},
	{"Tools[].Timeout", []string{"timeout_ms", "timeout_seconds", "timeout.execution_seconds", "config.timeout_seconds", "timeout"}, ""},
	{"Tools[].Retry", []string{"retry_policy", "retry", "reliability.retry"}, "see the retry policy"},
	{"Tools[].Breaker", []string{"circuit_breaker"}, "see the circuit breaker"},
	{"Tools[].Parallel", []string{"parallel"}, ""},
	{"Tools[].Risk", []string{"risk_level", "risk"}, "read, write or high_risk"},
	{"Tools[].Approve", []string{"approval_required", "requires_approval", "require_approval", "requires_confirmation"}, "each call waits for an approval"},
	{"Tools[].Enabled", []string{"enabled"}, "false: the tool is left out"},
	{"Tools[].Fallback", []string{"fallback_value", "error_handling.fallback_value"}, "any value"},

	{"Delegation.Target", []string{"delegation.target_agent", "target_agent", "agent", "target", "config.agent"}, "absent: the server, or the name"},
	{"Delegation.Type", []string{"delegation.type", "delegation_type"}, "absent: supervisor"},
	{"Delegation.Timeout", []string{"delegation.timeout_ms", "delegation.timeout_seconds", "timeout_ms", "timeout_seconds", "timeout.execution_seconds"}, ""},
	{"Delegation.OnFailure", []string{"delegation.on_failure", "on_failure"}, "retry, fallback or escalate; others are read as escalate"},
	{"Delegation.Session", []string{"delegation.context_propagation.include_session_id", "context_propagation.include_session_id"}, ""},
	{"Delegation.History", []string{"delegation.context_propagation.include_history", "context_propagation.include_history"}, ""},
	{"Delegation.State", []string{"delegation.context_propagation.include_state", "context_propagation.include_state"}, ""},
	{"Delegation.Context", []string{"delegation.context_propagation.custom_context", "context_propagation.custom_context"}, ""},
	{"Handoff.Conditions", []string{"conditions"}, "told to the model with the tool"},
	{"Handoff.Context", []string{"context_transfer"}, "full is history and state, partial is history, minimal is neither"},

	{"Retry.Retries", []string{"max_retries", "max_attempts"}, "attempts count the first try, retries do not; none is -1"},
	{"Retry.InitialDelay", []string{"initial_delay_ms", "initial_delay_seconds"}, ""},
	{"Retry.MaxDelay", []string{"max_delay_ms", "max_delay_seconds"}, "not less than the initial delay"},
	{"Retry.Multiplier", []string{"backoff_multiplier", "multiplier"}, "1 or more"},
	{"Retry.Strategy", []string{"backoff_strategy", "backoff", "strategy"}, "fixed is a multiplier of 1, exponential of 2, linear is read as exponential"},
	{"Retry.Codes", []string{"retryable_errors", "error_codes"}, "codes that are not of OSSA are left out; if none is left, nothing is tried again"},

	{"Breaker.Enabled", []string{"enabled"}, "absent: on, for a tool too"},
	{"Breaker.Failures", []string{"failure_threshold", "threshold"}, ""},
	{"Breaker.Open", []string{"timeout_seconds", "reset_timeout_ms", "reset_timeout_seconds", "timeout_ms"}, "0 is off"},
	{"Breaker.HalfOpen", []string{"half_open_requests", "half_open_max_calls", "success_threshold"}, ""},

	{"Handlers[].Codes", []string{"error_codes", "codes"}, "codes that are not of OSSA are left out"},
	{"Handlers[].Strategy", []string{"strategy"}, "an unknown strategy is an error"},
	{"Handlers[].MaxRetries", []string{"max_retries"}, "0 with retry is abort"},
	{"Handlers[].Fallback", []string{"fallback_value"}, "any value"},
	{"Handlers[].Target", []string{"escalation_target"}, ""},

	{"Examples[].Input", []string{"input"}, "what is not text is taken as JSON"},
	{"Examples[].Output", []string{"output"}, "what is not text is taken as JSON"},
	{"Examples[].Context", []string{"context"}, ""},

	{"Filters.Enabled", []string{"enabled"}, "absent: on"},
	{"Filters.MaxBytes", []string{"max_bytes", "max_length"}, ""},
	{"Filters.Patterns", []string{"patterns", "blocked_patterns", "redact_patterns"}, "RE2; an unusable one is an error"},
	{"Filters.Secrets", []string{"secrets", "block_secrets", "redact_secrets"}, ""},
	{"Filters.PII", []string{"pii", "redact_pii", "pii_types", "types"}, "true is all kinds; kinds that can't be found are refused, unless the action is warn or log"},
	{"Filters.Categories", []string{"categories"}, "pii, secrets and credentials; others need a classifier and are refused, unless the action is warn or log"},
	{"Filters.Action", []string{"action"}, "block or redact; warn and log let all pass, others are refused"},
}

var paths = func() map[string][]string {
	m := make(map[string][]string, len(fields))
	for _, f := range fields {
		m[f.Name] = f.Paths
	}
	return m
}()
