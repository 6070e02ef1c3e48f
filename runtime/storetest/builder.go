package storetest

import (
	"encoding/hex"
	"testing"

	"github.com/google/uuid"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Builder mints the artifacts of one valid trace. Change its fields before the first
// Mint. Each Mint links to the artifacts minted before it, and fails the test if an
// artifact breaks the contract.
type Builder struct {
	TB              testing.TB
	TraceID, PlanID tga.ID
	TS              tga.Millis
	Namespace       string     // "" = none in the request
	Deadline        tga.Millis // 0 = none in the request
	RetryOf         tga.ID     // zero = none in the request
	TakesOver       tga.ID     // retry_of of the call; zero = none
	Proposal        tga.Proposal
	Key             string

	Request, Decision, Call, Effect *tga.Artifact // as minted
}

// NewID returns a new UUIDv7.
func NewID() tga.ID { return tga.ID(uuid.Must(uuid.NewV7())) }

// New returns a Builder for a new trace with a key of its own: a charge of 5 at the
// server payments.
func New(tb testing.TB) *Builder {
	id := NewID()
	return &Builder{
		TB: tb, TraceID: id, PlanID: NewID(), TS: 1_768_503_600_000,
		Proposal: tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{"amount":5}`)},
		Key:      "key-" + id.String(),
	}
}

// Again returns a Builder for a new trace of the same logical call: same key, same
// request.
func (b *Builder) Again() *Builder {
	n := New(b.TB)
	n.Namespace, n.Proposal, n.Key = b.Namespace, b.Proposal, b.Key
	return n
}

// MintRequest mints the action_request.
func (b *Builder) MintRequest() *tga.Artifact {
	meta := tga.Meta{}
	if b.Namespace != "" {
		meta[tga.MetaNamespace] = b.Namespace
	}
	if b.Deadline != 0 {
		meta[tga.MetaDeadline] = b.Deadline.String()
	}
	if !b.RetryOf.IsZero() {
		meta[tga.MetaRetryOf] = b.RetryOf.String()
	}
	b.Request = b.Mint(&tga.Artifact{Type: tga.RequestType, Meta: meta, Request: &tga.ActionRequest{
		AgentID: NewID(), RiskLevel: tga.RiskWrite, Intent: "charge the customer once",
		Resources: []tga.Resource{{Kind: "service", ID: "payments"}},
		Proposal:  b.Proposal, IdempotencyKey: b.Key,
	}})
	return b.Request
}

// MintDecision mints the supervisor_decision: tga.Approve or tga.Deny.
func (b *Builder) MintDecision(verdict string) *tga.Artifact {
	b.Decision = b.Mint(&tga.Artifact{Type: tga.DecisionType, Decision: &tga.SupervisorDecision{
		RequestID: b.Request.ID, RequestDigest: b.Request.Digest,
		Decision: verdict, Rationale: "decided by the test's rules",
	}})
	return b.Decision
}

// MintCall mints the tool_call with the given meta.attempt, "" for none.
func (b *Builder) MintCall(attempt string) *tga.Artifact {
	meta := tga.Meta{}
	if attempt != "" {
		meta[tga.MetaAttempt] = attempt
	}
	if !b.TakesOver.IsZero() {
		meta[tga.MetaRetryOf] = b.TakesOver.String()
	}
	if attempt == tga.AttemptExternal {
		meta[tga.MetaPermitDigest] = tga.Sum(b.TraceID[:]).String()
	}
	b.Call = b.Mint(&tga.Artifact{Type: tga.CallType, Meta: meta, Call: &tga.ToolCall{
		DecisionID: b.Decision.ID, DecisionDigest: b.Decision.Digest,
		Call: b.Proposal, IdempotencyKey: b.Key, ToolClass: tga.ClassWrite, BatchTotalBytes: -1,
	}})
	return b.Call
}

// MintEffect mints the tool_effect: result is the tool's answer, nil for none; code
// is that of outcome.error, "" for none; meta is added.
func (b *Builder) MintEffect(status, code string, result []byte, meta tga.Meta) chain.NewArtifact {
	e := &tga.ToolEffect{
		CallID: b.Call.ID, CallDigest: b.Call.Digest,
		Outcome: tga.Outcome{Status: status}, BatchTotalBytes: -1,
	}
	if code != "" {
		e.Outcome.Error = &tga.OutcomeError{Code: code, Message: "as the test wants it"}
	}
	var docs []chain.Document
	if result != nil {
		docs = []chain.Document{{Pointer: tga.PointerResult, Data: result}}
		e.ContentHashAlg = "sha256"
		e.DocumentHashes = []tga.DocumentHash{{Pointer: tga.PointerResult, Hash: tga.Sum(result), SizeBytes: int64(len(result))}}
	}
	b.Effect = b.Mint(&tga.Artifact{Type: tga.EffectType, Meta: meta, Effect: e})
	return chain.NewArtifact{Artifact: b.Effect, Documents: docs}
}

// Mint completes and seals any artifact of the trace.
func (b *Builder) Mint(a *tga.Artifact) *tga.Artifact {
	b.TB.Helper()
	if a.ID.IsZero() {
		a.ID = NewID()
	}
	a.TraceID, a.PlanID, a.TS = b.TraceID, b.PlanID, b.TS
	if a.Meta == nil {
		a.Meta = tga.Meta{}
	}
	nonce := NewID()
	a.Meta[tga.MetaNonce] = hex.EncodeToString(nonce[:])
	if err := a.Seal(); err != nil {
		b.TB.Fatalf("mint %v: %v", a.Type, err)
	}
	return a
}

// Begin mints request, approval and call, sent as attempt says, in one batch.
func (b *Builder) Begin(attempt string) chain.Batch {
	return Batch(b.MintRequest(), b.MintDecision(tga.Approve), b.MintCall(attempt))
}

// Approved mints request and approval in one batch.
func (b *Builder) Approved() chain.Batch {
	return Batch(b.MintRequest(), b.MintDecision(tga.Approve))
}

// End mints the effect of a call that succeeded or failed.
func (b *Builder) End(status string) chain.Batch {
	code := ""
	if status != tga.StatusSuccess {
		code = string(tga.ToolError)
	}
	return chain.Batch{Artifacts: []chain.NewArtifact{b.MintEffect(status, code, []byte(`{"ok":1}`), nil)}}
}

// Serve mints a call that is never sent and its effect, served from another trace.
func (b *Builder) Serve(from tga.ID, status string) chain.Batch {
	code := ""
	if status != tga.StatusSuccess {
		code = string(tga.ToolError)
	}
	call := b.MintCall(tga.AttemptNone)
	effect := b.MintEffect(status, code, nil, tga.Meta{tga.MetaReplayedFrom: from.String()})
	return chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: call}, effect}}
}

// Refuse mints a call that is never sent and the error that refuses it.
func (b *Builder) Refuse(code tga.Code) chain.Batch {
	call := b.MintCall(tga.AttemptNone)
	return chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: call}, b.MintEffect(tga.StatusError, string(code), nil, nil)}}
}

// Batch makes a batch of artifacts without documents.
func Batch(artifacts ...*tga.Artifact) chain.Batch {
	var b chain.Batch
	for _, a := range artifacts {
		b.Artifacts = append(b.Artifacts, chain.NewArtifact{Artifact: a})
	}
	return b
}
