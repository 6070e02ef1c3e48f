package runtime

import (
	"bytes"
	"context"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// results reads the state of traces from the store. It runs none.
type results struct{ store Store }

// partial returns what is known of a trace that did not reach its end.
func (l *loop) partial() Result {
	r := Result{TraceID: l.lease.TraceID, State: l.head.State, Seq: l.head.Seq, Digest: l.head.Digest, Confirmation: l.confirmation}
	if l.call != nil {
		r.ToolCallID, r.Key = l.call.ID, l.call.Call.IdempotencyKey
	}
	if l.decision != nil {
		r.Rationale = l.decision.Decision.Rationale
	}
	return r
}

func (rs *results) of(ctx context.Context, id tga.ID) (Result, error) {
	t, err := rs.store.Load(context.WithoutCancel(ctx), id)
	if err != nil {
		return Result{TraceID: id}, err
	}
	r, _, err := rs.from(ctx, t)
	return r, err
}

// from makes the result of a trace that was just read or appended to. gone is set if the trace was served the
// effect of another trace that was erased since: the tool's answer lay there alone.
func (rs *results) from(ctx context.Context, t *chain.Trace) (r Result, gone bool, err error) {
	ctx, id := context.WithoutCancel(ctx), t.ID
	r = Result{TraceID: id, State: t.Head.State, Seq: t.Head.Seq, Digest: t.Head.Digest}
	if t.Decision != nil {
		r.Rationale = t.Decision.Decision.Rationale
	}
	if t.Call != nil {
		r.ToolCallID, r.Key = t.Call.ID, t.Call.Call.IdempotencyKey
		r.Attempts, r.Sent = attemptsOf(t)
	}
	if t.Effect == nil {
		return r, gone, nil
	}
	o := t.Effect.Effect.Outcome
	r.Status, r.Summary, r.Class = o.Status, o.Summary, ledger.ClassOf(t.Effect)
	if o.Error != nil {
		r.ErrorCode, r.ErrorMessage = tga.Code(o.Error.Code), o.Error.Message
		r.ToolErrorCode = t.Effect.Meta.String(tga.MetaToolErrorCode)
	}
	documents, answered := t.Documents, t
	if from := t.Effect.Meta.String(tga.MetaReplayedFrom); from != "" {
		// A served effect names its origin and does not repeat its bytes.
		if r.ServedFrom, err = tga.ParseID(from); err != nil {
			return r, gone, err
		}
		origin, err := rs.store.Load(ctx, r.ServedFrom)
		if err != nil {
			return r, gone, tga.Errorf(codeOr(err, tga.StoreUnavailable), "the served effect in trace %s cannot be read: %w", from, err).In(id)
		}
		documents, answered = origin.Documents, origin
	}
	if answered.Effect != nil {
		r.Redacted = isRedacted(answered.Effect)
		r.RetryAfter = retryAfterOf(answered.Effect)
		r.ResolvedBy = answered.Effect.Meta.String(tga.MetaResolvedBy)
		r.ResolvedVia = answered.Effect.Meta.String(tga.MetaResolvedVia)
	}
	gone = answered.Effect == nil
	by := compensatedBy(t)
	if id := t.Effect.Meta.String(tga.MetaCompensatedBy); id != "" {
		if by, err = tga.ParseID(id); err != nil {
			return r, gone, err
		}
	}
	if !by.IsZero() {
		r.CompensatedBy, r.Class = by, ledger.ClassCompensated
	}
	for _, d := range documents {
		switch {
		case d.Pointer == tga.PointerResult && !d.Erased:
			r.Value = bytes.Clone(d.Data) // the store keeps its own for others
		case d.Pointer == tga.PointerResult:
			kept := hashOf(answered.Effect, tga.PointerResult)
			r.ResultBytes, r.ResultDigest = kept.SizeBytes, kept.Hash
		case d.Pointer == tga.PointerStateChanges && !d.Erased:
			if r.Changes, err = tga.DecodeStateChanges(d.Data); err != nil {
				return r, gone, err
			}
		}
	}
	return r, gone, nil
}

// hashOf returns the hash by which an effect binds a document; zero if it does not bind it.
func hashOf(effect *tga.Artifact, pointer string) tga.DocumentHash {
	if effect != nil {
		for _, h := range effect.Effect.DocumentHashes {
			if h.Pointer == pointer {
				return h
			}
		}
	}
	return tga.DocumentHash{}
}

// unfinished returns what is known of a trace whose run ended with an error.
func (rs *results) unfinished(ctx context.Context, l *loop) Result {
	r := l.partial()
	if l.head.State != tga.Executing {
		return r
	}
	if t, err := rs.store.Load(context.WithoutCancel(ctx), l.lease.TraceID); err == nil { // if the store fails, the run's own error says so
		r.Attempts, r.Sent = attemptsOf(t)
	}
	return r
}

// lastHeard returns the time of a trace's last entry.
func (rs *results) lastHeard(ctx context.Context, trace tga.ID) (tga.Millis, error) {
	t, err := rs.store.Load(ctx, trace)
	if err != nil || len(t.Entries) == 0 {
		return 0, err
	}
	return t.Entries[len(t.Entries)-1].TS, nil
}
