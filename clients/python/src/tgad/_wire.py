# Written by clients/gen of tgad. Change the document of the protocol, not this file.
"""What is answered, as schemas/wire/openapi.yaml describes it."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union

ID = str
Digest = str
Time = str
Decimal = str
Secret = str
Base64 = str
State = Literal["PENDING", "AUTHORIZED", "EXECUTING", "COMPLETED", "FAILED", "DENIED"]
Status = Literal["SUCCESS", "FAILURE", "DENIED", "ERROR"]
OutcomeClass = Literal["success", "side_effect_committed", "retryable_failure", "permanent_failure", "compensatable_failure", "compensated", "not_sent"]
ToolName = str
Key = str
Code = str
Meta = Dict[str, Any]
StateChanges = List["StateChange"]
Via = Literal["model"]


class Resource(TypedDict):
    kind: Literal["repo", "doc", "service", "db"]
    id: str


class _Call(TypedDict):
    sequence_number: int
    #: sends that were marked for this trace
    attempts: int
    #: those of them of which it is not known that no byte left
    sent: int
    #: the answer is a recorded one: the trace was terminal before this request, or served_from names another
    replayed: bool


class Call(_Call, total=False):
    trace_id: ID
    #: absent where nothing of the call is durable
    state: State
    entry_digest: Digest
    tool_call_id: ID
    idempotency_key: Key
    status: Status
    outcome_class: OutcomeClass
    #: the tool's answer where it is strict JSON
    result: Any
    #: the answer's bytes where result is not, byte for byte, the answer
    result_base64: Base64
    #: with result_digest where no bytes of the answer are kept
    result_bytes: int
    result_digest: Digest
    summary: str
    error_code: Code
    error_message: str
    #: the tool's own code, where error_code is not that
    tool_error_code: str
    #: how long the tool server asked not to be asked again, from its answer on: a lower bound of the next attempt
    retry_after_ms: int
    #: who settled the effect, where the tool did not answer
    resolved_by: Literal["probe", "person", "late_reply"]
    resolved_via: Via
    served_from: ID
    #: the result is what was left of the answer when it was stored: the operator redacts some of it
    redacted: bool
    rationale: str
    #: what the effect says it changed
    changes: StateChanges
    confirmation: Confirmation
    #: the trace that undid the effect
    compensated_by: ID
    #: with Tgad-Receipt
    receipt: Receipt


class _StateChange(TypedDict):
    resource_type: str
    resource_id: str
    operation: str


class StateChange(_StateChange, total=False):
    version: str
    etag: str
    external_ref: str


class _Confirmation(TypedDict):
    #: changes that a verifier looked at
    checked: int
    #: changes without a verifier
    unchecked: int
    mismatches: List["Mismatch"]
    #: an earlier confirmation still holds
    skipped: bool


class Confirmation(_Confirmation, total=False):
    evidence_digest: Digest


class _Mismatch(TypedDict):
    change: StateChange
    finding: Literal["gone", "changed", "cannot_tell"]


class Mismatch(_Mismatch, total=False):
    reason: str


class _Connection(TypedDict):
    #: the caller's own name of the connection, unique and hard to guess, at most 255 bytes
    id: str


class Connection(_Connection, total=False):
    #: path of a file that is locked while the client is there. A path that leads to no file of the peer's own user is ignored
    lock: str
    #: path of a file that is locked while the sending process lives; ignored like lock
    executor: str
    #: the identity that the client has proven, at most 255 bytes
    subject: str
    #: the person at the client can be asked
    asks: bool
    #: trace whose repeat a person has said to run again, with a key or without
    again: ID


class _Begun(TypedDict):
    standing: Literal["send", "serve", "wait", "needs_approval", "denied", "conflict", "in_doubt", "stale"]
    call: Call


class Begun(_Begun, total=False):
    #: the person at the client is to be asked whether the identical call runs again
    ask: bool
    #: when the identical call, or the call in doubt, was last heard of
    since: Time
    #: of needs_approval: the vote of who began the call does not count
    barred: bool
    attempt: int
    permit: Secret
    #: with standing send: the send begins at most so long after the begin was asked, by the larger of the executor's own monotonic and wall time; else the permit goes back with not-sent
    send_within_ms: int
    idempotency_key: Key
    #: the arguments to send, byte for byte: the canonical form that was digested
    args: Dict[str, Any]
    cause: Problem


class _OpenTrace(TypedDict):
    trace_id: ID
    namespace: str
    state: State
    since: Time
    #: somebody runs it now
    held: bool


class OpenTrace(_OpenTrace, total=False):
    deadline: Time
    tool_server: ToolName
    tool_name: ToolName
    idempotency_key: Key
    tool_call_id: ID
    #: in the lists of doubt and of recovery
    window: Literal["W1", "W2", "W3", "W4"]
    attempts: int
    #: in the list of doubt
    doubt: Doubt
    problem: Problem


class _Doubt(TypedDict):
    #: of the newest attempt
    since: Time
    licence: Literal["park", "probe", "dedupe_key", "dedupe_args", "read_only"]
    #: a remote executor sends the call
    external: bool
    #: questions asked
    probes: int
    #: what would end the doubt
    settles: List[Literal["finish", "begin", "recover", "probe", "resolve", "abandon"]]


class Doubt(_Doubt, total=False):
    #: why the newest attempt has no certain answer; absent where nobody recorded it
    cause: str
    #: the last question
    asked: Time
    answer: Literal["ran", "not_ran", "unknown"]
    #: the attempts made before cannot arrive any more
    fenced: bool
    #: what was asked
    source: str
    evidence_digest: Digest
    #: when it is asked again
    next: Time


class _Traces(TypedDict):
    traces: List["OpenTrace"]


class Traces(_Traces, total=False):
    #: go on after this one. A page with it may be empty where few traces match
    next: ID
    #: beside next where the newest come first
    before: Time


class _Entry(TypedDict):
    entry: ExecutionLogEntry
    #: canonical; null when erased
    artifact: Union[Dict[str, Any], None]
    #: the store's clock at the commit
    committed: Time
    epoch: Decimal


class Entry(_Entry, total=False):
    documents: List["Document"]


class _Document(TypedDict):
    pointer: str
    size_bytes: int
    hash: Digest


class Document(_Document, total=False):
    erased: bool


class _Timeline(TypedDict):
    trace_id: ID
    namespace: str
    held: bool
    call: Call
    entries: List["Entry"]
    notes: List["Note"]


class Timeline(_Timeline, total=False):
    #: absent where the trace was erased
    plan_id: ID
    deadline: Time
    approval: Approval


class _Approval(TypedDict):
    trace_id: ID
    #: decision: may the request become a call? confirmation: may the record be relied on although changes no longer stand?
    kind: Literal["decision", "confirmation"]
    since: Time
    required: int
    why: str


class Approval(_Approval, total=False):
    expires: Time
    votes: List["Vote"]
    #: tells the question from others about the trace: the definition of the tool, or the changes that no longer stand
    about: Digest
    #: the question is not the one that was asked first: an approval names about
    changed: bool
    #: of a confirmation: what the answer is about
    mismatch_digest: Digest
    evidence_digest: Digest
    #: traces that wait for the answer
    waiting: List["ID"]


class Vote(TypedDict):
    who: str
    approve: bool
    rationale: str
    ts: Time


class _Approvals(TypedDict):
    approvals: List["Approval"]


class Approvals(_Approvals, total=False):
    #: that wait too, and cannot be read now
    unread: List["Unread"]


class _LogLine(TypedDict):
    cursor: Decimal


class LogLine(_LogLine, total=False):
    trace_id: ID
    entries: List["Entry"]
    notes: List["Note"]


class _Receipt(TypedDict):
    trace_id: ID
    #: the public key that signed first, as a signed note (C2SP) has it
    key: str
    leaves: List["ReceiptLeaf"]


class Receipt(_Receipt, total=False):
    #: signed notes, from that key to the one that signs now
    hand_overs: List[str]
    #: a signed note; absent where no checkpoint covers the trace yet
    checkpoint: str
    #: how many leaves no checkpoint covers yet; absent means none
    pending: int


class _ReceiptLeaf(TypedDict):
    #: in the order of the store, from 1
    index: int
    #: the 121 bytes that the tree hashes
    leaf: Base64


class ReceiptLeaf(_ReceiptLeaf, total=False):
    #: hashes of RFC 6962; absent while the leaf is pending
    proof: List["Base64"]


class Unread(TypedDict):
    trace_id: ID
    #: why it cannot be read
    code: str
    detail: str


class _Problem(TypedDict):
    type: Literal["about:blank"]
    #: a few words that are the same for every problem with this code
    title: str
    status: int
    #: what was attempted, with which values
    detail: str
    code: Code
    retryable: bool


class Problem(_Problem, total=False):
    causes: List["Code"]
    trace_id: ID
    sequence_number: int
    note_number: int
    #: JSON Pointer to the place in the request
    pointer: str
    expected_seq: int
    actual_seq: int
    digest_want: Digest
    digest_got: Digest
    #: whose bytes are at fault
    where: Literal["given", "stored"]
    #: of EFFECT_IN_DOUBT: for how much longer the tool server asked not to be asked again
    retry_after_ms: int
    call: Call


class ExecutionState(TypedDict):
    schema_id: Literal["talos.tga.execution_state"]
    schema_version: Literal["v1"]
    trace_id: ID
    plan_id: ID
    current_state: State
    last_sequence_number: int
    last_entry_digest: Digest
    state_digest: Digest


class _ExecutionLogEntry(TypedDict):
    schema_id: Literal["talos.tga.execution_log_entry"]
    schema_version: Literal["v1"]
    trace_id: ID
    sequence_number: int
    prev_entry_digest: Digest
    entry_digest: Digest
    ts: Time
    from_state: State
    to_state: State
    artifact_type: Literal["action_request", "supervisor_decision", "tool_call", "tool_effect"]
    artifact_id: ID
    artifact_digest: Digest


class ExecutionLogEntry(_ExecutionLogEntry, total=False):
    tool_call_id: Union[str, None]
    idempotency_key: Union[str, None]


class Note(TypedDict):
    schema_id: Literal["tgad.note"]
    schema_version: Literal["v1"]
    trace_id: ID
    note_number: int
    prev_note_digest: Digest
    head_entry_digest: Digest
    ts: Time
    kind: str
    who: str
    body: Dict[str, Any]
    note_digest: Digest
