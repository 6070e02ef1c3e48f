# Written by clients/gen of tgad. Change the document of the protocol, not this file.
"""What is asked, as schemas/wire/openapi.yaml describes it."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union

from ._wire import Base64, Connection, Digest, ID, Key, Meta, OutcomeClass, Resource, Secret, StateChanges, Status, Time, ToolName, Via


class _CallRequest(TypedDict):
    tool_server: ToolName
    tool_name: ToolName


class CallRequest(_CallRequest, total=False):
    trace_id: ID
    #: absent means {}
    args: Dict[str, Any]
    idempotency_key: Key
    #: absent means the peer's
    namespace: str
    plan_id: ID
    agent_id: ID
    risk_level: Literal["READ", "WRITE", "HIGH_RISK"]
    intent: str
    resources: List["Resource"]
    deadline: Time
    #: a new attempt where the key is settled as a retryable failure
    retry: bool
    #: the caller vouches that the key was never used; a store in quarantine asks for it
    fresh: bool
    #: a recorded effect is confirmed before it is served
    replay: bool
    #: with step it names the call where there is no key: one is derived from them, the tool and the arguments
    scope: str
    step: str
    meta: Meta


class _BeginRequest(TypedDict):
    #: the caller's own name of this begin, unique and hard to guess, at most 255 bytes. The same from the same peer finds the trace that it led to; another call under it is a conflict
    begin_id: str
    tool_server: ToolName
    tool_name: ToolName


class BeginRequest(_BeginRequest, total=False):
    connection: Connection
    #: traces whose answers have reached the caller whole: as POST /v1/traces/{id}/delivered of each, in the append that this begin makes anyway
    delivered: List["ID"]
    #: what you, who run the tool, say that running it again would do. One that allows more than the operator's licence is refused with PERMISSION_DENIED, unless the tool's row in the configuration says client_licence = true
    licence: Literal["park", "probe", "dedupe_key", "dedupe_args", "read_only"]
    #: of licence dedupe_key: how long a key is honoured; absent means the operator's window, which bounds it
    licence_window_ms: int
    #: of licence probe: how long a request can be under way after its sender died; absent means the operator's time, and it is no less than that
    licence_max_in_flight_ms: int
    #: what the tool server says of the tool itself (MCP's readOnlyHint, idempotentHint); read only where the configuration trusts the server's hints and says nothing about the tool
    hint: Literal["read_only", "idempotent"]
    trace_id: ID
    args: Dict[str, Any]
    idempotency_key: Key
    namespace: str
    plan_id: ID
    agent_id: ID
    risk_level: Literal["READ", "WRITE", "HIGH_RISK"]
    intent: str
    resources: List["Resource"]
    deadline: Time
    retry: bool
    fresh: bool
    replay: bool
    scope: str
    step: str
    meta: Meta


class _FinishRequest(TypedDict):
    permit: Secret
    #: SUCCESS, FAILURE, DENIED or ERROR; any other word is kept in meta.tool_status and recorded as ERROR
    status: str


class FinishRequest(_FinishRequest, total=False):
    outcome_class: OutcomeClass
    #: what is over 500 characters is cut
    summary: str
    #: a code that is none of tgad's is kept in meta.tool_error_code and recorded as TOOL_ERROR
    error_code: str
    #: what is over 200 characters is cut
    error_message: str
    #: the whole answer where it is strict JSON; kept byte for byte
    result: Any
    #: the bytes of any answer; beside result, the answer whose value that is
    result_base64: Base64
    #: with result_digest in place of an answer that was too long to keep
    result_bytes: int
    result_digest: Digest
    #: how long the tool server asks not to be asked again; more than a day (86400000) counts as a day
    retry_after_ms: int
    #: what the call changed, where the daemon's rules do not say
    changes: StateChanges


class _NotSentRequest(TypedDict):
    permit: Secret


class NotSentRequest(_NotSentRequest, total=False):
    reason: str
    #: how long the tool server asks not to be asked again; more than a day (86400000) counts as a day
    retry_after_ms: int


class _GiveUpRequest(TypedDict):
    permit: Secret


class GiveUpRequest(_GiveUpRequest, total=False):
    #: Why nobody knows what became of it, for people. At most 500 characters are kept, in a note of the newest attempt.
    cause: str
    #: how long the tool server asks not to be asked again; more than a day (86400000) counts as a day
    retry_after_ms: int


class _ResolveRequest(TypedDict):
    status: Status


class ResolveRequest(_ResolveRequest, total=False):
    via: Via
    outcome_class: OutcomeClass
    summary: str
    #: a code that is none of tgad's is kept in meta.tool_error_code and recorded as TOOL_ERROR
    error_code: str
    error_message: str
    #: the answer where it is JSON
    result: Any
    result_base64: Base64
    result_bytes: int
    result_digest: Digest
    #: how long the tool server asks not to be asked again; more than a day (86400000) counts as a day
    retry_after_ms: int
    changes: StateChanges
    #: why it is known; this or evidence_base64 is required
    evidence: Any
    evidence_base64: Base64
    #: how many attempts the call had when somebody looked at its world. A word that frees the key is refused with STATE_CONCURRENT_EXECUTION where there are more by now
    attempts: int


class AbandonRequest(TypedDict, total=False):
    via: Via
    reason: str


class _DecideRequest(TypedDict):
    approve: bool
    rationale: str


class DecideRequest(_DecideRequest, total=False):
    #: the question that the voter was shown, as approvals lists it. An approval of another question than the one that is asked now is refused: TOOL_SCHEMA_CHANGED, of a confirmation CONFIRMATION_REQUIRED. So is one that names none, once the question has changed
    about: Digest


class More(TypedDict, total=False):
    trace_id: ID
    #: absent means the peer's
    namespace: str
    plan_id: ID
    agent_id: ID
    risk_level: Literal["READ", "WRITE", "HIGH_RISK"]
    intent: str
    resources: List["Resource"]
    #: a new attempt where the key is settled as a retryable failure
    retry: bool
    #: the caller vouches that the key was never used; a store in quarantine asks for it
    fresh: bool
    #: a recorded effect is confirmed before it is served
    replay: bool
    #: with step it names the call where there is no key: one is derived from them, the tool and the arguments
    scope: str
    step: str
    meta: Meta


class BeginMore(TypedDict, total=False):
    trace_id: ID
    #: absent means the peer's
    namespace: str
    plan_id: ID
    agent_id: ID
    risk_level: Literal["READ", "WRITE", "HIGH_RISK"]
    intent: str
    resources: List["Resource"]
    #: a new attempt where the key is settled as a retryable failure
    retry: bool
    #: the caller vouches that the key was never used; a store in quarantine asks for it
    fresh: bool
    #: a recorded effect is confirmed before it is served
    replay: bool
    #: with step it names the call where there is no key: one is derived from them, the tool and the arguments
    scope: str
    step: str
    meta: Meta
    #: what you, who run the tool, say that running it again would do. One that allows more than the operator's licence is refused with PERMISSION_DENIED, unless the tool's row in the configuration says client_licence = true
    licence: Literal["park", "probe", "dedupe_key", "dedupe_args", "read_only"]
    #: of licence dedupe_key: how long a key is honoured; absent means the operator's window, which bounds it
    licence_window_ms: int
    #: of licence probe: how long a request can be under way after its sender died; absent means the operator's time, and it is no less than that
    licence_max_in_flight_ms: int
