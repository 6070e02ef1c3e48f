package chain

import (
	"fmt"

	"github.com/tgad/tgad/schemas/tga"
)

// checkMembers compares the members that entry and artifact have in common.
func (t *Trace) checkMembers(e *Entry) error {
	if e.TraceID != t.ID {
		return t.fault(tga.SchemaViolation, e.Seq, "append seq %d: entry of trace %s", e.Seq, e.TraceID).At("/trace_id")
	}
	wantCall := e.Type == tga.CallType || e.Type == tga.EffectType
	if !wantCall && !e.ToolCallID.IsZero() {
		return t.fault(tga.SchemaViolation, e.Seq, "append seq %d: %s entry with tool_call_id %s, want null",
			e.Seq, e.Type, e.ToolCallID).At("/tool_call_id")
	}
	a := e.Artifact
	if a == nil {
		return nil
	}
	switch {
	case a.Type != e.Type:
		return t.differs(e, "artifact_type", a.Type, e.Type)
	case a.ID != e.ArtifactID:
		return t.differs(e, "artifact_id", a.ID, e.ArtifactID)
	case a.TraceID != t.ID:
		return t.differs(e, "trace_id", a.TraceID, t.ID)
	case !t.PlanID.IsZero() && a.PlanID != t.PlanID:
		return t.differs(e, "plan_id", a.PlanID, t.PlanID)
	case wantCall && toolCallID(a) != e.ToolCallID:
		return t.differs(e, "tool_call_id", toolCallID(a), e.ToolCallID)
	case e.IdempotencyKey != t.entryKey(a) && (e.IdempotencyKey != "" || e.Type == tga.CallType):
		// A caller's own entry may leave the key null unless the artifact is the call: a
		// ledger is rebuilt from the call's entry only.
		return t.differs(e, "idempotency_key", quoted(t.entryKey(a)), quoted(e.IdempotencyKey))
	}
	return nil
}

// checkLinks checks that the artifact names the one before it, by id and by digest,
// and that the call is the one that was asked for and approved.
//
// Ids and digests are compared with the trace's entries, which stay when an artifact is
// erased. A check that needs an erased artifact itself is skipped.
// A wrong digest is STATE_CHECKSUM_MISMATCH; everything else is SCHEMA_VIOLATION
// with a pointer into the artifact.
func (t *Trace) checkLinks(e *Entry) error {
	a := e.Artifact
	if a == nil {
		return nil
	}
	switch e.Type {
	case tga.DecisionType:
		return t.checkNames(e, tga.RequestType, "action_request", a.Decision.RequestID, a.Decision.RequestDigest)
	case tga.CallType:
		if err := t.checkNames(e, tga.DecisionType, "supervisor_decision", a.Call.DecisionID, a.Call.DecisionDigest); err != nil {
			return err
		}
		if err := t.checkCapability(e); err != nil {
			return err
		}
		return t.checkProposal(e)
	case tga.EffectType:
		return t.checkNames(e, tga.CallType, "tool_call", a.Effect.CallID, a.Effect.CallDigest)
	}
	return nil
}

func (t *Trace) checkNames(e *Entry, before tga.ArtifactType, member string, id tga.ID, digest tga.Digest) error {
	b := t.entry(before)
	if b == nil { // cannot happen: the machine has refused such an entry before
		return t.fault(tga.StateInvalidTransition, e.Seq, "append seq %d: no %s before it", e.Seq, before)
	}
	if id != b.ArtifactID {
		return t.fault(tga.SchemaViolation, e.Seq, "append seq %d: %s_id is %s, the trace's is %s",
			e.Seq, member, id, b.ArtifactID).At("/" + member + "_id")
	}
	if digest != b.ArtifactDigest {
		return t.mismatch(e.Seq, member+"_digest", b.ArtifactDigest, digest).At("/" + member + "_digest")
	}
	return nil
}

func (t *Trace) checkCapability(e *Entry) error {
	if t.Decision == nil {
		return nil
	}
	const at = "/capability_digest"
	token, got := t.Decision.Decision.MintedCapability, e.Artifact.Call.CapabilityDigest
	switch {
	case token == "" && got.IsZero():
		return nil
	case token == "":
		return t.fault(tga.SchemaViolation, e.Seq, "append seq %d: capability_digest, but the decision minted no capability", e.Seq).At(at)
	case got.IsZero():
		return t.fault(tga.SchemaViolation, e.Seq, "append seq %d: no capability_digest, but the decision minted a capability", e.Seq).At(at)
	case got != tga.Sum([]byte(token)):
		return t.mismatch(e.Seq, "capability_digest", tga.Sum([]byte(token)), got).At(at)
	}
	return nil
}

func (t *Trace) checkProposal(e *Entry) error {
	if t.Request == nil {
		return nil
	}
	asked, call := t.Request.Request, e.Artifact.Call
	if !call.Call.Equal(asked.Proposal) {
		// An approval covers exactly the proposal. If one byte differs, it does not
		// approve this call.
		return t.fault(tga.SchemaViolation, e.Seq, "append seq %d: call %s/%s is not the request's proposal %s/%s",
			e.Seq, call.Call.ToolServer, call.Call.ToolName, asked.Proposal.ToolServer, asked.Proposal.ToolName).At("/call")
	}
	if asked.IdempotencyKey != "" && call.IdempotencyKey != asked.IdempotencyKey {
		return t.fault(tga.SchemaViolation, e.Seq, "append seq %d: idempotency_key %q, the request's is %q",
			e.Seq, call.IdempotencyKey, asked.IdempotencyKey).At("/idempotency_key")
	}
	return nil
}

// toolCallID returns what the tool_call_id of a's entry must be.
func toolCallID(a *tga.Artifact) tga.ID {
	switch a.Type {
	case tga.CallType:
		return a.ID
	case tga.EffectType:
		return a.Effect.CallID
	}
	return tga.ID{}
}

// entryKey returns the idempotency_key of a's entry: the artifact's own, or for an effect the
// key of its call.
func (t *Trace) entryKey(a *tga.Artifact) string {
	switch a.Type {
	case tga.RequestType:
		return a.Request.IdempotencyKey
	case tga.CallType:
		return a.Call.IdempotencyKey
	case tga.EffectType:
		if call := t.entry(tga.CallType); call != nil {
			return call.IdempotencyKey
		}
	}
	return ""
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

func (t *Trace) differs(e *Entry, member string, artifact, entry any) error {
	return t.fault(tga.SchemaViolation, e.Seq, "append seq %d: %s of the artifact is %v, of entry or trace %v",
		e.Seq, member, artifact, entry).At("/" + member)
}

// fault makes an error about the entry seq of the trace.
func (t *Trace) fault(code tga.Code, seq uint64, format string, args ...any) *tga.Error {
	err := tga.Errorf(code, format, args...).In(t.ID)
	err.Seq, err.Where = seq, "given"
	return err
}

func (t *Trace) mismatch(seq uint64, what string, want, got tga.Digest) *tga.Error {
	err := t.fault(tga.StateChecksumMismatch, seq, "append seq %d: %s is %s, want %s", seq, what, got, want)
	err.WantDigest, err.GotDigest = want, got
	return err
}
