// Package travel converts requests and results of package runtime into messages of the daemon's socket, and
// results back. Both client and daemon use it.
package travel

import (
	"encoding/json"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// RequestOf converts a request. It leaves out the submitter, because the daemon takes the peer as submitter.
func RequestOf(req runtime.Request) wire.CallRequest {
	r := wire.CallRequest{
		TraceID: req.TraceID, ToolServer: req.Server, ToolName: req.Tool, Args: req.Args,
		IdempotencyKey: req.Key, Namespace: req.Namespace, PlanID: req.PlanID, AgentID: req.AgentID,
		RiskLevel: req.Risk, Intent: req.Intent, Retry: req.Retry, Fresh: req.Fresh, Meta: req.Meta,
		Replay: req.Replay, Scope: req.Scope, Step: req.Step,
	}
	for _, s := range req.Resources {
		r.Resources = append(r.Resources, wire.Resource(s))
	}
	if !req.Deadline.IsZero() {
		r.Deadline = max(tga.MillisOf(req.Deadline), 1) // 0 would mean that there is none
	}
	return r
}

// OutcomeOf converts a reply. It always sends the answer's bytes in base64, because they need not
// be JSON, and JSON would lose white space at its ends.
func OutcomeOf(r runtime.Reply) wire.Outcome {
	return wire.Outcome{
		Status: r.Status, OutcomeClass: r.Class.String(), Summary: r.Summary,
		ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage, ResultBase64: r.Result,
		ResultBytes: r.ResultBytes, ResultDigest: r.ResultDigest, RetryAfterMS: tga.RetryAfterMS(r.RetryAfter), Changes: r.Changes,
	}
}

// CallOf converts a result, without the tool's answer, which has more than one form.
func CallOf(r runtime.Result) wire.Call {
	c := wire.Call{
		TraceID: r.TraceID, State: r.State.String(), Seq: r.Seq, EntryDigest: r.Digest,
		ToolCallID: r.ToolCallID, IdempotencyKey: r.Key, Attempts: r.Attempts, Sent: r.Sent, ResultBytes: r.ResultBytes, ResultDigest: r.ResultDigest,
		Status: r.Status, OutcomeClass: r.Class.String(), Summary: r.Summary,
		ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage, ToolErrorCode: r.ToolErrorCode, RetryAfterMS: tga.RetryAfterMS(r.RetryAfter), ResolvedBy: r.ResolvedBy, ResolvedVia: r.ResolvedVia, ServedFrom: r.ServedFrom,
		Replayed: r.Replayed, Redacted: r.Redacted, Rationale: r.Rationale, Changes: r.Changes, CompensatedBy: r.CompensatedBy,
	}
	if r.Receipt != nil {
		c.Receipt = wire.Append(nil, r.Receipt)
	}
	if f := r.Confirmation; f != nil {
		c.Confirmation = &wire.Confirmation{
			Checked: f.Checked, Unchecked: f.Unchecked, Skipped: f.Skipped, EvidenceDigest: f.EvidenceDigest, Mismatches: []wire.Mismatch{},
		}
		for _, m := range f.Mismatches {
			c.Confirmation.Mismatches = append(c.Confirmation.Mismatches, wire.Mismatch{Change: m.Change, Finding: m.Finding.String(), Reason: m.Reason})
		}
	}
	return c
}

// ResultOf converts a message back to a result.
func ResultOf(c wire.Call) (runtime.Result, error) {
	r := runtime.Result{
		TraceID: c.TraceID, Seq: c.Seq, Digest: c.EntryDigest, ToolCallID: c.ToolCallID, Key: c.IdempotencyKey,
		Attempts: c.Attempts, Sent: c.Sent, ResultBytes: c.ResultBytes, ResultDigest: c.ResultDigest, Status: c.Status, Value: c.ResultBase64, Summary: c.Summary,
		ErrorCode: c.ErrorCode, ErrorMessage: c.ErrorMessage, ToolErrorCode: c.ToolErrorCode, RetryAfter: tga.ParseRetryAfterMS(c.RetryAfterMS), ResolvedBy: c.ResolvedBy, ResolvedVia: c.ResolvedVia, ServedFrom: c.ServedFrom,
		Replayed: c.Replayed, Redacted: c.Redacted, Rationale: c.Rationale, Changes: c.Changes, CompensatedBy: c.CompensatedBy,
	}
	if c.Result != nil && c.ResultBase64 == nil {
		r.Value = c.Result
	}
	if c.Receipt != nil {
		r.Receipt = new(runtime.Receipt)
		if err := json.Unmarshal(c.Receipt, r.Receipt); err != nil {
			return r, tga.Errorf(tga.SchemaViolation, "receipt: %w", err)
		}
	}
	var err error
	if m := c.Confirmation; m != nil {
		if r.Confirmation, err = confirmationOf(m); err != nil {
			return r, err
		}
	}
	if c.State != "" {
		if r.State, err = tga.ParseState(c.State); err != nil {
			return r, err
		}
	}
	if c.OutcomeClass != "" {
		r.Class, err = ledger.ParseClass(c.OutcomeClass)
	}
	return r, err
}

func confirmationOf(m *wire.Confirmation) (*runtime.Confirmation, error) {
	c := &runtime.Confirmation{
		Checked: m.Checked, Unchecked: m.Unchecked, Skipped: m.Skipped, EvidenceDigest: m.EvidenceDigest,
	}
	for _, x := range m.Mismatches {
		f, ok := findings[x.Finding]
		if !ok {
			return c, tga.Errorf(tga.ValidationError, "confirmation: finding %.40q", x.Finding)
		}
		c.Mismatches = append(c.Mismatches, runtime.Mismatch{Change: x.Change, Finding: f, Reason: x.Reason})
	}
	return c, nil
}

var findings = func() map[string]runtime.Finding {
	all := map[string]runtime.Finding{}
	for _, f := range []runtime.Finding{runtime.CannotTell, runtime.Gone, runtime.Changed} {
		all[f.String()] = f
	}
	return all
}()
