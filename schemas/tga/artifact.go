package tga

// Artifact is one decoded and checked document of a trace. Exactly one of
// Request, Decision, Call and Effect is set, as Type says.
//
// Canonical is the whole artifact in canonical form, `_digest` included. The store keeps
// these bytes and gives them to readers. They must not be modified.
type Artifact struct {
	Type      ArtifactType
	ID        ID // its own id: action_request_id, supervisor_decision_id, …
	Digest    Digest
	Canonical []byte

	TraceID ID
	PlanID  ID
	TS      Millis
	Meta    Meta

	Request  *ActionRequest
	Decision *SupervisorDecision
	Call     *ToolCall
	Effect   *ToolEffect
}

// Verdict returns the value that selects the artifact's edge in the machine: the decision or
// the outcome.status. It is "" for a request and a call.
func (a *Artifact) Verdict() string {
	switch a.Type {
	case DecisionType:
		return a.Decision.Decision
	case EffectType:
		return a.Effect.Outcome.Status
	}
	return ""
}

// Meta is the artifact's member for free names. Its values are scalars: string, bool, nil or
// [Number], which keeps every digit of a number.
type Meta map[string]any

// Number is a JSON number as it stands in the canonical bytes.
type Number string

// String returns the value of the member with that name, or "" if it is absent or no string.
func (m Meta) String(name string) string {
	s, _ := m[name].(string)
	return s
}

// Members of meta that this module gives a meaning (docs/FORMAT.md).
const (
	MetaNamespace      = "namespace"          // request: tenant; absent = "default"
	MetaDeadline       = "deadline"           // request: no first send after this ts
	MetaFresh          = "fresh"              // request: its caller vouches that the key was never used
	MetaRetryOf        = "retry_of"           // request, call: trace whose key this one reserves again
	MetaNonce          = "nonce"              // every minted artifact: 16 random bytes, hex
	MetaAttempt        = "attempt"            // call: AttemptFused (default), AttemptApart, AttemptExternal or AttemptNone; effect: number of its attempt
	MetaPermitDigest   = "permit_digest"      // call: sha256 of the external executor's permit, hex
	MetaLicence        = "licence"            // call: the tool's licence when attempt 1 was made; absent = what holds where the operator says nothing
	MetaClientLicence  = "client_licence"     // request: the licence that the program which sends the call claims, in the form of MetaLicence
	MetaBeginID        = "begin_id"           // call: the external executor's own id of its Begin
	MetaOutcomeClass   = "outcome_class"      // effect: the ledger's class
	MetaReplayedFrom   = "replayed_from"      // effect: trace whose effect is served here
	MetaReplayedEffect = "replayed_effect"    // effect: digest of the tool_effect that is served here
	MetaResolvedBy     = "resolved_by"        // effect: probe or person; late_reply is reserved
	MetaResolver       = "resolver"           // effect: who resolved or abandoned
	MetaResolvedVia    = "resolved_via"       // effect: "model" where a model decided, by the right of that peer
	MetaFinishedBy     = "finished_by"        // effect: who finished a remote executor's attempt
	MetaCompensates    = "compensates"        // request: trace whose effect this call undoes
	MetaCompensatedBy  = "compensated_by"     // effect that is served: trace that undid it
	MetaExecutor       = "executor"           // request: AttemptExternal where a remote executor sends the call
	MetaSubmitter      = "submitter"          // request: who handed it in, as the daemon knows its peers
	MetaRetryNumber    = "retry_number"       // request: how often a new trace was made under the key, from 1
	MetaDerivedKey     = "derived_key"        // request: the derived key of occurrence 0, hex
	MetaOccurrence     = "occurrence"         // request: occurrence of a derived key, from 0
	MetaIdentity       = "identity"           // request: digest that identical calls without a key share, hex
	MetaSubject        = "subject"            // request: whose call it is, of the clients that one executor serves
	MetaRedacted       = "redacted"           // request, effect: true where something was taken out before it was stored
	MetaSpanContext    = "span_context"       // request: traceparent of the run that made it, where that was traced
	MetaAgainOf        = "again_of"           // request: identical trace whose call a person asked to run again
	MetaSchemaDigest   = "tool_schema_digest" // decision: the tool's definition when it was approved, hex
	MetaOutcomeError   = "outcome_error"      // effect: which rule of the tool could not be applied, and why
	MetaToolErrorCode  = "tool_error_code"    // effect: the tool's own code, if the contract does not have it
	MetaToolStatus     = "tool_status"        // effect: the tool's own status, if the contract does not have it
	MetaRetryAfter     = "retry_after_ms"     // effect: how long the tool server asked to wait before another request
	MetaEvidence       = "evidence_digest"    // effect that is served: what confirmed it, hex
)

// Values of MetaAttempt.
const (
	AttemptFused    = "fused"    // the EXECUTING entry is itself attempt 1
	AttemptApart    = "apart"    // attempt 1 is a note of its own
	AttemptExternal = "external" // the EXECUTING entry is attempt 1 of a remote executor
	AttemptNone     = "none"     // never reserves its key and is never sent: its effect is served or a refusal
)

// DefaultNamespace is the namespace of a request that names none.
const DefaultNamespace = "default"

// Proposal names a tool, its server and its arguments. Args is a canonical JSON
// object.
type Proposal struct {
	ToolServer string
	ToolName   string
	Args       []byte
}

// ActionRequest asks for one tool call.
type ActionRequest struct {
	AgentID        ID
	RiskLevel      string // READ, WRITE or HIGH_RISK
	Intent         string // 10..1000 characters
	Resources      []Resource
	Proposal       Proposal
	IdempotencyKey string // "" = absent
}

// Risk levels of a request.
const (
	RiskRead  = "READ"
	RiskWrite = "WRITE"
	RiskHigh  = "HIGH_RISK"
)

// Resource is something a request says it touches.
type Resource struct {
	Kind string // repo, doc, service or db
	ID   string
}

// SupervisorDecision answers an ActionRequest, by id and digest.
type SupervisorDecision struct {
	RequestID        ID
	RequestDigest    Digest
	Decision         string // Approve, Deny or NeedsApproval
	Rationale        string // 10..1000 characters
	MintedCapability string // compact JWS, "" = absent
	PolicyHash       Digest // zero = absent
}

// ToolCall is the call as it is sent, bound to its decision by id and digest.
type ToolCall struct {
	DecisionID             ID
	DecisionDigest         Digest
	CapabilityDigest       Digest // zero = absent
	Call                   Proposal
	IdempotencyKey         string
	ToolClass              string // ClassRead, ClassWrite, "" = absent
	ExpectedDocumentHashes []DocumentHash
	BatchTotalBytes        int64 // -1 = absent
}

// Classes of a tool call.
const (
	ClassRead  = "read"
	ClassWrite = "write"
)

// ToolEffect records what a tool call led to, bound to its call by id and digest.
type ToolEffect struct {
	CallID          ID
	CallDigest      Digest
	Outcome         Outcome
	DocumentHashes  []DocumentHash
	BatchTotalBytes int64  // -1 = absent
	ContentHashAlg  string // "sha256", "" = absent
}

// Outcome is the contract's outcome object; its class is in meta.outcome_class.
type Outcome struct {
	Status       string // StatusSuccess, …
	Summary      string // at most 500 characters, "" = absent
	ExternalRefs []ExternalRef
	Error        *OutcomeError
}

// ExternalRef points at something the effect made elsewhere.
type ExternalRef struct {
	Kind string // github_pr, github_issue, doc_id or commit_sha
	ID   string
}

// OutcomeError says why a call did not succeed.
type OutcomeError struct {
	Code      string // ^[A-Z0-9_]+$
	Message   string // at most 200 characters
	Retryable bool
}

// DocumentHash binds a stored document to an artifact.
type DocumentHash struct {
	Pointer   string // PointerResult, …; JSON Pointer, not empty
	Hash      Digest
	SizeBytes int64 // -1 = absent; only in an effect
}

// Pointers of the documents that an effect binds.
const (
	PointerResult       = "/result"          // the tool's whole answer, exact bytes
	PointerReceived     = "/result_received" // a keyed digest of the answer as received, if /result was redacted
	PointerStateChanges = "/state_changes"   // what the call changed
	PointerEvidence     = "/evidence"        // why a resolution or a probe said so
)

// LogEntry is the contract's execution_log_entry.
type LogEntry struct {
	TraceID        ID
	Seq            uint64 // 1 for genesis
	Prev           Digest // zero for genesis
	Digest         Digest // over the canonical entry without entry_digest
	TS             Millis
	From, To       State // genesis: Pending, Pending
	Type           ArtifactType
	ArtifactID     ID
	ArtifactDigest Digest
	ToolCallID     ID     // zero = null
	IdempotencyKey string // "" = null
}

// ExecutionState is the contract's execution_state: derived, never the source of truth.
type ExecutionState struct {
	TraceID, PlanID ID
	Current         State
	LastSeq         uint64 // 0 = empty trace
	LastDigest      Digest
	Digest          Digest // state_digest
}

// Checkpoint is the contract's execution_checkpoint. Seq equals State.LastSeq.
type Checkpoint struct {
	TraceID ID
	Seq     uint64
	State   CheckpointState
	Digest  Digest // over the canonical checkpoint_state
	TS      Millis
}

// CheckpointState is the sealed part of a checkpoint.
type CheckpointState struct {
	TraceID, PlanID ID
	Current         State
	LastSeq         uint64
	LastDigest      Digest
}

// Note is a chained statement about a trace that is not one of its transitions.
type Note struct {
	TraceID    ID
	Number     uint32 // from 1
	Prev       Digest // digest of the note before, zero for the first
	HeadDigest Digest // entry_digest of the trace's head when it was written
	TS         Millis
	Kind       NoteKind
	Who        string // who says so; 1..255 characters
	Body       []byte // canonical JSON object
	Digest     Digest // over the canonical note without note_digest
}

// NoteKind says what a note's body holds (docs/FORMAT.md lists the members).
type NoteKind string

// Kinds of notes.
const (
	NoteAttempt   NoteKind = "attempt"    // a send is about to be made: {attempt, epoch, executor, permit_digest?, begin_id?}
	NoteNotSent   NoteKind = "not_sent"   // attempt n was not sent: {attempt, reason}
	NoteLicence   NoteKind = "licence"    // the tool's licence when attempt n was made, if it had changed, or the licence that a person set for the attempt: {attempt, licence, reason?}
	NoteLateReply NoteKind = "late_reply" // a reply that came after the trace was terminal: {attempt, outcome, result_digest}

	NoteAppended NoteKind = "appended" // who appended these entries over the socket, with artifacts of its own making: {first_seq, last_seq}
	NoteDoubt    NoteKind = "doubt"    // why attempt n has no certain answer: {attempt, cause, code}

	NoteVote         NoteKind = "vote"         // a person approves or rejects a pending request: {approve, rationale}
	NoteAskedAgain   NoteKind = "asked_again"  // the tool's definition changed and the votes are void: {tool_schema_digest, void, was}
	NoteProbe        NoteKind = "probe"        // a tool server was asked about a call in doubt: {answer, attempt, evidence_digest?, fenced, next?, source?}
	NoteConfirmation NoteKind = "confirmation" // recorded changes were verified in the world: {checked, evidence_digest, finding, mismatch_digest?, mismatches, unchecked}
	NoteRetry        NoteKind = "retry"        // a new attempt is due: {due, number}
	NoteErased       NoteKind = "erased"       // what the entries carried was erased: {entries, reason}
	NoteCompensated  NoteKind = "compensated"  // another trace undid the effect: {effect_digest, trace_id}
)
