package runtime

import (
	"context"
	"errors"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// records serves recorded effects, and first confirms their changes if that is required.
type records struct {
	store         Store
	confirmations *confirmations
	ends          *ends
	counts        *counts
}

// serve stages and commits the recorded effect of another trace: own ids, the same outcome, and
// the id of the trace whose effect it is. The tool is not contacted.
func (rs *records) serve(ctx context.Context, l *loop, record *ledger.Record) error {
	origin, err := rs.store.Load(ctx, record.TraceID)
	if err != nil {
		return tga.Errorf(codeOr(err, tga.StoreUnavailable), "the recorded effect in trace %s cannot be read: %w", record.TraceID, err).In(l.lease.TraceID)
	}
	if origin.Effect == nil {
		return rs.ends.refuse(ctx, l, tga.IdempotencyKeyExpired, "the key was used by trace %s, whose effect was erased", record.TraceID)
	}
	if origin.Effect.Digest != record.EffectDigest {
		return tga.Errorf(tga.StateChecksumMismatch, "trace %s has another effect than its ledger record says", record.TraceID).In(l.lease.TraceID)
	}
	if l.confirms || l.policy.ConfirmAll {
		l.confirmation, err = rs.confirmations.confirm(ctx, l, origin, record)
		switch {
		case errors.Is(err, tga.ConfirmationMismatch):
			return rs.ends.refuse(ctx, l, tga.ConfirmationMismatch, "%w", err)
		case errors.Is(err, tga.ConfirmationRequired):
			// It waits for a person, durably.
			if cerr := l.commit(ctx); cerr != nil {
				return cerr
			}
			return err
		case err != nil:
			return err
		}
	}
	o := origin.Effect.Effect.Outcome
	w := answer{
		status: o.Status, summary: o.Summary, class: ledger.ClassOf(origin.Effect),
		meta: tga.Meta{tga.MetaReplayedFrom: record.TraceID.String(), tga.MetaReplayedEffect: record.EffectDigest.String()},
	}
	if c := l.confirmation; c != nil && !c.EvidenceDigest.IsZero() {
		w.meta[tga.MetaEvidence] = c.EvidenceDigest.String()
	}
	if by := compensatedBy(origin); !by.IsZero() {
		w.meta[tga.MetaCompensatedBy] = by.String()
	}
	for _, name := range []string{tga.MetaToolErrorCode, tga.MetaToolStatus} {
		if said := origin.Effect.Meta.String(name); said != "" {
			w.meta[name] = said
		}
	}
	if o.Error != nil {
		w.errorCode, w.errorText, w.retryable = o.Error.Code, o.Error.Message, o.Error.Retryable
	}
	if err := rs.ends.stageUnsent(l, w); err != nil {
		return err
	}
	err = l.commit(context.WithoutCancel(ctx))
	if errors.Is(err, tga.StateInvalidTransition) && l.looks < maxLooks {
		// A new attempt took the key after its record was read, so the append wrote
		// nothing. Read the record again.
		l.looks++
		l.unstageUnsent()
		return nil
	}
	if err == nil {
		rs.counts.served.Add(1)
	}
	return err
}

// maxLooks bounds how often a run reads the record of a key again that keeps changing.
const maxLooks = 100

// unstageUnsent removes a staged call that is never sent, with its effect.
func (l *loop) unstageUnsent() {
	l.staged = l.staged[:len(l.staged)-2]
	l.call, l.effect, l.state = nil, nil, tga.Authorized
}
