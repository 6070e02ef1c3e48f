// Written by clients/gen of tgad. Change the document of the protocol, not this file.
// A class for each error code, as the table of schemas/tga has them.

import { TgadError, type ErrorFacts } from './errors.js';

/** The trace has no such transition. The entry's from_state is not the trace's current state, or the machine has no such edge. Read the trace's state and append what follows from it. A terminal state is final: use a new trace. */
export class StateInvalidTransition extends TgadError {
  static override readonly code = 'STATE_INVALID_TRANSITION';
  override readonly name: string = 'StateInvalidTransition';
}

/** The sequence number is not the next one. The entry's sequence number is not the one after the trace's head. The error names both. Read the entries after the last one you know, then append at the head. */
export class StateSequenceGap extends TgadError {
  static override readonly code = 'STATE_SEQUENCE_GAP';
  override readonly name: string = 'StateSequenceGap';
}

/** A digest does not match its bytes. A digest is not that of the bytes it covers. Where says whose: given is the caller's (409), stored is our own (500). given: canonicalise by RFC 8785, leave the digest member out of what is hashed, and hash again. stored: run tgad verify and restore from a backup. */
export class StateChecksumMismatch extends TgadError {
  static override readonly code = 'STATE_CHECKSUM_MISMATCH';
  override readonly name: string = 'StateChecksumMismatch';
}

/** The trace failed a check and is quarantined. A trace's log failed a check while it was replayed. The trace is quarantined; others go on. Run tgad verify: it names the entry. Restore the store from a backup; the log is never repaired in place. */
export class StateRecoveryFailed extends TgadError {
  static override readonly code = 'STATE_RECOVERY_FAILED';
  override readonly name: string = 'StateRecoveryFailed';
}

/** Somebody else holds the lease or the lock. Somebody else holds the lease of the trace, or the lock of the store. Wait and try again, or wait longer for the answer (Tgad-Timeout, --timeout). */
export class StateLockAcquireFailed extends TgadError {
  static override readonly code = 'STATE_LOCK_ACQUIRE_FAILED';
  override readonly name: string = 'StateLockAcquireFailed';
}

/** Another executor has taken over the trace. The lease is not the trace's newest: another executor has taken over. Stop work on the trace under this lease. Acquire a new one and read the state first. */
export class StateConcurrentExecution extends TgadError {
  static override readonly code = 'STATE_CONCURRENT_EXECUTION';
  override readonly name: string = 'StateConcurrentExecution';
}

/** The tool_call_id is missing. A tool_call or tool_effect, or the entry of one, has no tool_call_id. Set tool_call_id to the UUIDv7 of the call. */
export class MissingToolCallId extends TgadError {
  static override readonly code = 'MISSING_TOOL_CALL_ID';
  override readonly name: string = 'MissingToolCallId';
}

/** A write call needs an idempotency key. A tool call has no idempotency_key. Send a key that names the logical call and stays the same for every attempt. */
export class IdempotencyKeyRequired extends TgadError {
  static override readonly code = 'IDEMPOTENCY_KEY_REQUIRED';
  override readonly name: string = 'IdempotencyKeyRequired';
}

/** The key was used for another request. The key was used before for another tool, server or arguments, or the id of an agent's turn for another message. Nothing was sent. Use a new key for a new call; repeat the old arguments to get the old effect. */
export class IdempotencyKeyConflict extends TgadError {
  static override readonly code = 'IDEMPOTENCY_KEY_CONFLICT';
  override readonly name: string = 'IdempotencyKeyConflict';
}

/** The call is still under way. The call of this key is under way, here or in another trace, and the time to wait for it is over. Ask again later with the same key: the recorded effect is served once there is one. It is not sent twice. */
export class IdempotencyKeyInFlight extends TgadError {
  static override readonly code = 'IDEMPOTENCY_KEY_IN_FLIGHT';
  override readonly name: string = 'IdempotencyKeyInFlight';
}

/** The key has expired. The key was used so long ago that its effect is no longer kept, or its effect was erased. It is never sent again. Look the effect up at the tool server. Use a new key for a new call. */
export class IdempotencyKeyExpired extends TgadError {
  static override readonly code = 'IDEMPOTENCY_KEY_EXPIRED';
  override readonly name: string = 'IdempotencyKeyExpired';
}

/** The call may have been executed. The call may have been executed: an attempt is on disk, its effect is not, and the tool's licence does not allow another send. Find out at the tool server what happened; then tgad resolve with the evidence, or tgad abandon. */
export class EffectInDoubt extends TgadError {
  static override readonly code = 'EFFECT_IN_DOUBT';
  override readonly name: string = 'EffectInDoubt';
}

/** The store does not take the request. The store does not take the request: it failed a write, is frozen after a restore, is short of disk space, or is sealed and its keys cannot be had. Run tgad doctor. Open a sealed store with its key ring. After a failed write restart the daemon: what it had not acknowledged may or may not be there. */
export class StoreUnavailable extends TgadError {
  static override readonly code = 'STORE_UNAVAILABLE';
  override readonly name: string = 'StoreUnavailable';
}

/** The recorded effect does not stand any more. The world does not show the effect that is recorded for this call. Compare the recorded effect with the tool server before trusting either. */
export class ConfirmationMismatch extends TgadError {
  static override readonly code = 'CONFIRMATION_MISMATCH';
  override readonly name: string = 'ConfirmationMismatch';
}

/** The recorded effect must be confirmed first. The recorded effect must be confirmed before it is served, and no verifier could confirm it. Configure a verifier for the tool, or confirm by hand. */
export class ConfirmationRequired extends TgadError {
  static override readonly code = 'CONFIRMATION_REQUIRED';
  override readonly name: string = 'ConfirmationRequired';
}

/** The capability is not valid for this call. The decision's capability token is missing, expired, or not for this call. Ask for a new decision; check the keys the daemon trusts. */
export class CapabilityInvalid extends TgadError {
  static override readonly code = 'CAPABILITY_INVALID';
  override readonly name: string = 'CapabilityInvalid';
}

/** The approval was not given in time. The approval this call waited for was not given in time. Make a new request. */
export class ApprovalExpired extends TgadError {
  static override readonly code = 'APPROVAL_EXPIRED';
  override readonly name: string = 'ApprovalExpired';
}

/** The tool was redefined since the decision. The tool's schema is not the one the decision was made for. Review the tool, then make a new request. */
export class ToolSchemaChanged extends TgadError {
  static override readonly code = 'TOOL_SCHEMA_CHANGED';
  override readonly name: string = 'ToolSchemaChanged';
}

/** The snapshot is not the one that was named. A snapshot of working state is not the one its digest names. Use an older snapshot or savepoint. */
export class SnapshotMismatch extends TgadError {
  static override readonly code = 'SNAPSHOT_MISMATCH';
  override readonly name: string = 'SnapshotMismatch';
}

/** The state could not be restored. Working state or a store could not be restored. What was there before is unchanged. Read the cause in the error; restore into an empty directory. */
export class RestoreFailed extends TgadError {
  static override readonly code = 'RESTORE_FAILED';
  override readonly name: string = 'RestoreFailed';
}

/** A budget would be exceeded. The call would exceed a budget of its namespace or session. Raise the budget, or wait for its next period. */
export class BudgetExceeded extends TgadError {
  static override readonly code = 'BUDGET_EXCEEDED';
  override readonly name: string = 'BudgetExceeded';
}

/** The state was changed by somebody else. Working state changed between the read and the write. Read it again and repeat the change. */
export class StateConflict extends TgadError {
  static override readonly code = 'STATE_CONFLICT';
  override readonly name: string = 'StateConflict';
}

/** Not found. There is no such trace, artifact, key or route. Check the id and the namespace: a caller sees only the traces of its own. */
export class NotFound extends TgadError {
  static override readonly code = 'NOT_FOUND';
  override readonly name: string = 'NotFound';
}

/** The peer may not do this. The peer's role does not allow the request, or a program claims a licence that allows more than the operator's. Give the peer's uid or gid the role in the configuration; or set client_licence = true for the tool. */
export class PermissionDenied extends TgadError {
  static override readonly code = 'PERMISSION_DENIED';
  override readonly name: string = 'PermissionDenied';
}

/** A limit was exceeded. The input is larger, deeper or longer than a limit. Send less, or raise the limit in the configuration. */
export class LimitExceeded extends TgadError {
  static override readonly code = 'LIMIT_EXCEEDED';
  override readonly name: string = 'LimitExceeded';
}

/** This program does not read the format. The store, segment or backup has a format that this program does not read: a later one, or one that is no longer read. The detail says both versions. It was not touched. Use the tgad version that wrote it. */
export class FormatTooNew extends TgadError {
  static override readonly code = 'FORMAT_TOO_NEW';
  override readonly name: string = 'FormatTooNew';
}

/** The request is not valid. A header, a parameter, a name or the body is not what is taken. A body is JSON that keeps its meaning in canonical form: valid UTF-8, no repeated member, no number that a double cannot hold. The pointer names the place in it. Read the detail and correct what it names. Send a number of more than 15 digits as a string. */
export class ValidationError extends TgadError {
  static override readonly code = 'VALIDATION_ERROR';
  override readonly name: string = 'ValidationError';
}

/** The document is not as its schema says. A document is not as its schema says: an unknown or missing member, or a value out of range. The pointer names the place. Correct the place; the schemas are in schemas/tga/v1. */
export class SchemaViolation extends TgadError {
  static override readonly code = 'SCHEMA_VIOLATION';
  override readonly name: string = 'SchemaViolation';
}

/** A content filter refused it. A content filter refused the input or the output. Change the content, or the filter's configuration. */
export class ContentFiltered extends TgadError {
  static override readonly code = 'CONTENT_FILTERED';
  override readonly name: string = 'ContentFiltered';
}

/** A policy forbids it. A supervisor denied the request, or a policy forbids it. Read the decision's rationale. */
export class PolicyViolation extends TgadError {
  static override readonly code = 'POLICY_VIOLATION';
  override readonly name: string = 'PolicyViolation';
}

/** The tool call failed. The tool server reported an error, and that is recorded; or it could not be reached and nothing was sent (outcome class not_sent). After not_sent make the same call again with the same key: it is sent. Otherwise the same key is served the recorded error; a new attempt is a new call with a new key. */
export class ToolError extends TgadError {
  static override readonly code = 'TOOL_ERROR';
  override readonly name: string = 'ToolError';
}

/** The time for the call is over. The call's deadline passed before it was sent; or the tool server did not answer in time, and the call may have been executed. Not sent: make a new call with a later deadline. No answer: see EFFECT_IN_DOUBT. */
export class ToolTimeout extends TgadError {
  static override readonly code = 'TOOL_TIMEOUT';
  override readonly name: string = 'ToolTimeout';
}

/** The model failed. The model's provider reported an error. Try again; check the provider's status. */
export class LLMError extends TgadError {
  static override readonly code = 'LLM_ERROR';
  override readonly name: string = 'LLMError';
}

/** The model did not answer in time. The model's provider did not answer in time. Try again, or raise the time-out. */
export class LLMTimeout extends TgadError {
  static override readonly code = 'LLM_TIMEOUT';
  override readonly name: string = 'LLMTimeout';
}

/** The state could not be loaded or stored. State could not be loaded or stored for a reason that has no code of its own. Read the cause in the error. */
export class StateError extends TgadError {
  static override readonly code = 'STATE_ERROR';
  override readonly name: string = 'StateError';
}

/** Too many requests. Too many requests in a short time. Wait as long as Retry-After says. */
export class RateLimited extends TgadError {
  static override readonly code = 'RATE_LIMITED';
  override readonly name: string = 'RateLimited';
}

/** A quota is used up. A quota of the session or namespace is used up. Raise the quota, or wait for its next period. */
export class QuotaExceeded extends TgadError {
  static override readonly code = 'QUOTA_EXCEEDED';
  override readonly name: string = 'QuotaExceeded';
}

/** Calls to this tool server are stopped for now. Calls to this tool server are stopped after repeated failures. Nothing was sent. Wait until the breaker lets a trial call through; check the tool server. */
export class CircuitOpen extends TgadError {
  static override readonly code = 'CIRCUIT_OPEN';
  override readonly name: string = 'CircuitOpen';
}

/** The session has no turns left. The session has had as many turns as it may. Start a new session, or raise the limit. */
export class MaxTurnsExceeded extends TgadError {
  static override readonly code = 'MAX_TURNS_EXCEEDED';
  override readonly name: string = 'MaxTurnsExceeded';
}

/** The turn would use too many tokens. The turn would use more tokens than it may. Shorten the input, or raise the limit. */
export class MaxTokensExceeded extends TgadError {
  static override readonly code = 'MAX_TOKENS_EXCEEDED';
  override readonly name: string = 'MaxTokensExceeded';
}

/** The delegation failed. Another agent did not take the task over or did not finish it. Read the cause in the error. */
export class DelegationFailed extends TgadError {
  static override readonly code = 'DELEGATION_FAILED';
  override readonly name: string = 'DelegationFailed';
}

/** A person must decide first. The agent may not go on without a person. Let a person decide, then continue the session. */
export class EscalationRequired extends TgadError {
  static override readonly code = 'ESCALATION_REQUIRED';
  override readonly name: string = 'EscalationRequired';
}

/** The class of each code. */
export const classes: Readonly<Record<string, new (facts: ErrorFacts) => TgadError>> = {
  STATE_INVALID_TRANSITION: StateInvalidTransition,
  STATE_SEQUENCE_GAP: StateSequenceGap,
  STATE_CHECKSUM_MISMATCH: StateChecksumMismatch,
  STATE_RECOVERY_FAILED: StateRecoveryFailed,
  STATE_LOCK_ACQUIRE_FAILED: StateLockAcquireFailed,
  STATE_CONCURRENT_EXECUTION: StateConcurrentExecution,
  MISSING_TOOL_CALL_ID: MissingToolCallId,
  IDEMPOTENCY_KEY_REQUIRED: IdempotencyKeyRequired,
  IDEMPOTENCY_KEY_CONFLICT: IdempotencyKeyConflict,
  IDEMPOTENCY_KEY_IN_FLIGHT: IdempotencyKeyInFlight,
  IDEMPOTENCY_KEY_EXPIRED: IdempotencyKeyExpired,
  EFFECT_IN_DOUBT: EffectInDoubt,
  STORE_UNAVAILABLE: StoreUnavailable,
  CONFIRMATION_MISMATCH: ConfirmationMismatch,
  CONFIRMATION_REQUIRED: ConfirmationRequired,
  CAPABILITY_INVALID: CapabilityInvalid,
  APPROVAL_EXPIRED: ApprovalExpired,
  TOOL_SCHEMA_CHANGED: ToolSchemaChanged,
  SNAPSHOT_MISMATCH: SnapshotMismatch,
  RESTORE_FAILED: RestoreFailed,
  BUDGET_EXCEEDED: BudgetExceeded,
  STATE_CONFLICT: StateConflict,
  NOT_FOUND: NotFound,
  PERMISSION_DENIED: PermissionDenied,
  LIMIT_EXCEEDED: LimitExceeded,
  FORMAT_TOO_NEW: FormatTooNew,
  VALIDATION_ERROR: ValidationError,
  SCHEMA_VIOLATION: SchemaViolation,
  CONTENT_FILTERED: ContentFiltered,
  POLICY_VIOLATION: PolicyViolation,
  TOOL_ERROR: ToolError,
  TOOL_TIMEOUT: ToolTimeout,
  LLM_ERROR: LLMError,
  LLM_TIMEOUT: LLMTimeout,
  STATE_ERROR: StateError,
  RATE_LIMITED: RateLimited,
  QUOTA_EXCEEDED: QuotaExceeded,
  CIRCUIT_OPEN: CircuitOpen,
  MAX_TURNS_EXCEEDED: MaxTurnsExceeded,
  MAX_TOKENS_EXCEEDED: MaxTokensExceeded,
  DELEGATION_FAILED: DelegationFailed,
  ESCALATION_REQUIRED: EscalationRequired,
};
