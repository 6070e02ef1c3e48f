package runtime

import (
	"context"
	"unicode/utf8"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Relicensing is a person's word that the licence of now is to hold for a call in doubt in place of the one
// that its newest attempt was made under.
type Relicensing struct {
	Who    string // 1..255 characters
	Reason string // 1..500 characters; it is recorded
	DryRun bool   // say what would follow, and change nothing
}

// Relicensed says what a [Relicensing] changed.
type Relicensed struct {
	Was, Now string // the two licences, in the form of the log
	// Next is what follows: "resend", the call is sent again; "probe", the tool server is asked;
	// "begin", the executor that asks next gets a new attempt.
	Next   string
	Result Result // of the call once it went on; of a dry run, and of "begin", where it stands
}

// What follows.
const (
	nextResend = "resend"
	nextProbe  = "probe"
	nextBegin  = "begin"
)

// maxReason is how many characters of a reason are taken.
const maxReason = 500

// Relicense lets the licence of now alone decide about a call in doubt: the one that its newest attempt was
// made under, which forbids another send, counts no more. Who said so, why and which licence it is are in
// the log before anything is sent. Where the licence of now allows no more than both do, nothing is
// written: STATE_INVALID_TRANSITION.
//
// STATE_LOCK_ACQUIRE_FAILED: somebody is at the call. The error may also be that of the call, which goes on
// as by [Runtime.Recover]: EFFECT_IN_DOUBT where it stays in doubt.
func (rt *Runtime) Relicense(ctx context.Context, trace tga.ID, r Relicensing) (done Relicensed, err error) {
	defer rt.goOn(&err)
	span := rt.spans.begin(&ctx, "tgad.relicense", trace, "", "")
	defer span.end(&done.Result, &err)
	return rt.settlements.relicense(ctx, trace, r)
}

func (st *settlements) relicense(ctx context.Context, trace tga.ID, r Relicensing) (done Relicensed, err error) {
	done.Result.TraceID = trace
	if n := len(r.Who); n < 1 || n > 255 {
		return done, tga.Errorf(tga.ValidationError, "who has %d bytes, want 1..255", n).At("/who").In(trace)
	}
	if n := utf8.RuneCountInString(r.Reason); n < 1 || n > maxReason {
		return done, tga.Errorf(tga.ValidationError, "the reason has %d characters, want 1 to %d", n, maxReason).At("/reason").In(trace)
	}
	t, err := st.store.Load(ctx, trace)
	if err != nil {
		return done, err
	}
	// Before the lease is taken, which would keep others off: a dry run holds up nobody.
	l, err := st.traces.loopOf(chain.Lease{TraceID: trace}, t)
	if err != nil {
		return done, err
	}
	if _, err := st.weigh(ctx, l, &done); err != nil || r.DryRun {
		return done, err
	}
	if l, err = st.traces.resume(ctx, trace); err != nil {
		return done, err
	}
	defer st.store.Release(l.lease)
	record, err := st.weigh(ctx, l, &done)
	if err != nil {
		return done, err
	}
	note, err := st.mint.note(tga.NoteLicence, r.Who, map[string]any{"attempt": record.Attempts.Count, "licence": done.Now, "reason": r.Reason})
	if err != nil {
		return done, err
	}
	// Durable before the call goes on: a send is never without the word that permits it.
	if err := l.append(ctx, chain.Batch{Notes: []chain.NewNote{note}}); err != nil {
		return done, err
	}
	st.counts.byPerson.Add(1)
	if done.Next == nextBegin {
		return done, nil
	}
	now, err := ledger.ParseAttested(done.Now) // what was weighed and is written, though the file may be another by now
	if err != nil {
		return done, err
	}
	l.attempted = &now
	done.Result, err = st.calls.finish(ctx, l)
	return done, err
}

// weigh says what the licence of now alone makes of a call, and refuses where that is nothing new.
func (st *settlements) weigh(ctx context.Context, l *loop, done *Relicensed) (*ledger.Record, error) {
	done.Result = l.partial()
	if err := l.inDoubtNow(); err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) error {
		return tga.Errorf(tga.StateInvalidTransition, format, args...).In(l.lease.TraceID)
	}
	record, err := st.store.Record(ctx, ledger.KeyOf(l.namespace, l.call))
	switch {
	case err != nil:
		return nil, err
	case record == nil || record.TraceID != l.lease.TraceID || !record.InDoubt():
		return nil, refuse("the call is not in doubt: none of its attempts may have run")
	case st.executors.alive(record, l.policy):
		return nil, tga.Errorf(tga.StateLockAcquireFailed, "the permit of attempt %d is fresh: its executor may still be sending. Wait, or let it give up", record.Attempts.Count).In(l.lease.TraceID)
	case l.attempted == nil:
		return nil, refuse("the log has no licence of the call's attempt: that of now decides alone. Recover it")
	}
	q := st.queries.of(l, record)
	// It is as it is weighed: nobody is at it, and an executor's call is for an executor to send.
	q.Holder, q.Remote = ledger.HolderGone, record.Attempts.External
	both := ledger.Decide(q)
	q.Attempted = nil
	alone := ledger.Decide(q)
	done.Was, done.Now = l.attempted.Attested(), q.Licence.Attested()
	switch {
	case alone.Action == both.Action && (l.attempted.Kind != ledger.Probe || done.Was == done.Now): // another time in flight fences sooner
		return nil, refuse("the licence of now, %s, changes nothing for the call: %s", done.Now, alone.Reason)
	case alone.Action == ledger.ProbeFirst:
		done.Next = nextProbe
	case alone.Action == ledger.Resend && record.Attempts.External:
		done.Next = nextBegin
	case alone.Action == ledger.Resend:
		done.Next = nextResend
	default:
		return nil, refuse("the licence of now, %s, allows nothing for the call: %s", done.Now, alone.Reason)
	}
	return record, nil
}
