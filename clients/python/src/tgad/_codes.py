# Written by clients/gen of tgad. Change the document of the protocol, not this file.
"""A class for each error code, as the table of schemas/tga has them."""

from typing import Dict as _Dict, Type as _Type

from ._errors import Error


class StateInvalidTransition(Error):
    """The trace has no such transition.

    The entry's from_state is not the trace's current state, or the machine has no such edge.
    Read the trace's state and append what follows from it. A terminal state is final: use a new trace.
    """

    code = "STATE_INVALID_TRANSITION"
    retryable = False


class StateSequenceGap(Error):
    """The sequence number is not the next one.

    The entry's sequence number is not the one after the trace's head. The error names both.
    Read the entries after the last one you know, then append at the head.
    """

    code = "STATE_SEQUENCE_GAP"
    retryable = False


class StateChecksumMismatch(Error):
    """A digest does not match its bytes.

    A digest is not that of the bytes it covers. Where says whose: given is the caller's (409), stored is our own (500).
    given: canonicalise by RFC 8785, leave the digest member out of what is hashed, and hash again. stored: run tgad verify and restore from a backup.
    """

    code = "STATE_CHECKSUM_MISMATCH"
    retryable = False


class StateRecoveryFailed(Error):
    """The trace failed a check and is quarantined.

    A trace's log failed a check while it was replayed. The trace is quarantined; others go on.
    Run tgad verify: it names the entry. Restore the store from a backup; the log is never repaired in place.
    """

    code = "STATE_RECOVERY_FAILED"
    retryable = False


class StateLockAcquireFailed(Error):
    """Somebody else holds the lease or the lock.

    Somebody else holds the lease of the trace, or the lock of the store.
    Wait and try again, or wait longer for the answer (Tgad-Timeout, --timeout).
    """

    code = "STATE_LOCK_ACQUIRE_FAILED"
    retryable = True


class StateConcurrentExecution(Error):
    """Another executor has taken over the trace.

    The lease is not the trace's newest: another executor has taken over.
    Stop work on the trace under this lease. Acquire a new one and read the state first.
    """

    code = "STATE_CONCURRENT_EXECUTION"
    retryable = False


class MissingToolCallId(Error):
    """The tool_call_id is missing.

    A tool_call or tool_effect, or the entry of one, has no tool_call_id.
    Set tool_call_id to the UUIDv7 of the call.
    """

    code = "MISSING_TOOL_CALL_ID"
    retryable = False


class IdempotencyKeyRequired(Error):
    """A write call needs an idempotency key.

    A tool call has no idempotency_key.
    Send a key that names the logical call and stays the same for every attempt.
    """

    code = "IDEMPOTENCY_KEY_REQUIRED"
    retryable = False


class IdempotencyKeyConflict(Error):
    """The key was used for another request.

    The key was used before for another tool, server or arguments, or the id of an agent's turn for another message. Nothing was sent.
    Use a new key for a new call; repeat the old arguments to get the old effect.
    """

    code = "IDEMPOTENCY_KEY_CONFLICT"
    retryable = False


class IdempotencyKeyInFlight(Error):
    """The call is still under way.

    The call of this key is under way, here or in another trace, and the time to wait for it is over.
    Ask again later with the same key: the recorded effect is served once there is one. It is not sent twice.
    """

    code = "IDEMPOTENCY_KEY_IN_FLIGHT"
    retryable = True


class IdempotencyKeyExpired(Error):
    """The key has expired.

    The key was used so long ago that its effect is no longer kept, or its effect was erased. It is never sent again.
    Look the effect up at the tool server. Use a new key for a new call.
    """

    code = "IDEMPOTENCY_KEY_EXPIRED"
    retryable = False


class EffectInDoubt(Error):
    """The call may have been executed.

    The call may have been executed: an attempt is on disk, its effect is not, and the tool's licence does not allow another send.
    Find out at the tool server what happened; then tgad resolve with the evidence, or tgad abandon.
    """

    code = "EFFECT_IN_DOUBT"
    retryable = False


class StoreUnavailable(Error):
    """The store does not take the request.

    The store does not take the request: it failed a write, is frozen after a restore, is short of disk space, or is sealed and its keys cannot be had.
    Run tgad doctor. Open a sealed store with its key ring. After a failed write restart the daemon: what it had not acknowledged may or may not be there.
    """

    code = "STORE_UNAVAILABLE"
    retryable = True


class ConfirmationMismatch(Error):
    """The recorded effect does not stand any more.

    The world does not show the effect that is recorded for this call.
    Compare the recorded effect with the tool server before trusting either.
    """

    code = "CONFIRMATION_MISMATCH"
    retryable = False


class ConfirmationRequired(Error):
    """The recorded effect must be confirmed first.

    The recorded effect must be confirmed before it is served, and no verifier could confirm it.
    Configure a verifier for the tool, or confirm by hand.
    """

    code = "CONFIRMATION_REQUIRED"
    retryable = False


class CapabilityInvalid(Error):
    """The capability is not valid for this call.

    The decision's capability token is missing, expired, or not for this call.
    Ask for a new decision; check the keys the daemon trusts.
    """

    code = "CAPABILITY_INVALID"
    retryable = False


class ApprovalExpired(Error):
    """The approval was not given in time.

    The approval this call waited for was not given in time.
    Make a new request.
    """

    code = "APPROVAL_EXPIRED"
    retryable = False


class ToolSchemaChanged(Error):
    """The tool was redefined since the decision.

    The tool's schema is not the one the decision was made for.
    Review the tool, then make a new request.
    """

    code = "TOOL_SCHEMA_CHANGED"
    retryable = False


class SnapshotMismatch(Error):
    """The snapshot is not the one that was named.

    A snapshot of working state is not the one its digest names.
    Use an older snapshot or savepoint.
    """

    code = "SNAPSHOT_MISMATCH"
    retryable = False


class RestoreFailed(Error):
    """The state could not be restored.

    Working state or a store could not be restored. What was there before is unchanged.
    Read the cause in the error; restore into an empty directory.
    """

    code = "RESTORE_FAILED"
    retryable = False


class BudgetExceeded(Error):
    """A budget would be exceeded.

    The call would exceed a budget of its namespace or session.
    Raise the budget, or wait for its next period.
    """

    code = "BUDGET_EXCEEDED"
    retryable = False


class StateConflict(Error):
    """The state was changed by somebody else.

    Working state changed between the read and the write.
    Read it again and repeat the change.
    """

    code = "STATE_CONFLICT"
    retryable = True


class NotFound(Error):
    """Not found.

    There is no such trace, artifact, key or route.
    Check the id and the namespace: a caller sees only the traces of its own.
    """

    code = "NOT_FOUND"
    retryable = False


class PermissionDenied(Error):
    """The peer may not do this.

    The peer's role does not allow the request, or a program claims a licence that allows more than the operator's.
    Give the peer's uid or gid the role in the configuration; or set client_licence = true for the tool.
    """

    code = "PERMISSION_DENIED"
    retryable = False


class LimitExceeded(Error):
    """A limit was exceeded.

    The input is larger, deeper or longer than a limit.
    Send less, or raise the limit in the configuration.
    """

    code = "LIMIT_EXCEEDED"
    retryable = False


class FormatTooNew(Error):
    """This program does not read the format.

    The store, segment or backup has a format that this program does not read: a later one, or one that is no longer read. The detail says both versions. It was not touched.
    Use the tgad version that wrote it.
    """

    code = "FORMAT_TOO_NEW"
    retryable = False


class ValidationError(Error):
    """The request is not valid.

    A header, a parameter, a name or the body is not what is taken. A body is JSON that keeps its meaning in canonical form: valid UTF-8, no repeated member, no number that a double cannot hold. The pointer names the place in it.
    Read the detail and correct what it names. Send a number of more than 15 digits as a string.
    """

    code = "VALIDATION_ERROR"
    retryable = False


class SchemaViolation(Error):
    """The document is not as its schema says.

    A document is not as its schema says: an unknown or missing member, or a value out of range. The pointer names the place.
    Correct the place; the schemas are in schemas/tga/v1.
    """

    code = "SCHEMA_VIOLATION"
    retryable = False


class ContentFiltered(Error):
    """A content filter refused it.

    A content filter refused the input or the output.
    Change the content, or the filter's configuration.
    """

    code = "CONTENT_FILTERED"
    retryable = False


class PolicyViolation(Error):
    """A policy forbids it.

    A supervisor denied the request, or a policy forbids it.
    Read the decision's rationale.
    """

    code = "POLICY_VIOLATION"
    retryable = False


class ToolError(Error):
    """The tool call failed.

    The tool server reported an error, and that is recorded; or it could not be reached and nothing was sent (outcome class not_sent).
    After not_sent make the same call again with the same key: it is sent. Otherwise the same key is served the recorded error; a new attempt is a new call with a new key.
    """

    code = "TOOL_ERROR"
    retryable = False


class ToolTimeout(Error):
    """The time for the call is over.

    The call's deadline passed before it was sent; or the tool server did not answer in time, and the call may have been executed.
    Not sent: make a new call with a later deadline. No answer: see EFFECT_IN_DOUBT.
    """

    code = "TOOL_TIMEOUT"
    retryable = False


class LLMError(Error):
    """The model failed.

    The model's provider reported an error.
    Try again; check the provider's status.
    """

    code = "LLM_ERROR"
    retryable = True


class LLMTimeout(Error):
    """The model did not answer in time.

    The model's provider did not answer in time.
    Try again, or raise the time-out.
    """

    code = "LLM_TIMEOUT"
    retryable = True


class StateError(Error):
    """The state could not be loaded or stored.

    State could not be loaded or stored for a reason that has no code of its own.
    Read the cause in the error.
    """

    code = "STATE_ERROR"
    retryable = False


class RateLimited(Error):
    """Too many requests.

    Too many requests in a short time.
    Wait as long as Retry-After says.
    """

    code = "RATE_LIMITED"
    retryable = True


class QuotaExceeded(Error):
    """A quota is used up.

    A quota of the session or namespace is used up.
    Raise the quota, or wait for its next period.
    """

    code = "QUOTA_EXCEEDED"
    retryable = False


class CircuitOpen(Error):
    """Calls to this tool server are stopped for now.

    Calls to this tool server are stopped after repeated failures. Nothing was sent.
    Wait until the breaker lets a trial call through; check the tool server.
    """

    code = "CIRCUIT_OPEN"
    retryable = True


class MaxTurnsExceeded(Error):
    """The session has no turns left.

    The session has had as many turns as it may.
    Start a new session, or raise the limit.
    """

    code = "MAX_TURNS_EXCEEDED"
    retryable = False


class MaxTokensExceeded(Error):
    """The turn would use too many tokens.

    The turn would use more tokens than it may.
    Shorten the input, or raise the limit.
    """

    code = "MAX_TOKENS_EXCEEDED"
    retryable = False


class DelegationFailed(Error):
    """The delegation failed.

    Another agent did not take the task over or did not finish it.
    Read the cause in the error.
    """

    code = "DELEGATION_FAILED"
    retryable = False


class EscalationRequired(Error):
    """A person must decide first.

    The agent may not go on without a person.
    Let a person decide, then continue the session.
    """

    code = "ESCALATION_REQUIRED"
    retryable = False


CLASSES: _Dict[str, _Type[Error]] = {c.code: c for c in Error.__subclasses__()}
