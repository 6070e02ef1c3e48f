package tga

import (
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
)

// Seal completes an artifact: it checks every member as [DecodeArtifact] would, and sets
// Canonical and Digest. Type, ID, TraceID, PlanID, TS and the typed part that Type names must
// be set. Args and numbers in Meta may be any JSON that passes [Gate]; Seal makes Args
// canonical in place. A nil slice or Meta is left out, an empty one is written as empty.
//
// If Seal fails, Canonical and Digest are unchanged.
func (a *Artifact) Seal() error {
	if err := a.checkPart(); err != nil {
		return err
	}
	if p := a.proposal(); p != nil {
		args, err := canonicalObject(p.Args)
		if err != nil {
			return err.At(a.argsPointer() + err.Pointer)
		}
		p.Args = args
	}
	// An artifact that could not be read again would make its trace unusable for good. So check
	// it with the decoder's own tables before it is written: there is no second list of rules.
	if err := fitsObject(artifactFields[a.Type], a); err != nil {
		err.Where = "given"
		return err
	}
	canonical, digest, err := a.encode()
	if err != nil {
		return err
	}
	assertReadable(canonical)
	a.Canonical, a.Digest = canonical, digest
	return nil
}

// checkPart refuses an artifact whose typed part is not the one its type names.
func (a *Artifact) checkPart() *Error {
	parts := [...]bool{
		RequestType: a.Request != nil, DecisionType: a.Decision != nil,
		CallType: a.Call != nil, EffectType: a.Effect != nil,
	}
	for t, set := range parts[1:] {
		if set != (ArtifactType(t+1) == a.Type) {
			return violation("artifact of type %d: exactly the part of its type must be set", a.Type)
		}
	}
	if a.Type < RequestType || a.Type > EffectType {
		return violation("artifact type %d is not one of the four", a.Type)
	}
	return nil
}

func (a *Artifact) proposal() *Proposal {
	switch a.Type {
	case RequestType:
		return &a.Request.Proposal
	case CallType:
		return &a.Call.Call
	}
	return nil
}

func (a *Artifact) argsPointer() string {
	if a.Type == RequestType {
		return "/proposal/args"
	}
	return "/call/args"
}

// argsDepth is how many objects an artifact has around its args.
const argsDepth = 2

// canonicalObject returns raw, which must be an object, in canonical form. If raw is canonical
// already, it returns raw itself.
func canonicalObject(raw []byte) ([]byte, *Error) {
	doc, err := check(raw, Limits{MaxBytes: MostBytes, MaxDepth: MostDepth - argsDepth})
	if err != nil {
		return nil, err
	}
	defer doc.free()
	if doc.nodes[0].kind != kindObject {
		return nil, violation("want an object")
	}
	if doc.canonical {
		return raw, nil
	}
	return doc.canonicalForm()
}

// encode returns the canonical artifact with its digest filled in, and the digest.
func (a *Artifact) encode() ([]byte, Digest, *Error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	o := newObject((*buf)[:0])
	o.digest("_digest", Digest{})
	o.str("_digest_alg", digestAlg)
	var err *Error
	switch a.Type {
	case RequestType:
		err = a.encodeRequest(&o)
	case DecisionType:
		err = a.encodeDecision(&o)
	case CallType:
		err = a.encodeCall(&o)
	case EffectType:
		err = a.encodeEffect(&o)
	}
	if err != nil {
		return nil, Digest{}, err
	}
	encoded := o.end()
	keep(buf, encoded)
	if len(encoded) > MostBytes {
		return nil, Digest{}, Errorf(LimitExceeded, "the artifact has %d bytes: the limit is %d", len(encoded), MostBytes)
	}
	text, rest, _ := splitDigest(encoded)
	sum := artifactDigest(rest)
	sum.AppendText(text[:0])
	// A copy of exact size: an artifact is kept for long, in caches too.
	return slices.Clip(append([]byte(nil), encoded...)), sum, nil
}

// buffers is a pool of buffers for text that is encoded and then copied or hashed. mostKept
// bounds the capacity of a pooled buffer, in bytes.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const mostKept = 64 << 10

// keep stores the grown buffer in buf, which goes back to the pool, unless it grew too large.
func keep(buf *[]byte, encoded []byte) {
	if cap(encoded) <= mostKept {
		*buf = encoded
	}
}

func (a *Artifact) encodeRequest(o *object) *Error {
	r := a.Request
	o.id("action_request_id", a.ID)
	o.id("agent_id", r.AgentID)
	o.optional("idempotency_key", r.IdempotencyKey)
	o.str("intent", r.Intent)
	if err := a.encodeMeta(o); err != nil {
		return err
	}
	o.id("plan_id", a.PlanID)
	o.proposal("proposal", r.Proposal)
	array(o, "resources", r.Resources, func(o *object, r Resource) {
		o.str("id", r.ID)
		o.str("kind", r.Kind)
	})
	o.str("risk_level", r.RiskLevel)
	a.encodeTail(o)
	o.id("trace_id", a.TraceID)
	o.ts("ts", a.TS)
	return nil
}

func (a *Artifact) encodeDecision(o *object) *Error {
	d := a.Decision
	o.digest("action_request_digest", d.RequestDigest)
	o.id("action_request_id", d.RequestID)
	o.str("decision", d.Decision)
	if err := a.encodeMeta(o); err != nil {
		return err
	}
	o.optional("minted_capability", d.MintedCapability)
	o.id("plan_id", a.PlanID)
	o.optionalDigest("policy_hash", d.PolicyHash)
	o.str("rationale", d.Rationale)
	a.encodeTail(o)
	o.id("supervisor_decision_id", a.ID)
	o.id("trace_id", a.TraceID)
	o.ts("ts", a.TS)
	return nil
}

func (a *Artifact) encodeCall(o *object) *Error {
	c := a.Call
	o.size("batch_total_bytes", c.BatchTotalBytes)
	o.proposal("call", c.Call)
	o.optionalDigest("capability_digest", c.CapabilityDigest)
	array(o, "expected_document_hashes", c.ExpectedDocumentHashes, appendDocumentHash)
	o.optional("idempotency_key", c.IdempotencyKey)
	if err := a.encodeMeta(o); err != nil {
		return err
	}
	o.id("plan_id", a.PlanID)
	a.encodeTail(o)
	o.digest("supervisor_decision_digest", c.DecisionDigest)
	o.id("supervisor_decision_id", c.DecisionID)
	o.toolCallID(a.ID)
	o.optional("tool_class", c.ToolClass)
	o.id("trace_id", a.TraceID)
	o.ts("ts", a.TS)
	return nil
}

func (a *Artifact) encodeEffect(o *object) *Error {
	e := a.Effect
	o.size("batch_total_bytes", e.BatchTotalBytes)
	o.optional("content_hash_alg", e.ContentHashAlg)
	array(o, "document_hashes", e.DocumentHashes, appendDocumentHash)
	if err := a.encodeMeta(o); err != nil {
		return err
	}
	o.outcome(e.Outcome)
	o.id("plan_id", a.PlanID)
	a.encodeTail(o)
	o.digest("tool_call_digest", e.CallDigest)
	o.toolCallID(e.CallID)
	o.id("tool_effect_id", a.ID)
	o.id("trace_id", a.TraceID)
	o.ts("ts", a.TS)
	return nil
}

// encodeTail writes schema_id and schema_version, which stand side by side.
func (a *Artifact) encodeTail(o *object) {
	o.str("schema_id", artifactSchemaIDs[a.Type])
	o.str("schema_version", ArtifactVersion)
}

// nameLists is a pool of lists for the sorted names of one meta.
var nameLists = sync.Pool{New: func() any { return new([]string) }}

func (a *Artifact) encodeMeta(o *object) *Error {
	if a.Meta == nil {
		return nil
	}
	list := nameLists.Get().(*[]string)
	defer nameLists.Put(list)
	names := (*list)[:0]
	for name := range a.Meta {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return compareNames([]byte(x), []byte(y)) })
	defer clear(names) // or the pool would keep the names alive
	*list = names
	o.name("meta")
	o.b = append(o.b, '{')
	for i, name := range names {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		if !utf8.ValidString(name) {
			return notUTF8(name).under("meta")
		}
		o.b = append(appendString(o.b, name), ':')
		switch v := a.Meta[name].(type) {
		case nil:
			o.b = append(o.b, "null"...)
		case bool:
			o.b = strconv.AppendBool(o.b, v)
		case string:
			if !utf8.ValidString(v) {
				return notUTF8(v).under(name).under("meta")
			}
			o.b = appendString(o.b, v)
		case Number:
			number, err := canonicalNumber(string(v))
			if err != nil {
				return err.under(name).under("meta")
			}
			o.b = append(o.b, number...)
		default:
			return violation("meta holds string, bool, nil or Number, not %T", v).under(name).under("meta")
		}
	}
	o.b = append(o.b, '}')
	return nil
}

// canonicalNumber returns the canonical form of one number. The number must be all of s,
// because the result is written between other members unchanged.
func canonicalNumber(s string) ([]byte, *Error) {
	doc, err := check([]byte(s), noLimits)
	if err != nil {
		return nil, err
	}
	defer doc.free()
	if doc.nodes[0].kind != kindNumber {
		return nil, violation("%q is not a number", clip(s))
	}
	return doc.canonicalForm()
}

func (o *object) optionalDigest(name string, d Digest) {
	if !d.IsZero() {
		o.digest(name, d)
	}
}

// size writes a count of bytes unless it is -1.
func (o *object) size(name string, v int64) {
	if v != -1 {
		o.int(name, v)
	}
}

// toolCallID leaves a zero id out, so that a reader refuses it as missing.
func (o *object) toolCallID(id ID) {
	if !id.IsZero() {
		o.id("tool_call_id", id)
	}
}

func (o *object) proposal(name string, p Proposal) {
	o.name(name)
	o.b = p.append(o.b)
}

// array writes a list of objects unless it is nil.
func array[T any](o *object, name string, items []T, members func(*object, T)) {
	if items == nil {
		return
	}
	o.name(name)
	o.b = append(o.b, '[')
	for i, item := range items {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		element := newObject(o.b)
		members(&element, item)
		o.b = element.end()
	}
	o.b = append(o.b, ']')
}

func appendDocumentHash(o *object, h DocumentHash) {
	o.digest("hash", h.Hash)
	o.str("pointer", h.Pointer)
	o.size("size_bytes", h.SizeBytes)
}

func (o *object) outcome(x Outcome) {
	o.name("outcome")
	in := newObject(o.b)
	if e := x.Error; e != nil {
		in.name("error")
		er := newObject(in.b)
		er.str("code", e.Code)
		er.str("message", e.Message)
		er.bool("retryable", e.Retryable)
		in.b = er.end()
	}
	array(&in, "external_refs", x.ExternalRefs, func(o *object, r ExternalRef) {
		o.str("id", r.ID)
		o.str("kind", r.Kind)
	})
	in.str("status", x.Status)
	in.optional("summary", x.Summary)
	o.b = in.end()
}
