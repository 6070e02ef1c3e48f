package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/travel"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// bounded is the context of a call. It ends when the time that the caller gave is over, or, if
// the caller gave none, after the daemon's call timeout. A dispatch continues after that.
func (d *Daemon) bounded(limit time.Duration) (context.Context, context.CancelFunc) {
	life := runtime.WithLife(d.life, d.life)
	if limit > 0 {
		return context.WithTimeout(life, limit)
	}
	ctx, cancel := context.WithCancel(life)
	t := time.AfterFunc(d.conf().Limits.CallTimeout.D, cancel)
	return ctx, func() { t.Stop(); cancel() }
}

// leaseWait is how long a statement about a call, such as finish or resolve, waits for the lease of
// its trace. Another request may hold that lease for a moment, such as a begin of the same key.
const leaseWait = 5 * time.Second

// patient calls f again until it gets a lease that somebody else holds, for up to wait. A context
// with a deadline would not do: its end would also interrupt what f writes under the lease.
func patient[T any](wait time.Duration, f func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) {
		over := time.NewTimer(wait)
		defer over.Stop()
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			v, err := f(ctx)
			if !errors.Is(err, tga.StateLockAcquireFailed) {
				return v, err
			}
			select {
			case <-time.After(pause):
			case <-over.C:
				return v, err
			case <-ctx.Done():
				return v, err
			}
		}
	}
}

// call runs f and answers with the state of the call, also beside an error.
func (q *request) call(namespace string, f func(context.Context) (runtime.Result, error)) (any, error) {
	res, err := run(q, namespace, f)
	c := q.callOf(res)
	if err != nil {
		return nil, callError{err, c}
	}
	return c, nil
}

func (q *request) toolCall() (any, error) {
	var m wire.CallRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	req, err := q.requestOf(m)
	if err != nil {
		return nil, err
	}
	return q.call(req.Namespace, func(ctx context.Context) (runtime.Result, error) { return q.d.rt.Call(ctx, req) })
}

func (q *request) begin() (any, error) {
	var m wire.BeginRequest
	if err := q.decode(&m); err != nil {
		return nil, err
	}
	req, err := q.requestOf(m.CallRequest)
	if err != nil {
		return nil, err
	}
	begin := runtime.BeginRequest{Request: req, BeginID: m.BeginID, Delivered: m.Delivered}
	if m.Connection != nil {
		begin.Connection = runtime.Connection(*m.Connection)
		begin.Connection.Lock = q.peer.ownLock(begin.Connection.Lock)
		begin.Connection.Executor = q.peer.ownLock(begin.Connection.Executor)
	}
	if begin.Licence, err = claimOf(m); err != nil {
		return nil, err
	}
	if err := q.d.tools.Hint(req.Server, req.Tool, m.Hint); err != nil {
		return nil, err
	}
	b, err := run(q, req.Namespace, func(ctx context.Context) (runtime.Begun, error) { return q.d.rt.Begin(ctx, begin) })
	answer := wire.Begun{Standing: string(b.Standing), Call: q.callOf(b.Result), Ask: b.Ask, Since: b.Since}
	answer.Barred = b.Standing == runtime.BeginNeedsApproval && (b.Barred || !q.peer.role.Has(config.Decide))
	if err != nil {
		return nil, callError{err, answer.Call}
	}
	if b.Standing == runtime.BeginSend {
		answer.Attempt, answer.Permit, answer.IdempotencyKey, answer.Args = b.Attempt, b.Permit.String(), b.Key, b.Args
		if b.SendWithin != 0 {
			answer.SendWithinMS = max(b.SendWithin.Milliseconds(), 1) // 0 would be without bound
		}
	}
	if b.Cause != nil {
		cause := problemOf(b.Cause)
		answer.Cause = &cause
	}
	return answer, nil
}

// claimOf is the licence that a program claims for a tool which it runs itself; nil if it claims none.
func claimOf(m wire.BeginRequest) (*ledger.Licence, error) {
	if m.Licence == "" {
		if m.LicenceWindowMS != 0 || m.LicenceMaxInFlightMS != 0 {
			return nil, tga.Errorf(tga.ValidationError, "a time belongs to a licence, and there is none").At("/licence")
		}
		return nil, nil
	}
	kind, err := ledger.ParseLicence(m.Licence)
	if err != nil {
		return nil, err.(*tga.Error).At("/licence")
	}
	const most = int64(math.MaxInt64 / time.Millisecond)
	if max(m.LicenceWindowMS, m.LicenceMaxInFlightMS) > most || min(m.LicenceWindowMS, m.LicenceMaxInFlightMS) < 0 {
		return nil, tga.Errorf(tga.ValidationError, "the time of a licence has 0 to %d milliseconds", most).At("/licence")
	}
	return &ledger.Licence{
		Kind: kind, Window: time.Duration(m.LicenceWindowMS) * time.Millisecond, MaxInFlight: time.Duration(m.LicenceMaxInFlightMS) * time.Millisecond,
	}, nil
}

func (q *request) finish() (any, error) {
	var m wire.FinishRequest
	id, namespace, err := q.decodeAbout(&m)
	if err != nil {
		return nil, err
	}
	permit, err := runtime.ParsePermit(m.Permit)
	if err != nil {
		return nil, err.(*tga.Error).At("/permit")
	}
	reply, err := q.replyOf(m.Outcome)
	if err != nil {
		return nil, err
	}
	return q.call(namespace, patient(leaseWait, func(ctx context.Context) (runtime.Result, error) {
		return q.d.rt.Finish(ctx, id, permit, runtime.Finished{Reply: reply, Who: q.peer.name()})
	}))
}

func (q *request) notSent() (any, error) {
	var m wire.NotSentRequest
	id, namespace, err := q.decodeAbout(&m)
	if err != nil {
		return nil, err
	}
	permit, err := runtime.ParsePermit(m.Permit)
	if err != nil {
		return nil, err.(*tga.Error).At("/permit")
	}
	return q.call(namespace, patient(leaseWait, func(ctx context.Context) (runtime.Result, error) {
		return q.d.rt.NotSent(ctx, id, permit, m.Reason, tga.ParseRetryAfterMS(m.RetryAfterMS))
	}))
}

func (q *request) recover() (any, error) {
	id, namespace, err := q.decodeAbout(&struct{}{})
	if err != nil {
		return nil, err
	}
	return q.call(namespace, func(ctx context.Context) (runtime.Result, error) { return q.d.rt.RecoverFor(ctx, id, q.peer.name()) })
}

func (q *request) decide() (any, error) {
	var m wire.DecideRequest
	id, namespace, err := q.decodeAbout(&m)
	if err != nil {
		return nil, err
	}
	// The voter is the peer: if callers chose the name, one caller could vote twice.
	vote := runtime.Vote{Who: q.peer.name(), Approve: m.Approve, Rationale: m.Rationale, About: m.About}
	return q.call(namespace, func(ctx context.Context) (runtime.Result, error) { return q.d.rt.Decide(ctx, id, vote) })
}

func (q *request) resolve() (any, error) {
	var m wire.ResolveRequest
	id, namespace, err := q.decodeAbout(&m)
	if err != nil {
		return nil, err
	}
	reply, err := q.replyOf(m.Outcome)
	if err != nil {
		return nil, err
	}
	r := runtime.Resolution{Reply: reply, Who: q.peer.name(), Via: m.Via, Attempts: m.Attempts}
	if r.Evidence, err = oneOf("/evidence", m.Evidence, m.EvidenceBase64); err != nil {
		return nil, err
	}
	// Just after a start, recovery holds the lease of each open trace for a moment.
	return q.call(namespace, patient(leaseWait, func(ctx context.Context) (runtime.Result, error) { return q.d.rt.Resolve(ctx, id, r) }))
}

func (q *request) abandon() (any, error) {
	var m wire.AbandonRequest
	id, namespace, err := q.decodeAbout(&m)
	if err != nil {
		return nil, err
	}
	return q.call(namespace, patient(leaseWait, func(ctx context.Context) (runtime.Result, error) {
		return q.d.rt.AbandonVia(ctx, id, q.peer.name(), m.Via, m.Reason)
	}))
}

// decodeAbout decodes the body of a request about an existing trace of the peer's.
func (q *request) decodeAbout(m any) (id tga.ID, namespace string, err error) {
	if err := q.decode(m); err != nil {
		return id, "", err
	}
	if id, err = q.traceID(); err != nil {
		return id, "", err
	}
	t, err := q.trace(id)
	if err != nil {
		return id, "", err
	}
	return id, t.Namespace, nil
}

// requestOf makes the runtime's request of a message. The namespace is the peer's.
func (q *request) requestOf(m wire.CallRequest) (runtime.Request, error) {
	namespace, err := q.peer.namespace(m.Namespace)
	if err != nil {
		return runtime.Request{}, err
	}
	req := runtime.Request{
		TraceID: m.TraceID, Server: m.ToolServer, Tool: m.ToolName, Args: m.Args, Key: m.IdempotencyKey,
		Namespace: namespace, PlanID: m.PlanID, AgentID: m.AgentID, Risk: m.RiskLevel, Intent: m.Intent,
		Retry: m.Retry, Fresh: m.Fresh, Replay: m.Replay, Scope: m.Scope, Step: m.Step, Meta: m.Meta,
		// The kernel's peer, not a name from the body: a submitter must not approve its own request.
		Submitter: q.peer.name(),
	}
	for _, r := range m.Resources {
		req.Resources = append(req.Resources, tga.Resource(r))
	}
	if m.Deadline != 0 {
		req.Deadline = m.Deadline.Time()
	}
	return req, nil
}

// replyOf makes the runtime's reply of an outcome that a peer reports.
func (q *request) replyOf(o wire.Outcome) (runtime.Reply, error) {
	r := runtime.Reply{Status: o.Status, Summary: o.Summary, ErrorCode: o.ErrorCode, ErrorMessage: o.ErrorMessage, RetryAfter: tga.ParseRetryAfterMS(o.RetryAfterMS)}
	var err error
	if o.OutcomeClass != "" {
		if r.Class, err = ledger.ParseClass(o.OutcomeClass); err != nil {
			return r, err.(*tga.Error).At("/outcome_class")
		}
	}
	if r.Result, err = oneOf("/result", o.Result, o.ResultBase64); err != nil {
		return r, err
	}
	if o.ResultDigest.IsZero() != (o.ResultBytes <= 0) || !o.ResultDigest.IsZero() && r.Result != nil {
		return r, tga.Errorf(tga.ValidationError, "result_bytes and result_digest stand together, in place of a result").At("/result_digest")
	}
	if _, err := tga.EncodeStateChanges(o.Changes); err != nil {
		e := err.(*tga.Error)
		return r, e.At("/changes" + strings.TrimPrefix(e.Pointer, tga.PointerStateChanges))
	}
	r.Changes = o.Changes
	r.Truncated, r.ResultBytes, r.ResultDigest = !o.ResultDigest.IsZero(), o.ResultBytes, o.ResultDigest
	return r, nil
}

// oneOf returns a value that came as JSON or as base64. It takes both at once only if [splice] can
// have made them of one answer: the JSON value, and in base64 the same value with white space
// around it. It refuses any other pair.
func oneOf(at string, raw json.RawMessage, encoded []byte) ([]byte, error) {
	switch {
	case encoded == nil:
		return raw, nil
	case raw != nil && !bytes.Equal(bytes.Trim(encoded, jsonSpace), raw):
		return nil, tga.Errorf(tga.ValidationError, "the value is given as JSON and as base64, and the two differ").At(at)
	}
	return encoded, nil
}

const jsonSpace = " \t\r\n"

// callOf makes the message of a result.
func (q *request) callOf(r runtime.Result) wire.Call {
	r.Receipt = proving{q}.wanted(r.TraceID)
	c := travel.CallOf(r)
	c.Result, c.ResultBase64 = splice(r.Value, q.d.conf().Limits.Depth)
	return c
}

// splice returns a tool's answer as JSON if it passes the gate that every message passes
// (docs/FORMAT.md §2). Two parsers could read any other answer differently, so splice returns
// only the bytes of that. If there is white space around the JSON value, which is no part of it,
// splice returns the value and the bytes: the value alone would not be the answer byte for byte.
// [oneOf] is its inverse.
func splice(answer []byte, depth int) (json.RawMessage, []byte) {
	if answer == nil || tga.Gate(answer, tga.Limits{MaxBytes: max(len(answer), 1), MaxDepth: depth}) != nil {
		return nil, answer
	}
	if trimmed := bytes.Trim(answer, jsonSpace); len(trimmed) < len(answer) {
		return trimmed, answer
	}
	return answer, nil
}
