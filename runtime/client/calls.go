package client

import (
	"context"
	"errors"
	"time"

	"github.com/tgad/tgad/internal/travel"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Call makes one governed call. Results and errors are those of [runtime.Runtime.Call].
func (c *Client) Call(ctx context.Context, req runtime.Request) (runtime.Result, error) {
	body := travel.RequestOf(req)
	if err := exact(namesOfCall(&body)...); err != nil {
		return runtime.Result{}, err
	}
	return c.call(ctx, post("/v1/tool-calls", body))
}

// Recover continues a trace; see [runtime.Runtime.Recover].
func (c *Client) Recover(ctx context.Context, trace tga.ID) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/recover"), nil))
}

// Begin asks for permission to send a call itself; see [runtime.Runtime.Begin].
func (c *Client) Begin(ctx context.Context, req runtime.BeginRequest) (runtime.Begun, error) {
	var answer wire.Begun
	body := wire.BeginRequest{CallRequest: travel.RequestOf(req.Request), BeginID: req.BeginID, Hint: req.Hint, Delivered: req.Delivered}
	claim(&body, req.Licence)
	if req.Connection != (runtime.Connection{}) {
		c := wire.Connection(req.Connection)
		body.Connection = &c
	}
	if err := exact(namesOfBegin(&body)...); err != nil {
		return runtime.Begun{}, err
	}
	if err := c.ask(ctx, post("/v1/begin", body), &answer); err != nil {
		return runtime.Begun{Result: partialResult(err)}, err
	}
	res, err := travel.ResultOf(answer.Call)
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

// claim puts a licence into a request. Fractions of a millisecond are rounded to the stricter side.
func claim(m *wire.BeginRequest, l *ledger.Licence) {
	if l == nil {
		return
	}
	m.Licence, m.LicenceWindowMS = l.Kind.String(), l.Window.Milliseconds()
	if l.Window > 0 {
		m.LicenceWindowMS = max(m.LicenceWindowMS, 1) // 0 would mean the operator's window
	}
	m.LicenceMaxInFlightMS = (l.MaxInFlight + time.Millisecond - 1).Milliseconds()
}

// Finish records the effect of a begun call; see [runtime.Runtime.Finish]. The daemon takes the
// peer for Who and ignores f.Who.
func (c *Client) Finish(ctx context.Context, trace tga.ID, permit runtime.Permit, f runtime.Finished) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/finish"), wire.FinishRequest{Permit: permit.String(), Outcome: travel.OutcomeOf(f.Reply)}))
}

// NotSent returns a permit and asserts that no byte reached the tool; see [runtime.Runtime.NotSent].
func (c *Client) NotSent(ctx context.Context, trace tga.ID, permit runtime.Permit, reason string, wait time.Duration) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/not-sent"), wire.NotSentRequest{Permit: permit.String(), Reason: reason, RetryAfterMS: tga.RetryAfterMS(wait)}))
}

// Resolve ends a call in doubt with evidence; see [runtime.Runtime.Resolve]. The daemon takes the
// peer for Who and ignores r.Who.
func (c *Client) Resolve(ctx context.Context, trace tga.ID, r runtime.Resolution) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/resolve"), wire.ResolveRequest{Outcome: travel.OutcomeOf(r.Reply), Via: r.Via, EvidenceBase64: r.Evidence, Attempts: r.Attempts}))
}

// Relicense lets the current licence alone decide about a call in doubt; see [runtime.Runtime.Relicense].
func (c *Client) Relicense(ctx context.Context, trace tga.ID, m wire.RelicenseRequest) (wire.Relicensed, error) {
	var r wire.Relicensed
	err := c.ask(ctx, post(tracePath(trace, "/relicense"), m), &r)
	return r, err
}

// Abandon gives a call in doubt up; see [runtime.Runtime.Abandon].
func (c *Client) Abandon(ctx context.Context, trace tga.ID, reason string) (runtime.Result, error) {
	return c.AbandonVia(ctx, trace, "", reason)
}

// AbandonVia is Abandon with a via that the effect records; see [runtime.Runtime.AbandonVia].
func (c *Client) AbandonVia(ctx context.Context, trace tga.ID, via, reason string) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/abandon"), wire.AbandonRequest{Reason: reason, Via: via}))
}

// Delivered says that the whole answer of a call without a key reached its caller; see
// [runtime.Runtime.Delivered].
func (c *Client) Delivered(ctx context.Context, trace tga.ID) error {
	return c.ask(ctx, post(tracePath(trace, "/delivered"), nil), nil)
}

// GiveUp says that the executor has stopped executing its attempt and does not know the
// outcome; see [runtime.Runtime.GiveUp].
func (c *Client) GiveUp(ctx context.Context, trace tga.ID, permit runtime.Permit, cause string, wait time.Duration) error {
	return c.ask(ctx, post(tracePath(trace, "/give-up"), wire.GiveUpRequest{Permit: permit.String(), Cause: cause, RetryAfterMS: tga.RetryAfterMS(wait)}), nil)
}

// Compensate undoes the settled effect of a trace; see [runtime.Runtime.Compensate]. The
// result is that of the undoing trace. The daemon takes the peer for who.
func (c *Client) Compensate(ctx context.Context, trace tga.ID) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/compensate"), nil))
}

// Decide votes on the open question of a trace; see [runtime.Runtime.Decide]. The daemon takes the
// peer for Who.
func (c *Client) Decide(ctx context.Context, trace tga.ID, vote wire.DecideRequest) (runtime.Result, error) {
	return c.call(ctx, post(tracePath(trace, "/decide"), vote))
}

func (c *Client) call(ctx context.Context, r request) (runtime.Result, error) {
	var answer wire.Call
	if err := c.ask(ctx, r, &answer); err != nil {
		return partialResult(err), err
	}
	return travel.ResultOf(answer)
}

// partialResult returns what a refusal says about its call.
func partialResult(err error) runtime.Result {
	if p, ok := ProblemIn(err); ok && p.Call != nil {
		if res, err := travel.ResultOf(*p.Call); err == nil {
			return res
		}
	}
	var e *tga.Error
	if errors.As(err, &e) {
		return runtime.Result{TraceID: e.TraceID}
	}
	return runtime.Result{}
}
