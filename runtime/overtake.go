package runtime

import (
	"context"
	"errors"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// overtake makes the loop of a call that a person settles; t is its trace before. A settlement that ends the call
// for good fences the holder of the trace, whoever that is. A settlement that frees the key for
// another send waits until nobody can be sending.
func (st *settlements) overtake(ctx context.Context, t *chain.Trace, looked uint32, effectOf func(*loop) answer) (*loop, error) {
	trace := t.ID
	seen, err := st.traces.loopOf(chain.Lease{TraceID: trace}, t)
	if err != nil {
		return nil, err
	}
	// Check this before fencing anybody: a call that is not in doubt is left to its run.
	if err := seen.inDoubtNow(); err != nil {
		return nil, err
	}
	if !effectOf(seen).class.Releases() {
		return st.traces.resumeBy(ctx, trace, func() (chain.Lease, error) { return st.store.Overtake(ctx, trace, false) })
	}
	l, err := st.traces.resumeBy(ctx, trace, func() (chain.Lease, error) {
		if seen.sender == OfAnother {
			return st.store.Acquire(ctx, trace) // a peer that sends its own call is alive as long as it holds the lease
		}
		return st.store.Overtake(ctx, trace, true)
	})
	if err != nil || l.state != tga.Executing {
		return l, err
	}
	record, err := st.store.Record(ctx, ledger.KeyOf(l.namespace, l.call))
	if err == nil && record != nil && st.executors.alive(record, l.policy) {
		err = tga.Errorf(tga.StateLockAcquireFailed, "the permit of attempt %d is fresh: its executor may still be sending. Wait, or let it give up", record.Attempts.Count).In(trace)
	}
	if err == nil {
		err = allSeen(record, looked)
	}
	if err != nil {
		st.store.Release(l.lease)
		return nil, err
	}
	return l, nil
}

// allSeen refuses a statement about a call that has other attempts than its author knew of; looked is
// [Resolution.Attempts].
func allSeen(record *ledger.Record, looked uint32) error {
	if record == nil || looked == 0 || record.Attempts.Count == looked {
		return nil
	}
	return tga.Errorf(tga.StateConcurrentExecution, "the call has %d attempts, and you checked when it had %d: check the newest attempt too", record.Attempts.Count, looked).At("/attempts").In(record.TraceID)
}

// inDoubtNow refuses to settle a call that is not EXECUTING.
func (l *loop) inDoubtNow() error {
	if l.state != tga.Executing {
		return tga.Errorf(tga.StateInvalidTransition, "trace is %s: only a call in doubt can be settled", l.state).In(l.lease.TraceID)
	}
	return nil
}

// drive runs the loop. If the run was overtaken, the answer of its tool is evidence all the same. If
// somebody has ended the call meanwhile, drive puts that end into l, and a note keeps the answer. If the
// call is still open, the answer ends it.
func (rt *Runtime) drive(ctx context.Context, l *loop) error {
	err := rt.run(ctx, l)
	if err == nil || rt.store.Current(l.lease) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmWait)
	defer cancel()
	now, nerr := rt.traces.resume(ctx, l.lease.TraceID)
	if nerr != nil {
		return err
	}
	defer rt.store.Release(now.lease)
	if late := l.effect; late != nil && l.head.State == tga.Executing {
		if now.takes(l) {
			nerr = rt.run(ctx, now)
		} else {
			came := answered{late.Effect.Outcome.Status, ledger.ClassOf(late), resultOf(late)}
			nerr = now.noteLate(ctx, rt.mint, now.attempts(), came, whoRuntime)
		}
		if nerr != nil {
			return errors.Join(err, nerr)
		}
	}
	if !now.state.Terminal() {
		return err
	}
	l.head, l.trace, l.state, l.staged = now.head, now.trace, now.state, nil
	l.call, l.effect = now.call, now.effect
	return nil
}

// takes stages the answer of an overtaken run as the effect of a call that is still open. It reports false
// if the answer does not end the call: somebody has ended it, or has sent it again since, and an answer to
// an earlier attempt does not say that the newer one did not run.
func (l *loop) takes(was *loop) bool {
	if l.state != tga.Executing || len(was.staged) != 1 || was.staged[0].Artifact != was.effect ||
		MayAppend(Claim{Subject: AnEffect, Writer: ByProcess, Origin: l.sender}) != nil {
		return false
	}
	if ledger.ClassOf(was.effect).Releases() && (was.trace == nil || was.attempts() != l.attempts()) {
		return false
	}
	l.stopTimer()
	l.attachments, l.notes = append(l.attachments, was.attachments...), was.notes
	l.staged, l.state, l.effect, l.timer = was.staged, was.state, was.effect, was.timer
	return true
}

// answered is the part of a late answer that its note keeps.
type answered struct {
	status string
	class  ledger.Class
	result tga.Digest
}

// resultOf returns the digest of the answer that an effect binds, zero if it has none.
func resultOf(effect *tga.Artifact) tga.Digest {
	for _, h := range effect.Effect.DocumentHashes {
		if h.Pointer == tga.PointerResult {
			return h.Hash
		}
	}
	return tga.Digest{}
}

// noteLate keeps, as a note, an answer that came after the end and differs from the recorded one.
func (l *loop) noteLate(ctx context.Context, m *minter, attempt uint32, a answered, who string) error {
	if l.effect != nil && l.effect.Effect.Outcome.Status == a.status && resultOf(l.effect) == a.result {
		return nil
	}
	note, err := m.note(tga.NoteLateReply, who, map[string]any{
		"attempt": attempt, "outcome": a.status, "class": a.class.String(), "result_digest": a.result.String(),
	})
	if err != nil {
		return err
	}
	return l.append(ctx, chain.Batch{Notes: []chain.NewNote{note}})
}
