package runtime

import (
	"context"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// traces makes loops of the traces that the store has.
type traces struct {
	store  Store
	timers *timers
	policy func(server, tool string) Policy
}

// resume makes the loop of an existing trace.
func (ts *traces) resume(ctx context.Context, id tga.ID) (*loop, error) {
	return ts.resumeBy(ctx, id, func() (chain.Lease, error) { return ts.store.Acquire(ctx, id) })
}

// resumeBy is resume with another way to get the lease.
func (ts *traces) resumeBy(ctx context.Context, id tga.ID, acquire func() (chain.Lease, error)) (*loop, error) {
	lease, err := acquire()
	if err != nil {
		return nil, err
	}
	trace, err := ts.store.Load(ctx, id)
	if err == nil {
		var l *loop
		if l, err = ts.loopOf(lease, trace); err == nil {
			return l, nil
		}
	}
	ts.store.Release(lease)
	return nil, err
}

// loopOf makes the loop of a replayed trace.
func (ts *traces) loopOf(lease chain.Lease, t *chain.Trace) (*loop, error) {
	if err := readable(t); err != nil {
		return nil, err
	}
	p := t.Request.Request.Proposal
	l := &loop{
		store: ts.store, timers: ts.timers,
		lease: lease, head: t.Head, trace: t, state: t.Head.State,
		policy:  ts.policy(p.ToolServer, p.ToolName).withDefaults(),
		request: t.Request, decision: t.Decision, call: t.Call, effect: t.Effect,
		submitter: SubmitterOf(t), asker: SubmitterOf(t), decider: appenderOf(t, tga.DecisionType), sender: Sender(t, ""),
		namespace: t.Namespace, deadline: t.Deadline,
	}
	if len(t.Entries) > 0 {
		l.begun = t.Entries[0].TS
	}
	if t.Call != nil {
		l.callID = t.Call.ID
		l.attempted = LicenceOf(t)
	}
	l.doubtSince = firstDoubt(t)
	before := doubtOf(t)
	l.timer, l.doubtBefore = timerOf(t), before.Cause
	l.rests, l.restsSince = askedBefore(t)
	return l, nil
}

// readable refuses a trace that has an entry whose artifact was erased. Every other function of this package
// may find that any artifact of a loaded trace is nil; behind readable, the artifacts of all entries are there.
//
// An ended trace that was erased is whole: retention erases such traces every day. An open one lost what its
// recovery needs.
func readable(t *chain.Trace) error {
	for i := range t.Entries {
		what := ""
		switch typ := t.Entries[i].Type; {
		case typ == tga.RequestType && t.Request == nil:
			what = "request"
		case typ == tga.DecisionType && t.Decision == nil:
			what = "decision"
		case typ == tga.CallType && t.Call == nil:
			what = "call"
		case typ == tga.EffectType && t.Effect == nil:
			what = "effect"
		default:
			continue
		}
		if t.Head.State.Terminal() {
			return tga.Errorf(tga.IdempotencyKeyExpired, "the call is %s, and what it said was erased", t.Head.State).In(t.ID)
		}
		return tga.Errorf(tga.StateRecoveryFailed, "the %s of the trace cannot be read: it was erased", what).In(t.ID)
	}
	return nil
}
