package tga

import (
	"math"
	"strconv"
)

// The members of the four artifacts (docs/FORMAT.md). Each table is the contract: a member
// that is not in it is refused. The JSON Schemas in schemas/tga/v1 agree with the tables
// (TestSchemasAgreeWithDecoders).

const (
	artifactSchemaPrefix = "talos.tga."
	digestAlg            = "sha256"
)

var artifactSchemaIDs = func() (ids [EffectType + 1]string) {
	for t := RequestType; t <= EffectType; t++ {
		ids[t] = artifactSchemaPrefix + t.String()
	}
	return ids
}()

// Bounds of the contracts' strings, in characters.
const (
	minProse     = 10 // intent, rationale
	maxProse     = 1000
	maxKey       = 255 // idempotency_key, who
	maxToolName  = 128
	maxSummary   = 500
	maxErrorText = 200
)

var (
	toolChars  = newCharset("_./-", "AZ", "az", "09")
	errorChars = newCharset("_", "AZ", "09")
	kindChars  = newCharset("_", "az", "09")
)

func isToolName(s string) bool { return toolChars.all(s, 1, maxToolName) }

func isErrorCode(s string) bool { return errorChars.all(s, 1, math.MaxInt) }

func isPointer(s string) bool { return s != "" && s[0] == '/' }

type artifactField = field[Artifact]

const required = SchemaViolation

func commonFields(t ArtifactType) []artifactField {
	return []artifactField{
		{"schema_id", required, constant[Artifact](artifactSchemaIDs[t])},
		{"schema_version", required, constant[Artifact](ArtifactVersion)},
		{"trace_id", required, idAt(func(a *Artifact) *ID { return &a.TraceID })},
		{"plan_id", required, idAt(func(a *Artifact) *ID { return &a.PlanID })},
		{"ts", required, tsAt(func(a *Artifact) *Millis { return &a.TS })},
		{"_digest_alg", required, constant[Artifact](digestAlg)},
		{"_digest", required, digestAt(func(a *Artifact) *Digest { return &a.Digest })},
		{"meta", "", rule[Artifact]{set: setMeta}},
	}
}

func ownID(a *Artifact) *ID { return &a.ID }

func keyAt(at func(*Artifact) *string) rule[Artifact] {
	return text(at, 1, maxKey)
}

var artifactFields = [...][]artifactField{
	RequestType: fields(commonFields(RequestType), []artifactField{
		{"action_request_id", required, idAt(ownID)},
		{"agent_id", required, idAt(func(a *Artifact) *ID { return &a.Request.AgentID })},
		{"risk_level", required, oneOf(func(a *Artifact) *string { return &a.Request.RiskLevel }, RiskRead, RiskWrite, RiskHigh)},
		{"intent", required, text(func(a *Artifact) *string { return &a.Request.Intent }, minProse, maxProse)},
		{"resources", required, listAt(func(a *Artifact) *[]Resource { return &a.Request.Resources }, resourceFields, Resource{}, 1)},
		{"proposal", required, objectAt(func(a *Artifact) *Proposal { return &a.Request.Proposal }, proposalFields)},
		{"idempotency_key", "", keyAt(func(a *Artifact) *string { return &a.Request.IdempotencyKey })},
	}),
	DecisionType: fields(commonFields(DecisionType), []artifactField{
		{"supervisor_decision_id", required, idAt(ownID)},
		{"action_request_id", required, idAt(func(a *Artifact) *ID { return &a.Decision.RequestID })},
		{"action_request_digest", required, digestAt(func(a *Artifact) *Digest { return &a.Decision.RequestDigest })},
		{"decision", required, oneOf(func(a *Artifact) *string { return &a.Decision.Decision }, Approve, Deny, NeedsApproval)},
		{"rationale", required, text(func(a *Artifact) *string { return &a.Decision.Rationale }, minProse, maxProse)},
		{"minted_capability", "", word(func(a *Artifact) *string { return &a.Decision.MintedCapability }, isCompactJWS, "a compact JWS")},
		{"policy_hash", "", digestAt(func(a *Artifact) *Digest { return &a.Decision.PolicyHash })},
	}),
	CallType: fields(commonFields(CallType), []artifactField{
		{"tool_call_id", MissingToolCallID, toolCallIDAt(ownID)},
		{"supervisor_decision_id", required, idAt(func(a *Artifact) *ID { return &a.Call.DecisionID })},
		{"supervisor_decision_digest", required, digestAt(func(a *Artifact) *Digest { return &a.Call.DecisionDigest })},
		{"capability_digest", "", digestAt(func(a *Artifact) *Digest { return &a.Call.CapabilityDigest })},
		{"call", required, objectAt(func(a *Artifact) *Proposal { return &a.Call.Call }, proposalFields)},
		{"idempotency_key", IdempotencyKeyRequired, keyAt(func(a *Artifact) *string { return &a.Call.IdempotencyKey })},
		{"tool_class", "", oneOf(func(a *Artifact) *string { return &a.Call.ToolClass }, ClassRead, ClassWrite)},
		{"expected_document_hashes", "", expectedHashes()},
		{"batch_total_bytes", "", sizeAt(func(a *Artifact) *int64 { return &a.Call.BatchTotalBytes })},
	}),
	EffectType: fields(commonFields(EffectType), []artifactField{
		{"tool_effect_id", required, idAt(ownID)},
		{"tool_call_id", MissingToolCallID, toolCallIDAt(func(a *Artifact) *ID { return &a.Effect.CallID })},
		{"tool_call_digest", required, digestAt(func(a *Artifact) *Digest { return &a.Effect.CallDigest })},
		{"outcome", required, objectAt(func(a *Artifact) *Outcome { return &a.Effect.Outcome }, outcomeFields)},
		{"document_hashes", "", documentHashesAt(func(a *Artifact) *[]DocumentHash { return &a.Effect.DocumentHashes }, documentHashFields)},
		{"batch_total_bytes", "", sizeAt(func(a *Artifact) *int64 { return &a.Effect.BatchTotalBytes })},
		{"content_hash_alg", "", oneOf(func(a *Artifact) *string { return &a.Effect.ContentHashAlg }, digestAlg)},
	}),
}

// toolCallIDAt is idAt, except that a null, empty or zero id counts as missing.
func toolCallIDAt[T any](at func(*T) *ID) rule[T] {
	r := idAt(at)
	set := r.set
	r.set = func(d *decoder, n int32, v *T) *Error {
		node := d.doc.nodes[n]
		if d.isNull(n) || node.kind == kindString && node.start == node.end {
			return Errorf(MissingToolCallID, "tool_call_id is empty")
		}
		return set(d, n, v)
	}
	r.absent = func(v *T) bool { return at(v).IsZero() }
	return r
}

// sizeAt is a rule for a count of bytes; -1 means that the member is absent.
func sizeAt[T any](at func(*T) *int64) rule[T] {
	r := uintAt(at, 0, MaxSafeInteger)
	r.absent = func(v *T) bool { return *at(v) == -1 }
	return r
}

var resourceFields = fields([]field[Resource]{
	{"kind", required, oneOf(func(r *Resource) *string { return &r.Kind }, "repo", "doc", "service", "db")},
	{"id", required, text(func(r *Resource) *string { return &r.ID }, 1, math.MaxInt)},
})

var proposalFields = fields([]field[Proposal]{
	{"tool_server", required, word(func(p *Proposal) *string { return &p.ToolServer }, isToolName, "1 to 128 of A-Z a-z 0-9 _ . / -")},
	{"tool_name", required, word(func(p *Proposal) *string { return &p.ToolName }, isToolName, "1 to 128 of A-Z a-z 0-9 _ . / -")},
	{"args", required, rawAt(func(p *Proposal) *[]byte { return &p.Args })},
})

var expectedHashFields = fields([]field[DocumentHash]{
	{"pointer", required, word(func(h *DocumentHash) *string { return &h.Pointer }, isPointer, "a JSON Pointer that starts with /")},
	{"hash", required, digestAt(func(h *DocumentHash) *Digest { return &h.Hash })},
})

var documentHashFields = fields(expectedHashFields, []field[DocumentHash]{
	{"size_bytes", "", sizeAt(func(h *DocumentHash) *int64 { return &h.SizeBytes })},
})

func documentHashesAt(at func(*Artifact) *[]DocumentHash, table []field[DocumentHash]) rule[Artifact] {
	return listAt(at, table, DocumentHash{SizeBytes: -1}, 0)
}

// expectedHashes is the rule for hashes of documents that do not exist yet, so they have no size.
func expectedHashes() rule[Artifact] {
	r := documentHashesAt(func(a *Artifact) *[]DocumentHash { return &a.Call.ExpectedDocumentHashes }, expectedHashFields)
	fits := r.fits
	r.fits = func(a *Artifact) *Error {
		if err := fits(a); err != nil {
			return err
		}
		for i, h := range a.Call.ExpectedDocumentHashes {
			if h.SizeBytes != -1 {
				return violation("%d: a document that is expected has no size", h.SizeBytes).under("size_bytes").under(strconv.Itoa(i))
			}
		}
		return nil
	}
	return r
}

var outcomeFields = fields([]field[Outcome]{
	{"status", required, oneOf(func(o *Outcome) *string { return &o.Status }, StatusSuccess, StatusFailure, StatusDenied, StatusError)},
	{"summary", "", text(func(o *Outcome) *string { return &o.Summary }, 0, maxSummary)},
	{"external_refs", "", listAt(func(o *Outcome) *[]ExternalRef { return &o.ExternalRefs }, externalRefFields, ExternalRef{}, 0)},
	{"error", "", rule[Outcome]{
		set: func(d *decoder, n int32, o *Outcome) *Error {
			o.Error = new(OutcomeError)
			return decodeObject(d, n, outcomeErrorFields, o.Error)
		},
		fits:   func(o *Outcome) *Error { return fitsObject(outcomeErrorFields, o.Error) },
		absent: func(o *Outcome) bool { return o.Error == nil },
	}},
})

var externalRefFields = fields([]field[ExternalRef]{
	{"kind", required, oneOf(func(r *ExternalRef) *string { return &r.Kind }, "github_pr", "github_issue", "doc_id", "commit_sha")},
	{"id", required, text(func(r *ExternalRef) *string { return &r.ID }, 1, math.MaxInt)},
})

var outcomeErrorFields = fields([]field[OutcomeError]{
	{"code", required, word(func(e *OutcomeError) *string { return &e.Code }, isErrorCode, "A-Z 0-9 _")},
	{"message", "", text(func(e *OutcomeError) *string { return &e.Message }, 0, maxErrorText)},
	{"retryable", "", rule[OutcomeError]{set: func(d *decoder, n int32, e *OutcomeError) (err *Error) {
		e.Retryable, err = d.boolean(n)
		return err
	}}},
})

func setMeta(d *decoder, n int32, a *Artifact) *Error {
	if d.doc.nodes[n].kind != kindObject {
		return violation("want an object")
	}
	a.Meta = make(Meta)
	return d.doc.children(n, func(c int32) *Error {
		value, err := d.scalar(c)
		if err != nil {
			return err.under(d.name(c))
		}
		a.Meta[d.name(c)] = value
		return nil
	})
}

// scalar returns the value at n as [Meta] holds it.
func (d *decoder) scalar(n int32) (any, *Error) {
	v := d.doc.nodes[n]
	switch {
	case v.kind > kindString:
		return nil, violation("meta holds scalars only")
	case d.isNull(n):
		return nil, nil
	case v.kind == kindString:
		s, _ := d.str(n)
		return s, nil
	case v.kind == kindNumber:
		return Number(d.doc.text[v.start:v.end]), nil
	}
	b, _ := d.boolean(n)
	return b, nil
}
