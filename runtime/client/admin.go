package client

import (
	"context"
	"net/url"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/schemas/wire"
)

// Append appends artifacts to a trace. If they are in the log already, Appended.Replayed is set.
func (c *Client) Append(ctx context.Context, trace tga.ID, req wire.AppendRequest) (wire.Appended, error) {
	var a wire.Appended
	err := c.ask(ctx, post(tracePath(trace, "/entries"), req), &a)
	return a, err
}

// AppendBatch makes many appends in one request. Each append has its own answer; a refused
// append does not prevent the others.
func (c *Client) AppendBatch(ctx context.Context, items []wire.BatchItem) ([]wire.BatchAnswer, error) {
	var a wire.BatchAnswers
	err := c.ask(ctx, post("/v1/entries:batch", wire.BatchRequest{Items: items}), &a)
	return a.Items, err
}

// Lease takes the lease of a trace for the time ttl; zero means the daemon's default. While
// somebody else holds it, Lease waits until ctx ends; with a ctx without a deadline it does not wait.
func (c *Client) Lease(ctx context.Context, trace tga.ID, ttl time.Duration) (wire.Lease, error) {
	return askLease(ctx, c, trace, "/lease", wire.LeaseRequest{TTLMS: ttl.Milliseconds()})
}

// Renew extends a lease.
func (c *Client) Renew(ctx context.Context, lease wire.Lease, ttl time.Duration) (wire.Lease, error) {
	return askLease(ctx, c, lease.TraceID, "/lease:renew", wire.LeaseRequest{Lease: lease.Lease, TTLMS: ttl.Milliseconds()})
}

// Release ends a lease. Releasing one that has ended already has no effect.
func (c *Client) Release(ctx context.Context, lease wire.Lease) (wire.Released, error) {
	var r wire.Released
	err := c.ask(ctx, post(tracePath(lease.TraceID, "/lease:release"), wire.LeaseRequest{Lease: lease.Lease}), &r)
	return r, err
}

func askLease(ctx context.Context, c *Client, trace tga.ID, rest string, req wire.LeaseRequest) (wire.Lease, error) {
	var l wire.Lease
	err := c.ask(ctx, post(tracePath(trace, rest), req), &l)
	return l, err
}

// Checkpoint seals the head of a trace, under a lease or, with a zero Lease, under one
// that the daemon takes for the moment.
func (c *Client) Checkpoint(ctx context.Context, trace tga.ID, lease wire.Lease) (tga.Checkpoint, error) {
	return checkpointOf(ctx, c, post(tracePath(trace, "/checkpoint"), wire.CheckpointRequest{Lease: lease.Lease}))
}

// LatestCheckpoint returns the newest checkpoint that verifies; NOT_FOUND if there is
// none.
func (c *Client) LatestCheckpoint(ctx context.Context, trace tga.ID) (tga.Checkpoint, error) {
	return checkpointOf(ctx, c, get(tracePath(trace, "/checkpoint")))
}

func checkpointOf(ctx context.Context, c *Client, r request) (tga.Checkpoint, error) {
	raw, _, err := c.bytes(ctx, r)
	if err != nil {
		return tga.Checkpoint{}, err
	}
	cp, err := tga.DecodeCheckpoint(raw)
	if err != nil {
		return tga.Checkpoint{}, err
	}
	return *cp, nil
}

// RecoverAll recovers every open trace that no live process is executing.
func (c *Client) RecoverAll(ctx context.Context) ([]wire.RecoveredTrace, error) {
	var r wire.Recovered
	err := c.ask(ctx, post("/v1/recover", nil), &r)
	return r.Traces, err
}

// InDoubt lists the calls that may have run and have no recorded effect.
func (c *Client) InDoubt(ctx context.Context) ([]wire.OpenTrace, error) {
	var t wire.Traces
	err := c.ask(ctx, get("/v1/in-doubt"), &t)
	return t.Traces, err
}

// Request returns the request of a trace: the call, and what it is for. If the request is erased, all
// of its fields are empty.
func (c *Client) Request(ctx context.Context, id tga.ID) (*tga.Artifact, error) {
	for e, err := range c.Entries(ctx, id, 0, false) {
		if err != nil {
			return nil, err
		}
		if len(e.Artifact) == 0 {
			break
		}
		a, err := tga.DecodeArtifact(e.Artifact, tga.Limits{MaxBytes: tga.MostBytes, MaxDepth: tga.MostDepth})
		if err != nil {
			return nil, err
		}
		if a.Type == tga.RequestType {
			return a, nil
		}
	}
	return &tga.Artifact{TraceID: id, Type: tga.RequestType, Request: &tga.ActionRequest{}}, nil
}

// Approvals lists what waits for people. If the error is a [runtime.UnreadApprovals], the list has all that the
// daemon can read now.
func (c *Client) Approvals(ctx context.Context) ([]wire.Approval, error) {
	var a wire.Approvals
	if err := c.ask(ctx, get("/v1/approvals"), &a); err != nil {
		return nil, err
	}
	var unread runtime.UnreadApprovals
	for _, u := range a.Unread {
		unread = append(unread, tga.Errorf(u.Code, "%s", u.Detail).In(u.TraceID))
	}
	if len(unread) > 0 {
		return a.Approvals, unread
	}
	return a.Approvals, nil
}

// RollbackPlan says what undoing a set of traces would do; see
// [runtime.Runtime.RollbackPlan].
func (c *Client) RollbackPlan(ctx context.Context, traces []tga.ID) ([]wire.RollbackStep, error) {
	r := get("/v1/rollback-plan")
	r.query = url.Values{}
	for _, id := range traces {
		r.query.Add("trace", id.String())
	}
	var p wire.RollbackPlan
	err := c.ask(ctx, r, &p)
	return p.Steps, err
}

// Evidence returns the stored bytes that have a digest, and checks the digest. trace is a trace
// whose log names the digest; a peer that is bound to no namespace may leave it out.
func (c *Client) Evidence(ctx context.Context, digest tga.Digest, trace tga.ID) ([]byte, error) {
	named := ""
	if !trace.IsZero() {
		named = trace.String()
	}
	raw, _, err := c.bytes(ctx, get("/v1/evidence/"+digest.String(), "trace", named))
	if err != nil {
		return nil, err
	}
	if got := tga.Sum(raw); got != digest {
		e := tga.Errorf(tga.StateChecksumMismatch, "evidence of %d bytes has another digest than was asked for", len(raw))
		e.WantDigest, e.GotDigest, e.Where = digest, got, "given"
		return nil, e
	}
	return raw, nil
}

// Verify checks one trace, or with a zero id the whole store. Its findings are in the answer, not
// in the error.
func (c *Client) Verify(ctx context.Context, trace tga.ID) (wire.Verified, error) {
	var v wire.Verified
	err := c.ask(ctx, post("/v1/verify", wire.VerifyRequest{TraceID: trace}), &v)
	return v, err
}

// Working lists the long tasks that the daemon is running: verifications and backups.
func (c *Client) Working(ctx context.Context) ([]wire.Work, error) {
	var m wire.Working
	err := c.ask(ctx, get("/v1/working"), &m)
	return m.Work, err
}

// Backup copies the store into a directory of the daemon's file system: a new directory, or one
// that has a backup of the store already, to which it adds what is new.
func (c *Client) Backup(ctx context.Context, dir string) error {
	return c.ask(ctx, post("/v1/backup", wire.BackupRequest{Dir: dir}), nil)
}

// Seal moves the traces that ended before a time (zero: now) into segments.
func (c *Client) Seal(ctx context.Context, before tga.Millis) (wire.Sealed, error) {
	var s wire.Sealed
	err := c.ask(ctx, post("/v1/seal", wire.SealRequest{Before: before}), &s)
	return s, err
}

// Erase destroys the content of finished traces. What proves that they existed stays.
func (c *Client) Erase(ctx context.Context, what wire.EraseRequest) (wire.Erased, error) {
	var e wire.Erased
	err := c.ask(ctx, post("/v1/erase", what), &e)
	return e, err
}

// Unfreeze opens a frozen store to writes.
func (c *Client) Unfreeze(ctx context.Context, acceptLoss bool) error {
	return c.ask(ctx, post("/v1/unfreeze", wire.UnfreezeRequest{AcceptLoss: acceptLoss}), nil)
}

// EndQuarantine ends the quarantine of a store that was unfrozen or restored.
func (c *Client) EndQuarantine(ctx context.Context) error {
	return c.ask(ctx, post("/v1/end-quarantine", nil), nil)
}

// Live returns nil while a restart of the daemon would not help.
func (c *Client) Live(ctx context.Context) error { return c.ask(ctx, get("/livez"), nil) }

// Healthy returns nil while the store is not poisoned and no acknowledged records are known to
// be missing.
func (c *Client) Healthy(ctx context.Context) error { return c.ask(ctx, get("/healthz"), nil) }

// Ready returns nil once the daemon has classified every open trace.
func (c *Client) Ready(ctx context.Context) error { return c.ask(ctx, get("/readyz"), nil) }

// Metrics returns the daemon's metrics in Prometheus' text form.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	raw, _, err := c.bytes(ctx, get("/metrics"))
	return raw, err
}

// OpenAPI returns the daemon's own description of its routes.
func OpenAPI(ctx context.Context, c *Client) ([]byte, error) {
	raw, _, err := c.bytes(ctx, get("/openapi.yaml"))
	return raw, err
}
