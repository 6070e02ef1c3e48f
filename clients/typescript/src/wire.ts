// Written by clients/gen of tgad. Change the document of the protocol, not this file.
// The messages of the protocol, as schemas/wire/openapi.yaml describes them.

/** UUIDv7 */
export type ID = string;

/** SHA-256 */
export type Digest = string;

/** UTC in milliseconds */
export type Time = string;

/** an integer that a double may not hold */
export type Decimal = string;

export type Secret = string;

export type Base64 = string;

export type State = 'PENDING' | 'AUTHORIZED' | 'EXECUTING' | 'COMPLETED' | 'FAILED' | 'DENIED';

export type Status = 'SUCCESS' | 'FAILURE' | 'DENIED' | 'ERROR';

export type OutcomeClass = 'success' | 'side_effect_committed' | 'retryable_failure' | 'permanent_failure' | 'compensatable_failure' | 'compensated' | 'not_sent';

export type ToolName = string;

export type Key = string;

export type Code = string;

export type Meta = Record<string, unknown>;

export interface CallRequest {
  trace_id?: ID;
  tool_server: ToolName;
  tool_name: ToolName;
  /** absent means {} */
  args?: Record<string, unknown>;
  idempotency_key?: Key;
  /** absent means the peer's */
  namespace?: string;
  plan_id?: ID;
  agent_id?: ID;
  risk_level?: 'READ' | 'WRITE' | 'HIGH_RISK';
  intent?: string;
  resources?: Array<Resource>;
  deadline?: Time;
  /** a new attempt where the key is settled as a retryable failure */
  retry?: boolean;
  /** the caller vouches that the key was never used; a store in quarantine asks for it */
  fresh?: boolean;
  /** a recorded effect is confirmed before it is served */
  replay?: boolean;
  /** with step it names the call where there is no key: one is derived from them, the tool and the arguments */
  scope?: string;
  step?: string;
  meta?: Meta;
}

export interface Resource {
  kind: 'repo' | 'doc' | 'service' | 'db';
  id: string;
}

export interface BeginRequest {
  /** the caller's own name of this begin, unique and hard to guess, at most 255 bytes. The same from the same peer finds the trace that it led to; another call under it is a conflict */
  begin_id: string;
  connection?: Connection;
  /** traces whose answers have reached the caller whole: as POST /v1/traces/{id}/delivered of each, in the append that this begin makes anyway */
  delivered?: Array<ID>;
  /** what you, who run the tool, say that running it again would do. One that allows more than the operator's licence is refused with PERMISSION_DENIED, unless the tool's row in the configuration says client_licence = true */
  licence?: 'park' | 'probe' | 'dedupe_key' | 'dedupe_args' | 'read_only';
  /** of licence dedupe_key: how long a key is honoured; absent means the operator's window, which bounds it */
  licence_window_ms?: number;
  /** of licence probe: how long a request can be under way after its sender died; absent means the operator's time, and it is no less than that */
  licence_max_in_flight_ms?: number;
  /** what the tool server says of the tool itself (MCP's readOnlyHint, idempotentHint); read only where the configuration trusts the server's hints and says nothing about the tool */
  hint?: 'read_only' | 'idempotent';
  trace_id?: ID;
  tool_server: ToolName;
  tool_name: ToolName;
  args?: Record<string, unknown>;
  idempotency_key?: Key;
  namespace?: string;
  plan_id?: ID;
  agent_id?: ID;
  risk_level?: 'READ' | 'WRITE' | 'HIGH_RISK';
  intent?: string;
  resources?: Array<Resource>;
  deadline?: Time;
  retry?: boolean;
  fresh?: boolean;
  replay?: boolean;
  scope?: string;
  step?: string;
  meta?: Meta;
}

export interface Call {
  trace_id?: ID;
  /** absent where nothing of the call is durable */
  state?: State;
  sequence_number: number;
  entry_digest?: Digest;
  tool_call_id?: ID;
  idempotency_key?: Key;
  /** sends that were marked for this trace */
  attempts: number;
  /** those of them of which it is not known that no byte left */
  sent: number;
  status?: Status;
  outcome_class?: OutcomeClass;
  /** the tool's answer where it is strict JSON */
  result?: unknown;
  /** the answer's bytes where result is not, byte for byte, the answer */
  result_base64?: Base64;
  /** with result_digest where no bytes of the answer are kept */
  result_bytes?: number;
  result_digest?: Digest;
  summary?: string;
  error_code?: Code;
  error_message?: string;
  /** the tool's own code, where error_code is not that */
  tool_error_code?: string;
  /** how long the tool server asked not to be asked again, from its answer on: a lower bound of the next attempt */
  retry_after_ms?: number;
  /** who settled the effect, where the tool did not answer */
  resolved_by?: 'probe' | 'person' | 'late_reply';
  resolved_via?: Via;
  served_from?: ID;
  /** the answer is a recorded one: the trace was terminal before this request, or served_from names another */
  replayed: boolean;
  /** the result is what was left of the answer when it was stored: the operator redacts some of it */
  redacted?: boolean;
  rationale?: string;
  /** what the effect says it changed */
  changes?: StateChanges;
  confirmation?: Confirmation;
  /** the trace that undid the effect */
  compensated_by?: ID;
  /** with Tgad-Receipt */
  receipt?: Receipt;
}

export type StateChanges = Array<StateChange>;

/** the bounds of its texts are counted in bytes */
export interface StateChange {
  resource_type: string;
  resource_id: string;
  operation: string;
  version?: string;
  etag?: string;
  external_ref?: string;
}

export interface Confirmation {
  /** changes that a verifier looked at */
  checked: number;
  /** changes without a verifier */
  unchecked: number;
  mismatches: Array<Mismatch>;
  /** an earlier confirmation still holds */
  skipped: boolean;
  evidence_digest?: Digest;
}

export interface Mismatch {
  change: StateChange;
  finding: 'gone' | 'changed' | 'cannot_tell';
  reason?: string;
}

/** the client's end, where the caller serves clients; a call without a key is told from a repeat of an identical one by it */
export interface Connection {
  /** the caller's own name of the connection, unique and hard to guess, at most 255 bytes */
  id: string;
  /** path of a file that is locked while the client is there. A path that leads to no file of the peer's own user is ignored */
  lock?: string;
  /** path of a file that is locked while the sending process lives; ignored like lock */
  executor?: string;
  /** the identity that the client has proven, at most 255 bytes */
  subject?: string;
  /** the person at the client can be asked */
  asks?: boolean;
  /** trace whose repeat a person has said to run again, with a key or without */
  again?: ID;
}

export interface Begun {
  standing: 'send' | 'serve' | 'wait' | 'needs_approval' | 'denied' | 'conflict' | 'in_doubt' | 'stale';
  /** the person at the client is to be asked whether the identical call runs again */
  ask?: boolean;
  /** when the identical call, or the call in doubt, was last heard of */
  since?: Time;
  /** of needs_approval: the vote of who began the call does not count */
  barred?: boolean;
  attempt?: number;
  permit?: Secret;
  /** with standing send: the send begins at most so long after the begin was asked, by the larger of the executor's own monotonic and wall time; else the permit goes back with not-sent */
  send_within_ms?: number;
  idempotency_key?: Key;
  /** the arguments to send, byte for byte: the canonical form that was digested */
  args?: Record<string, unknown>;
  call: Call;
  cause?: Problem;
}

export interface FinishRequest {
  permit: Secret;
  /** SUCCESS, FAILURE, DENIED or ERROR; any other word is kept in meta.tool_status and recorded as ERROR */
  status: string;
  outcome_class?: OutcomeClass;
  /** what is over 500 characters is cut */
  summary?: string;
  /** a code that is none of tgad's is kept in meta.tool_error_code and recorded as TOOL_ERROR */
  error_code?: string;
  /** what is over 200 characters is cut */
  error_message?: string;
  /** the whole answer where it is strict JSON; kept byte for byte */
  result?: unknown;
  /** the bytes of any answer; beside result, the answer whose value that is */
  result_base64?: Base64;
  /** with result_digest in place of an answer that was too long to keep */
  result_bytes?: number;
  result_digest?: Digest;
  /** how long the tool server asks not to be asked again; more than a day (86400000) counts as a day */
  retry_after_ms?: number;
  /** what the call changed, where the daemon's rules do not say */
  changes?: StateChanges;
}

export interface NotSentRequest {
  permit: Secret;
  reason?: string;
  /** how long the tool server asks not to be asked again; more than a day (86400000) counts as a day */
  retry_after_ms?: number;
}

export interface GiveUpRequest {
  permit: Secret;
  /** Why nobody knows what became of it, for people. At most 500 characters are kept, in a note of the newest attempt. */
  cause?: string;
  /** how long the tool server asks not to be asked again; more than a day (86400000) counts as a day */
  retry_after_ms?: number;
}

/** a model decided, by the right of the peer that passes it on. It may say that a call ran (status SUCCESS), or give it up; anything else is PERMISSION_DENIED */
export type Via = 'model';

export interface ResolveRequest {
  via?: Via;
  status: Status;
  outcome_class?: OutcomeClass;
  summary?: string;
  /** a code that is none of tgad's is kept in meta.tool_error_code and recorded as TOOL_ERROR */
  error_code?: string;
  error_message?: string;
  /** the answer where it is JSON */
  result?: unknown;
  result_base64?: Base64;
  result_bytes?: number;
  result_digest?: Digest;
  /** how long the tool server asks not to be asked again; more than a day (86400000) counts as a day */
  retry_after_ms?: number;
  changes?: StateChanges;
  /** why it is known; this or evidence_base64 is required */
  evidence?: unknown;
  evidence_base64?: Base64;
  /** how many attempts the call had when somebody looked at its world. A word that frees the key is refused with STATE_CONCURRENT_EXECUTION where there are more by now */
  attempts?: number;
}

export interface AbandonRequest {
  via?: Via;
  reason?: string;
}

export interface DecideRequest {
  approve: boolean;
  rationale: string;
  /** the question that the voter was shown, as approvals lists it. An approval of another question than the one that is asked now is refused: TOOL_SCHEMA_CHANGED, of a confirmation CONFIRMATION_REQUIRED. So is one that names none, once the question has changed */
  about?: Digest;
}

export interface OpenTrace {
  trace_id: ID;
  namespace: string;
  state: State;
  since: Time;
  deadline?: Time;
  tool_server?: ToolName;
  tool_name?: ToolName;
  idempotency_key?: Key;
  tool_call_id?: ID;
  /** somebody runs it now */
  held: boolean;
  /** in the lists of doubt and of recovery */
  window?: 'W1' | 'W2' | 'W3' | 'W4';
  attempts?: number;
  /** in the list of doubt */
  doubt?: Doubt;
  problem?: Problem;
}

export interface Doubt {
  /** of the newest attempt */
  since: Time;
  licence: 'park' | 'probe' | 'dedupe_key' | 'dedupe_args' | 'read_only';
  /** a remote executor sends the call */
  external: boolean;
  /** why the newest attempt has no certain answer; absent where nobody recorded it */
  cause?: string;
  /** questions asked */
  probes: number;
  /** the last question */
  asked?: Time;
  answer?: 'ran' | 'not_ran' | 'unknown';
  /** the attempts made before cannot arrive any more */
  fenced?: boolean;
  /** what was asked */
  source?: string;
  evidence_digest?: Digest;
  /** when it is asked again */
  next?: Time;
  /** what would end the doubt */
  settles: Array<'finish' | 'begin' | 'recover' | 'probe' | 'resolve' | 'abandon'>;
}

export interface Traces {
  traces: Array<OpenTrace>;
  /** go on after this one. A page with it may be empty where few traces match */
  next?: ID;
  /** beside next where the newest come first */
  before?: Time;
}

export interface Entry {
  entry: ExecutionLogEntry;
  /** canonical; null when erased */
  artifact: Record<string, unknown> | null;
  documents?: Array<Document>;
  /** the store's clock at the commit */
  committed: Time;
  epoch: Decimal;
}

export interface Document {
  pointer: string;
  size_bytes: number;
  hash: Digest;
  erased?: boolean;
}

export interface Timeline {
  trace_id: ID;
  /** absent where the trace was erased */
  plan_id?: ID;
  namespace: string;
  deadline?: Time;
  held: boolean;
  call: Call;
  entries: Array<Entry>;
  notes: Array<Note>;
  approval?: Approval;
}

export interface Approval {
  trace_id: ID;
  /** decision: may the request become a call? confirmation: may the record be relied on although changes no longer stand? */
  kind: 'decision' | 'confirmation';
  since: Time;
  expires?: Time;
  required: number;
  why: string;
  votes?: Array<Vote>;
  /** tells the question from others about the trace: the definition of the tool, or the changes that no longer stand */
  about?: Digest;
  /** the question is not the one that was asked first: an approval names about */
  changed?: boolean;
  /** of a confirmation: what the answer is about */
  mismatch_digest?: Digest;
  evidence_digest?: Digest;
  /** traces that wait for the answer */
  waiting?: Array<ID>;
}

export interface Vote {
  who: string;
  approve: boolean;
  rationale: string;
  ts: Time;
}

export interface Approvals {
  approvals: Array<Approval>;
  /** that wait too, and cannot be read now */
  unread?: Array<Unread>;
}

export interface LogLine {
  cursor: Decimal;
  trace_id?: ID;
  entries?: Array<Entry>;
  notes?: Array<Note>;
}

export interface Receipt {
  trace_id: ID;
  /** the public key that signed first, as a signed note (C2SP) has it */
  key: string;
  /** signed notes, from that key to the one that signs now */
  hand_overs?: Array<string>;
  /** a signed note; absent where no checkpoint covers the trace yet */
  checkpoint?: string;
  leaves: Array<ReceiptLeaf>;
  /** how many leaves no checkpoint covers yet; absent means none */
  pending?: number;
}

export interface ReceiptLeaf {
  /** in the order of the store, from 1 */
  index: number;
  /** the 121 bytes that the tree hashes */
  leaf: Base64;
  /** hashes of RFC 6962; absent while the leaf is pending */
  proof?: Array<Base64>;
}

export interface Unread {
  trace_id: ID;
  /** why it cannot be read */
  code: string;
  detail: string;
}

export interface Problem {
  type: 'about:blank';
  /** a few words that are the same for every problem with this code */
  title: string;
  status: number;
  /** what was attempted, with which values */
  detail: string;
  code: Code;
  retryable: boolean;
  causes?: Array<Code>;
  trace_id?: ID;
  sequence_number?: number;
  note_number?: number;
  /** JSON Pointer to the place in the request */
  pointer?: string;
  expected_seq?: number;
  actual_seq?: number;
  digest_want?: Digest;
  digest_got?: Digest;
  /** whose bytes are at fault */
  where?: 'given' | 'stored';
  /** of EFFECT_IN_DOUBT: for how much longer the tool server asked not to be asked again */
  retry_after_ms?: number;
  call?: Call;
}

export interface ExecutionState {
  schema_id: 'talos.tga.execution_state';
  schema_version: 'v1';
  trace_id: ID;
  plan_id: ID;
  current_state: State;
  last_sequence_number: number;
  last_entry_digest: Digest;
  state_digest: Digest;
}

export interface ExecutionLogEntry {
  schema_id: 'talos.tga.execution_log_entry';
  schema_version: 'v1';
  trace_id: ID;
  sequence_number: number;
  prev_entry_digest: Digest;
  entry_digest: Digest;
  ts: Time;
  from_state: State;
  to_state: State;
  artifact_type: 'action_request' | 'supervisor_decision' | 'tool_call' | 'tool_effect';
  artifact_id: ID;
  artifact_digest: Digest;
  tool_call_id?: string | null;
  idempotency_key?: string | null;
}

export interface Note {
  schema_id: 'tgad.note';
  schema_version: 'v1';
  trace_id: ID;
  note_number: number;
  prev_note_digest: Digest;
  head_entry_digest: Digest;
  ts: Time;
  kind: string;
  who: string;
  body: Record<string, unknown>;
  note_digest: Digest;
}
