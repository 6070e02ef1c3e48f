package tga

import "slices"

// CodeInfo describes a code, for `tgad explain` and docs/ERRORS.md.
type CodeInfo struct {
	Code       Code
	HTTPStatus int    // of the problem document that carries it
	Retryable  bool   // the same request may succeed later
	Title      string // a few words, the same for every problem with the code
	Meaning    string
	Remedy     string
}

// Codes returns all codes, in the order they are declared.
func Codes() []CodeInfo { return slices.Clone(codes) }

// Info returns the row of c. ok is false for a code that is not one of ours.
func (c Code) Info() (info CodeInfo, ok bool) {
	i := slices.IndexFunc(codes, func(i CodeInfo) bool { return i.Code == c })
	if i < 0 {
		return CodeInfo{}, false
	}
	return codes[i], true
}

var codes = []CodeInfo{
	{StateInvalidTransition, 409, false, "The trace has no such transition",
		"The entry's from_state is not the trace's current state, or the machine has no such edge.",
		"Read the trace's state and append what follows from it. A terminal state is final: use a new trace."},
	{StateSequenceGap, 409, false, "The sequence number is not the next one",
		"The entry's sequence number is not the one after the trace's head. The error names both.",
		"Read the entries after the last one you know, then append at the head."},
	{StateChecksumMismatch, 409, false, "A digest does not match its bytes",
		"A digest is not that of the bytes it covers. Where says whose: given is the caller's (409), stored is our own (500).",
		"given: canonicalise by RFC 8785, leave the digest member out of what is hashed, and hash again. stored: run tgad verify and restore from a backup."},
	{StateRecoveryFailed, 500, false, "The trace failed a check and is quarantined",
		"A trace's log failed a check while it was replayed. The trace is quarantined; others go on.",
		"Run tgad verify: it names the entry. Restore the store from a backup; the log is never repaired in place."},
	{StateLockAcquireFailed, 423, true, "Somebody else holds the lease or the lock",
		"Somebody else holds the lease of the trace, or the lock of the store.",
		"Wait and try again, or wait longer for the answer (Tgad-Timeout, --timeout)."},
	{StateConcurrentExecution, 409, false, "Another executor has taken over the trace",
		"The lease is not the trace's newest: another executor has taken over.",
		"Stop work on the trace under this lease. Acquire a new one and read the state first."},

	{MissingToolCallID, 422, false, "The tool_call_id is missing",
		"A tool_call or tool_effect, or the entry of one, has no tool_call_id.",
		"Set tool_call_id to the UUIDv7 of the call."},
	{IdempotencyKeyRequired, 400, false, "A write call needs an idempotency key",
		"A tool call has no idempotency_key.",
		"Send a key that names the logical call and stays the same for every attempt."},
	{IdempotencyKeyConflict, 422, false, "The key was used for another request",
		"The key was used before for another tool, server or arguments, or the id of an agent's turn for another message. Nothing was sent.",
		"Use a new key for a new call; repeat the old arguments to get the old effect."},
	{IdempotencyKeyInFlight, 409, true, "The call is still under way",
		"The call of this key is under way, here or in another trace, and the time to wait for it is over.",
		"Ask again later with the same key: the recorded effect is served once there is one. It is not sent twice."},
	{IdempotencyKeyExpired, 409, false, "The key has expired",
		"The key was used so long ago that its effect is no longer kept, or its effect was erased. It is never sent again.",
		"Look the effect up at the tool server. Use a new key for a new call."},
	{EffectInDoubt, 409, false, "The call may have been executed",
		"The call may have been executed: an attempt is on disk, its effect is not, and the tool's licence does not allow another send.",
		"Find out at the tool server what happened; then tgad resolve with the evidence, or tgad abandon."},
	{StoreUnavailable, 503, true, "The store does not take the request",
		"The store does not take the request: it failed a write, is frozen after a restore, is short of disk space, or is sealed and its keys cannot be had.",
		"Run tgad doctor. Open a sealed store with its key ring. After a failed write restart the daemon: what it had not acknowledged may or may not be there."},
	{ConfirmationMismatch, 409, false, "The recorded effect does not stand any more",
		"The world does not show the effect that is recorded for this call.",
		"Compare the recorded effect with the tool server before trusting either."},
	{ConfirmationRequired, 409, false, "The recorded effect must be confirmed first",
		"The recorded effect must be confirmed before it is served, and no verifier could confirm it.",
		"Configure a verifier for the tool, or confirm by hand."},
	{CapabilityInvalid, 403, false, "The capability is not valid for this call",
		"The decision's capability token is missing, expired, or not for this call.",
		"Ask for a new decision; check the keys the daemon trusts."},
	{ApprovalExpired, 403, false, "The approval was not given in time",
		"The approval this call waited for was not given in time.",
		"Make a new request."},
	{ToolSchemaChanged, 409, false, "The tool was redefined since the decision",
		"The tool's schema is not the one the decision was made for.",
		"Review the tool, then make a new request."},
	{SnapshotMismatch, 409, false, "The snapshot is not the one that was named",
		"A snapshot of working state is not the one its digest names.",
		"Use an older snapshot or savepoint."},
	{RestoreFailed, 500, false, "The state could not be restored",
		"Working state or a store could not be restored. What was there before is unchanged.",
		"Read the cause in the error; restore into an empty directory."},
	{BudgetExceeded, 429, false, "A budget would be exceeded",
		"The call would exceed a budget of its namespace or session.",
		"Raise the budget, or wait for its next period."},
	{StateConflict, 409, true, "The state was changed by somebody else",
		"Working state changed between the read and the write.",
		"Read it again and repeat the change."},
	{NotFound, 404, false, "Not found",
		"There is no such trace, artifact, key or route.",
		"Check the id and the namespace: a caller sees only the traces of its own."},
	{PermissionDenied, 403, false, "The peer may not do this",
		"The peer's role does not allow the request, or a program claims a licence that allows more than the operator's.",
		"Give the peer's uid or gid the role in the configuration; or set client_licence = true for the tool."},
	{LimitExceeded, 413, false, "A limit was exceeded",
		"The input is larger, deeper or longer than a limit.",
		"Send less, or raise the limit in the configuration."},
	{FormatTooNew, 500, false, "This program does not read the format",
		"The store, segment or backup has a format that this program does not read: a later one, or one that is no longer read. The detail says both versions. It was not touched.",
		"Use the tgad version that wrote it."},

	{ValidationError, 422, false, "The request is not valid",
		"A header, a parameter, a name or the body is not what is taken. A body is JSON that keeps its meaning in canonical form: valid UTF-8, no repeated member, no number that a double cannot hold. The pointer names the place in it.",
		"Read the detail and correct what it names. Send a number of more than 15 digits as a string."},
	{SchemaViolation, 422, false, "The document is not as its schema says",
		"A document is not as its schema says: an unknown or missing member, or a value out of range. The pointer names the place.",
		"Correct the place; the schemas are in schemas/tga/v1."},
	{ContentFiltered, 422, false, "A content filter refused it",
		"A content filter refused the input or the output.",
		"Change the content, or the filter's configuration."},
	{PolicyViolation, 403, false, "A policy forbids it",
		"A supervisor denied the request, or a policy forbids it.",
		"Read the decision's rationale."},
	{ToolError, 502, false, "The tool call failed",
		"The tool server reported an error, and that is recorded; or it could not be reached and nothing was sent (outcome class not_sent).",
		"After not_sent make the same call again with the same key: it is sent. Otherwise the same key is served the recorded error; a new attempt is a new call with a new key."},
	{ToolTimeout, 504, false, "The time for the call is over",
		"The call's deadline passed before it was sent; or the tool server did not answer in time, and the call may have been executed.",
		"Not sent: make a new call with a later deadline. No answer: see EFFECT_IN_DOUBT."},
	{LLMError, 502, true, "The model failed",
		"The model's provider reported an error.",
		"Try again; check the provider's status."},
	{LLMTimeout, 504, true, "The model did not answer in time",
		"The model's provider did not answer in time.",
		"Try again, or raise the time-out."},
	{GenericStateError, 500, false, "The state could not be loaded or stored",
		"State could not be loaded or stored for a reason that has no code of its own.",
		"Read the cause in the error."},
	{RateLimited, 429, true, "Too many requests",
		"Too many requests in a short time.",
		"Wait as long as Retry-After says."},
	{QuotaExceeded, 429, false, "A quota is used up",
		"A quota of the session or namespace is used up.",
		"Raise the quota, or wait for its next period."},
	{CircuitOpen, 503, true, "Calls to this tool server are stopped for now",
		"Calls to this tool server are stopped after repeated failures. Nothing was sent.",
		"Wait until the breaker lets a trial call through; check the tool server."},
	{MaxTurnsExceeded, 422, false, "The session has no turns left",
		"The session has had as many turns as it may.",
		"Start a new session, or raise the limit."},
	{MaxTokensExceeded, 422, false, "The turn would use too many tokens",
		"The turn would use more tokens than it may.",
		"Shorten the input, or raise the limit."},
	{DelegationFailed, 502, false, "The delegation failed",
		"Another agent did not take the task over or did not finish it.",
		"Read the cause in the error."},
	{EscalationRequired, 403, false, "A person must decide first",
		"The agent may not go on without a person.",
		"Let a person decide, then continue the session."},
}

// HTTPStatus returns the status of the problem document for e: its code's, or 500
// where our own bytes are at fault and not the caller's.
func (e *Error) HTTPStatus() int {
	info, ok := e.Code.Info()
	if !ok || e.Where == "stored" {
		return 500
	}
	return info.HTTPStatus
}
