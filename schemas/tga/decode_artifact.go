package tga

import "math"

// The members of the four artifacts (docs/FORMAT.md). Each table is the contract:
// what is not in it is refused, and the JSON Schemas in schemas/tga/v1 say the same
// (TestSchemasAgreeWithDecoders).

const (
	artifactSchemaPrefix  = "talos.tga."
	artifactSchemaVersion = "tga.v1"
	digestAlg             = "sha256"
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
		{"schema_version", required, constant[Artifact](artifactSchemaVersion)},
		{"trace_id", required, idAt(func(a *Artifact) *ID { return &a.TraceID })},
		{"plan_id", required, idAt(func(a *Artifact) *ID { return &a.PlanID })},
		{"ts", required, tsAt(func(a *Artifact) *Millis { return &a.TS })},
		{"_digest_alg", required, constant[Artifact](digestAlg)},
		{"_digest", required, digestAt(func(a *Artifact) *Digest { return &a.Digest })},
		{"meta", "", setMeta},
	}
}

func ownID(a *Artifact) *ID { return &a.ID }

func keyAt(at func(*Artifact) *string) func(*decoder, int32, *Artifact) *Error {
	return text(at, 1, maxKey)
}

var artifactFields = [...][]artifactField{
	RequestType: fields(commonFields(RequestType), []artifactField{
		{"action_request_id", required, idAt(ownID)},
		{"agent_id", required, idAt(func(a *Artifact) *ID { return &a.Request.AgentID })},
		{"risk_level", required, oneOf(func(a *Artifact) *string { return &a.Request.RiskLevel }, RiskRead, RiskWrite, RiskHigh)},
		{"intent", required, text(func(a *Artifact) *string { return &a.Request.Intent }, minProse, maxProse)},
		{"resources", required, setResources},
		{"proposal", required, proposalAt(func(a *Artifact) *Proposal { return &a.Request.Proposal })},
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
		{"call", required, proposalAt(func(a *Artifact) *Proposal { return &a.Call.Call })},
		{"idempotency_key", IdempotencyKeyRequired, keyAt(func(a *Artifact) *string { return &a.Call.IdempotencyKey })},
		{"tool_class", "", oneOf(func(a *Artifact) *string { return &a.Call.ToolClass }, ClassRead, ClassWrite)},
		{"expected_document_hashes", "", documentHashesAt(func(a *Artifact) *[]DocumentHash { return &a.Call.ExpectedDocumentHashes }, expectedHashFields)},
		{"batch_total_bytes", "", sizeAt(func(a *Artifact) *int64 { return &a.Call.BatchTotalBytes })},
	}),
	EffectType: fields(commonFields(EffectType), []artifactField{
		{"tool_effect_id", required, idAt(ownID)},
		{"tool_call_id", MissingToolCallID, toolCallIDAt(func(a *Artifact) *ID { return &a.Effect.CallID })},
		{"tool_call_digest", required, digestAt(func(a *Artifact) *Digest { return &a.Effect.CallDigest })},
		{"outcome", required, func(d *decoder, n int32, a *Artifact) *Error {
			return decodeObject(d, n, outcomeFields, &a.Effect.Outcome)
		}},
		{"document_hashes", "", documentHashesAt(func(a *Artifact) *[]DocumentHash { return &a.Effect.DocumentHashes }, documentHashFields)},
		{"batch_total_bytes", "", sizeAt(func(a *Artifact) *int64 { return &a.Effect.BatchTotalBytes })},
		{"content_hash_alg", "", oneOf(func(a *Artifact) *string { return &a.Effect.ContentHashAlg }, digestAlg)},
	}),
}

// toolCallIDAt is idAt, but a null or empty id is a missing one.
func toolCallIDAt[T any](at func(*T) *ID) func(*decoder, int32, *T) *Error {
	set := idAt(at)
	return func(d *decoder, n int32, v *T) *Error {
		node := d.doc.nodes[n]
		if d.isNull(n) || node.kind == kindString && node.start == node.end {
			return Errorf(MissingToolCallID, "tool_call_id is empty")
		}
		return set(d, n, v)
	}
}

func sizeAt[T any](at func(*T) *int64) func(*decoder, int32, *T) *Error {
	return uintAt(at, 0, MaxSafeInteger)
}

var resourceFields = fields([]field[Resource]{
	{"kind", required, oneOf(func(r *Resource) *string { return &r.Kind }, "repo", "doc", "service", "db")},
	{"id", required, text(func(r *Resource) *string { return &r.ID }, 1, math.MaxInt)},
})

func setResources(d *decoder, n int32, a *Artifact) *Error {
	if err := list(d, n, resourceFields, &a.Request.Resources); err != nil {
		return err
	}
	if len(a.Request.Resources) == 0 {
		return violation("want at least one resource")
	}
	return nil
}

// list decodes an array of closed objects. An empty array is not nil, an absent one is.
func list[T any](d *decoder, n int32, table []field[T], at *[]T) *Error {
	items := make([]T, 0, 1)
	err := d.each(n, func(element int32) *Error {
		items = append(items, *new(T))
		return decodeObject(d, element, table, &items[len(items)-1])
	})
	*at = items
	return err
}

var proposalFields = fields([]field[Proposal]{
	{"tool_server", required, word(func(p *Proposal) *string { return &p.ToolServer }, isToolName, "1 to 128 of A-Z a-z 0-9 _ . / -")},
	{"tool_name", required, word(func(p *Proposal) *string { return &p.ToolName }, isToolName, "1 to 128 of A-Z a-z 0-9 _ . / -")},
	{"args", required, func(d *decoder, n int32, p *Proposal) (err *Error) {
		p.Args, err = d.rawObject(n)
		return err
	}},
})

func proposalAt(at func(*Artifact) *Proposal) func(*decoder, int32, *Artifact) *Error {
	return func(d *decoder, n int32, a *Artifact) *Error { return decodeObject(d, n, proposalFields, at(a)) }
}

var expectedHashFields = fields([]field[DocumentHash]{
	{"pointer", required, word(func(h *DocumentHash) *string { return &h.Pointer }, isPointer, "a JSON Pointer that starts with /")},
	{"hash", required, digestAt(func(h *DocumentHash) *Digest { return &h.Hash })},
})

var documentHashFields = fields(expectedHashFields, []field[DocumentHash]{
	{"size_bytes", "", sizeAt(func(h *DocumentHash) *int64 { return &h.SizeBytes })},
})

func documentHashesAt(at func(*Artifact) *[]DocumentHash, table []field[DocumentHash]) func(*decoder, int32, *Artifact) *Error {
	return func(d *decoder, n int32, a *Artifact) *Error {
		items := make([]DocumentHash, 0, 1)
		err := d.each(n, func(element int32) *Error {
			items = append(items, DocumentHash{SizeBytes: -1})
			return decodeObject(d, element, table, &items[len(items)-1])
		})
		*at(a) = items
		return err
	}
}

var outcomeFields = fields([]field[Outcome]{
	{"status", required, oneOf(func(o *Outcome) *string { return &o.Status }, StatusSuccess, StatusFailure, StatusDenied, StatusError)},
	{"summary", "", text(func(o *Outcome) *string { return &o.Summary }, 0, maxSummary)},
	{"external_refs", "", func(d *decoder, n int32, o *Outcome) *Error { return list(d, n, externalRefFields, &o.ExternalRefs) }},
	{"error", "", func(d *decoder, n int32, o *Outcome) *Error {
		o.Error = new(OutcomeError)
		return decodeObject(d, n, outcomeErrorFields, o.Error)
	}},
})

var externalRefFields = fields([]field[ExternalRef]{
	{"kind", required, oneOf(func(r *ExternalRef) *string { return &r.Kind }, "github_pr", "github_issue", "doc_id", "commit_sha")},
	{"id", required, text(func(r *ExternalRef) *string { return &r.ID }, 1, math.MaxInt)},
})

var outcomeErrorFields = fields([]field[OutcomeError]{
	{"code", required, word(func(e *OutcomeError) *string { return &e.Code }, isErrorCode, "A-Z 0-9 _")},
	{"message", "", text(func(e *OutcomeError) *string { return &e.Message }, 0, maxErrorText)},
	{"retryable", "", func(d *decoder, n int32, e *OutcomeError) (err *Error) {
		e.Retryable, err = d.boolean(n)
		return err
	}},
})

func setMeta(d *decoder, n int32, a *Artifact) *Error {
	if d.doc.nodes[n].kind != kindObject {
		return violation("want an object")
	}
	if !d.checks {
		a.Meta = make(Meta)
	}
	return d.doc.children(n, func(c int32) *Error {
		value, err := d.scalar(c)
		if err != nil {
			return err.under(d.name(c))
		}
		if !d.checks {
			a.Meta[d.name(c)] = value
		}
		return nil
	})
}

// scalar returns the value at n as [Meta] holds it; nil where the decoder only checks.
func (d *decoder) scalar(n int32) (any, *Error) {
	v := d.doc.nodes[n]
	switch {
	case v.kind > kindString:
		return nil, violation("meta holds scalars only")
	case d.checks || d.isNull(n):
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
