package client

import (
	"context"
	"errors"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Call makes one governed call. Results and errors are those of [runtime.Runtime.Call].
func (c *Client) Call(ctx context.Context, req runtime.Request) (runtime.Result, error) {
	return c.call(ctx, post("/v1/tool-calls", callRequest(req)))
}

// Recover takes a trace on; see [runtime.Runtime.Recover].
func (c *Client) Recover(ctx context.Context, trace tga.ID) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/recover"), nil))
}

// Begin asks to send a call oneself; see [runtime.Runtime.Begin].
func (c *Client) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	var answer Begun
	body := BeginRequest{CallRequest: callRequest(req.Request), BeginID: req.BeginID, Hint: req.Hint, Delivered: req.Delivered}
	body.claim(req.Licence)
	if req.Connection != (runtime.Connection{}) {
		c := Connection(req.Connection)
		body.Connection = &c
	}
	if err := c.ask(ctx, post("/v1/begin", body), &answer); err != nil {
		return runtime.Begun{Result: partialResult(err)}, err
	}
	res, err := resultOf(answer.Call)
	if err != nil {
		return runtime.Begun{Result: res}, err
	}
	b := runtime.Begun{
		Standing: runtime.Standing(answer.Standing), Result: res,
		Attempt: answer.Attempt, Key: answer.IdempotencyKey, Args: answer.Args,
		SendWithin: time.Duration(answer.SendWithinMS) * time.Millisecond, Ask: answer.Ask, Since: answer.Since, Barred: answer.Barred,
	}
	if answer.Cause != nil {
		b.Cause = answer.Cause.Err()
	}
	if answer.Permit != "" {
		b.Permit, err = runtime.ParsePermit(answer.Permit)
	}
	return b, err
}

// claim puts a licence into a request. What is less than a millisecond is rounded against it.
func (m *BeginRequest) claim(l *ledger.Licence) {
	if l == nil {
		return
	}
	m.Licence, m.LicenceWindowMS = l.Kind.String(), l.Window.Milliseconds()
	if l.Window > 0 {
		m.LicenceWindowMS = max(m.LicenceWindowMS, 1) // 0 would be the operator's
	}
	m.LicenceMaxInFlightMS = (l.MaxInFlight + time.Millisecond - 1).Milliseconds()
}

// Finish records the effect of a begun call; see [runtime.Runtime.Finish]. Who is the
// peer, whatever f.Who says.
func (c *Client) Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/finish"), FinishRequest{Permit: permit.String(), Outcome: outcomeOf(f.Reply)}))
}

// NotSent takes a permit back; see [runtime.Runtime.NotSent].
func (c *Client) NotSent(ctx context.Context, trace tga.ID, permit runtime.Permit, reason string, wait time.Duration) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/not-sent"), NotSentRequest{Permit: permit.String(), Reason: reason, RetryAfterMS: tga.RetryAfterMS(wait)}))
}

// Resolve ends a call in doubt with evidence; see [runtime.Runtime.Resolve]. Who is the
// peer, whatever r.Who says.
func (c *Client) Resolve(ctx context.Context, trace tga.ID, r runtime.Resolution) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/resolve"), ResolveRequest{Outcome: outcomeOf(r.Reply), Via: r.Via, EvidenceBase64: r.Evidence, Attempts: r.Attempts}))
}

// Relicense lets the licence of now hold for a call in doubt; see [runtime.Runtime.Relicense].
func Relicense(ctx context.Context, c *Client, trace tga.ID, m RelicenseRequest) (Relicensed, error) {
	var r Relicensed
	err := c.ask(ctx, post(tracePath(trace, "/relicense"), m), &r)
	return r, err
}

// Abandon gives a call in doubt up; see [runtime.Runtime.Abandon].
func (c *Client) Abandon(ctx context.Context, trace tga.ID, reason string) (runtime.Result, error) {
	return c.AbandonVia(ctx, trace, "", reason)
}

// AbandonVia is Abandon by a way that the record names; see [runtime.Runtime.AbandonVia].
func (c *Client) AbandonVia(ctx context.Context, trace tga.ID, via, reason string) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/abandon"), AbandonRequest{Reason: reason, Via: via}))
}

// Delivered says that the answer of a call without a key of its own reached its caller
// whole; see [runtime.Runtime.Delivered].
func (c *Client) Delivered(ctx context.Context, trace tga.ID) error {
	return c.ask(ctx, post(tracePath(trace, "/delivered"), nil), nil)
}

// GiveUp says that the executor is no longer at its attempt and does not know what became
// of it; see [runtime.Runtime.GiveUp].
func (c *Client) GiveUp(ctx context.Context, trace tga.ID, permit runtime.Permit, cause string, wait time.Duration) error {
	return c.ask(ctx, post(tracePath(trace, "/give-up"), GiveUpRequest{Permit: permit.String(), Cause: cause, RetryAfterMS: tga.RetryAfterMS(wait)}), nil)
}

// Compensate undoes the settled effect of a trace; see [runtime.Runtime.Compensate]. The
// result is of the trace that undoes it. Who is the peer.
func (c *Client) Compensate(ctx context.Context, trace tga.ID) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/compensate"), nil))
}

// Decide votes on what a trace asks people; see [runtime.Runtime.Decide]. Who is the peer.
func (c *Client) Decide(ctx context.Context, trace tga.ID, vote DecideRequest) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/decide"), vote))
}

func (c *Client) call(ctx context.Context, r request) (runtime.Result, error) {
	var answer Call
	if err := c.ask(ctx, r, &answer); err != nil {
		return partialResult(err), err
	}
	return resultOf(answer)
}

// partialResult is what a refusal tells of its call.
func partialResult(err error) runtime.Result {
	if p, ok := ProblemIn(err); ok && p.Call != nil {
		if res, err := resultOf(*p.Call); err == nil {
			return res
		}
	}
	var e *tga.Error
	if errors.As(err, &e) {
		return runtime.Result{TraceID: e.TraceID}
	}
	return runtime.Result{}
}

func callRequest(req runtime.Request) CallRequest {
	r := CallRequest{
		TraceID: req.TraceID, ToolServer: req.Server, ToolName: req.Tool, Args: req.Args,
		IdempotencyKey: req.Key, Namespace: req.Namespace, PlanID: req.PlanID, AgentID: req.AgentID,
		RiskLevel: req.Risk, Intent: req.Intent, Retry: req.Retry, Fresh: req.Fresh, Meta: req.Meta,
		Replay: req.Replay, Scope: req.Scope, Step: req.Step,
	}
	for _, s := range req.Resources {
		r.Resources = append(r.Resources, Resource(s))
	}
	if !req.Deadline.IsZero() {
		r.Deadline = tga.MillisOf(req.Deadline)
	}
	return r
}

// outcomeOf always sends the answer's bytes in base64: they need not be JSON, and where
// they are, white space at their ends would be lost.
func outcomeOf(r runtime.Reply) Outcome {
	return Outcome{
		Status: r.Status, OutcomeClass: r.Class.String(), Summary: r.Summary,
		ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage, ResultBase64: r.Result,
		ResultBytes: r.ResultBytes, ResultDigest: r.ResultDigest, RetryAfterMS: tga.RetryAfterMS(r.RetryAfter), Changes: r.Changes,
	}
}

// CallOf is a result as it travels, without the tool's answer, which has more than one form.
func CallOf(r runtime.Result) Call {
	c := Call{
		TraceID: r.TraceID, State: r.State.String(), Seq: r.Seq, EntryDigest: r.Digest,
		ToolCallID: r.ToolCallID, IdempotencyKey: r.Key, Attempts: r.Attempts, Sent: r.Sent, ResultBytes: r.ResultBytes, ResultDigest: r.ResultDigest,
		Status: r.Status, OutcomeClass: r.Class.String(), Summary: r.Summary,
		ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage, ToolErrorCode: r.ToolErrorCode, RetryAfterMS: tga.RetryAfterMS(r.RetryAfter), ResolvedBy: r.ResolvedBy, ResolvedVia: r.ResolvedVia, ServedFrom: r.ServedFrom,
		Replayed: r.Replayed, Redacted: r.Redacted, Rationale: r.Rationale, Changes: r.Changes, CompensatedBy: r.CompensatedBy,
	}
	if f := r.Confirmation; f != nil {
		c.Confirmation = &Confirmation{
			Checked: f.Checked, Unchecked: f.Unchecked, Skipped: f.Skipped, EvidenceDigest: f.EvidenceDigest, Mismatches: []Mismatch{},
		}
		for _, m := range f.Mismatches {
			c.Confirmation.Mismatches = append(c.Confirmation.Mismatches, Mismatch{Change: m.Change, Finding: m.Finding.String(), Reason: m.Reason})
		}
	}
	return c
}

func resultOf(c Call) (runtime.Result, error) {
	r := runtime.Result{
		TraceID: c.TraceID, Seq: c.Seq, Digest: c.EntryDigest, ToolCallID: c.ToolCallID, Key: c.IdempotencyKey,
		Attempts: c.Attempts, Sent: c.Sent, ResultBytes: c.ResultBytes, ResultDigest: c.ResultDigest, Status: c.Status, Value: c.ResultBase64, Summary: c.Summary,
		ErrorCode: c.ErrorCode, ErrorMessage: c.ErrorMessage, ToolErrorCode: c.ToolErrorCode, RetryAfter: tga.ParseRetryAfterMS(c.RetryAfterMS), ResolvedBy: c.ResolvedBy, ResolvedVia: c.ResolvedVia, ServedFrom: c.ServedFrom,
		Replayed: c.Replayed, Redacted: c.Redacted, Rationale: c.Rationale, Changes: c.Changes, CompensatedBy: c.CompensatedBy,
	}
	if c.Result != nil && c.ResultBase64 == nil {
		r.Value = c.Result
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

func confirmationOf(m *Confirmation) (*runtime.Confirmation, error) {
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
