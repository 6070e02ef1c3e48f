package runtime

import (
	"context"
	"unicode/utf8"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Relicensing is a person's decision that the current licence of the tool decides alone about a call in doubt,
// in place of the licence that its newest attempt was made under.
type Relicensing struct {
	Who    string // 1..255 characters
	Reason string // 1..500 characters; it is recorded
	DryRun bool   // report what would happen, and change nothing
}

// Relicensed says what a [Relicensing] changed.
type Relicensed struct {
	Was, Now string // the two licences, in the form of the log
	// Next is what happens then: "resend", the call is sent again; "probe", the tool server is
	// asked; "begin", the executor that calls Begin next gets a new attempt.
	Next   string
	Result Result // of the call after it went on; of a dry run and of "begin", its present state
}

// Values of Relicensed.Next.
const (
	nextResend = "resend"
	nextProbe  = "probe"
	nextBegin  = "begin"
)

// maxReason is the most characters of a reason.
const maxReason = 500

// Relicense lets the current licence decide alone about a call in doubt. The licence that its newest attempt
// was made under, which forbids another send, no longer counts. The log has who decided this, why, and which
// licence it is, before anything is sent. If the current licence allows no more than both licences together,
// nothing is written: STATE_INVALID_TRANSITION.
//
// STATE_LOCK_ACQUIRE_FAILED: somebody is executing the call. The error may also be that of the call, which goes
// on as with [Runtime.Recover]: EFFECT_IN_DOUBT if it stays in doubt.
func (rt *Runtime) Relicense(ctx context.Context, trace tga.ID, r Relicensing) (done Relicensed, err error) {
	defer rt.goOn(&err)
	ctx, span := rt.spans.begin(ctx, "tgad.relicense", trace, "", "")
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
	// Weigh before taking the lease, which would make others wait: a dry run delays nobody.
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
	// The note is durable before the call goes on: no send without the decision that permits it.
	if err := l.append(ctx, chain.Batch{Notes: []chain.NewNote{note}}); err != nil {
		return done, err
	}
	st.counts.byPerson.Add(1)
	if done.Next == nextBegin {
		return done, nil
	}
	now, err := ledger.ParseAttested(done.Now) // the licence that was weighed and written, even if the configuration changed since
	if err != nil {
		return done, err
	}
	l.attempted = &now
	done.Result, err = st.calls.finish(ctx, l)
	return done, err
}

// weigh finds what the current licence alone allows for a call, and refuses if that is nothing new.
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
	case replaced(st.store, record.TraceID):
		return nil, refuse("a person let another call run instead of this one: it is not sent any more")
	case st.executors.alive(record, l.policy):
		return nil, tga.Errorf(tga.StateLockAcquireFailed, "the permit of attempt %d is fresh: its executor may still be sending. Wait, or let it give up", record.Attempts.Count).In(l.lease.TraceID)
	case l.attempted == nil:
		return nil, refuse("the log has no licence of the call's attempt, so the current licence decides alone: use recover")
	}
	q := st.queries.of(l, record)
	// Weigh as if nobody executes the call, and as if the asker is an executor if an executor sent it.
	q.Holder, q.Remote = ledger.HolderGone, record.Attempts.External
	both := ledger.Decide(q)
	q.Attempted = nil
	alone := ledger.Decide(q)
	done.Was, done.Now = l.attempted.Attested(), q.Licence.Attested()
	switch {
	case alone.Action == both.Action && (l.attempted.Kind != ledger.Probe || done.Was == done.Now): // a probe licence with another max_in_flight may fence sooner
		return nil, refuse("the current licence, %s, changes nothing for the call: %s", done.Now, alone.Reason)
	case alone.Action == ledger.ProbeFirst:
		done.Next = nextProbe
	case alone.Action == ledger.Resend && record.Attempts.External:
		done.Next = nextBegin
	case alone.Action == ledger.Resend:
		done.Next = nextResend
	default:
		return nil, refuse("the current licence, %s, allows nothing for the call: %s", done.Now, alone.Reason)
	}
	return record, nil
}
