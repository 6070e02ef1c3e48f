package runtime

import (
	"context"
	"strconv"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// retryNumber returns the number of the scheduler's new attempt that a request is, or how often
// the key of a call had been reserved before the call; 0 = none.
func retryNumber(a *tga.Artifact) uint32 {
	if a == nil {
		return 0
	}
	n, ok := a.Meta[tga.MetaRetryNumber].(tga.Number)
	if !ok {
		return 0
	}
	v, err := strconv.ParseUint(string(n), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(v)
}

// external reports whether a remote executor sends, or sent, the call.
func (l *loop) external() bool {
	return l.call != nil && l.call.Meta.String(tga.MetaAttempt) == tga.AttemptExternal
}

// retries makes the scheduled new attempts after failures that permit one.
type retries struct {
	store   Store
	clock   times
	mint    *minter
	timers  *timers
	counts  *counts
	profile ledger.Profile
	calls   driver
}

// retry makes the due new attempt after a retryable failure or a call that was not sent. It is a new trace with
// the same key and request, whose id is derived from the failed trace. After a crash between the attempt
// and the end of its timer, retry finds the new trace and does not make another.
func (r *retries) retry(ctx context.Context, key []byte, failed tga.ID, n uint32) error {
	t, err := r.store.Load(ctx, failed)
	if err != nil {
		return err
	}
	if readable(t) != nil {
		return nil // erased: there is nothing to send
	}
	id := retryID(t)
	_, err = r.store.Load(ctx, id)
	record, rerr := r.store.Record(ctx, ledger.KeyOf(t.Namespace, t.Call))
	if rerr != nil {
		return rerr
	}
	due := tga.CodeOf(err) == tga.NotFound && record != nil && record.TraceID == failed && record.Class.Releases() &&
		!r.clock.over(t.Request.TS, t.Deadline)
	if err != nil && tga.CodeOf(err) != tga.NotFound {
		return err
	}
	if !due {
		return nil // this timer, or a caller that repeated the call, has made it, or it is too late
	}
	if left := r.clock.restsFor(retryAfterOf(t.Effect), t.Effect.TS); left > 0 {
		// The wall clock was set forward since: the timer comes too early, and is tried again.
		return tga.Errorf(tga.RateLimited, "the tool server asks for another %v of rest", left).In(failed)
	}
	req := repeatOf(t)
	req.TraceID, req.Retry = id, true
	req.own = tga.Meta{tga.MetaRetryNumber: attemptNumber(n)}
	if of := t.Request.Meta.String(tga.MetaCompensates); of != "" {
		req.own[tga.MetaCompensates] = of // it undoes the same trace
	}
	l, err := r.calls.start(ctx, req)
	if err != nil {
		return err
	}
	defer r.store.Release(l.lease)
	l.attachments = append(l.attachments, chain.Attachment{Kind: chain.AttachTimer, Key: key})
	if err = r.calls.drive(ctx, l); l.head.Seq != 0 {
		r.counts.retried.Add(1)
	}
	return err
}

// retryID returns the id of the trace that makes a new attempt after a trace that certainly did not run.
func retryID(failed *chain.Trace) tga.ID {
	return derivedID("tgad retry v1", failed.ID, failed.Head.Digest)
}

// repeatOf returns the request of a trace, for a new trace that repeats it.
func repeatOf(t *chain.Trace) Request {
	q := t.Request.Request
	req := Request{
		Server: q.Proposal.ToolServer, Tool: q.Proposal.ToolName, Args: q.Proposal.Args, Key: q.IdempotencyKey,
		Namespace: t.Namespace, PlanID: t.Request.PlanID, AgentID: q.AgentID, Risk: q.RiskLevel,
		Intent: q.Intent, Resources: q.Resources, Submitter: SubmitterOf(t),
	}
	if t.Call != nil {
		req.Key = t.Call.Call.IdempotencyKey
	}
	if t.Deadline != 0 {
		req.Deadline = t.Deadline.Time()
	}
	for name, v := range t.Request.Meta {
		if !ownMeta[name] {
			req.Meta = mergeMeta(req.Meta, tga.Meta{name: v})
		}
	}
	return req
}

// derivedID returns a UUIDv7 that is a function of its arguments. Its time is that of the trace's id.
func derivedID(what string, trace tga.ID, more tga.Digest) tga.ID {
	sum := tga.Sum(append(append([]byte(what+"\x00"), trace[:]...), more[:]...))
	id := tga.ID(sum[:16])
	copy(id[:6], trace[:6])
	return tga.MakeID(id)
}

// schedule stages what an effect's class requires: a timer for a new attempt after a
// retryable failure or a call that was not sent, or a timer for the compensation of a call that
// was partly done. The new attempt is made no earlier than the tool server asked for.
func (r *retries) schedule(l *loop, class ledger.Class, asked time.Duration) error {
	if l.remote != nil || l.external() || isRedacted(l.request) {
		return nil // a remote executor makes its own new attempts; of a redacted call only the caller has the arguments
	}
	switch {
	case class == ledger.ClassNotSent, class == ledger.ClassRetryable && r.profile.NeedsLicence():
		n := retryNumber(l.request) + 1
		if n > uint32(max(l.policy.Retry.Attempts, 0)) {
			return nil
		}
		due, err := r.timers.after(l.policy.Retry, n)
		if err != nil {
			return err
		}
		if due = max(due, tga.MillisOf(r.clock.Now().Add(asked+time.Millisecond-1))); l.deadline != 0 && due >= l.deadline {
			return nil
		}
		note, err := r.mint.note(tga.NoteRetry, whoRuntime, map[string]any{"due": due.String(), "number": n})
		if err != nil {
			return err
		}
		l.notes = append(l.notes, note)
		return l.setTimer(r.clock.now(), due, timer{Kind: timerRetry, Number: n})
	case class == ledger.ClassCompensatable && l.policy.AutoCompensate:
		return l.setTimer(r.clock.now(), r.clock.now(), timer{Kind: timerCompensate})
	}
	return nil
}
