package ledger

import (
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// Query is all that a decision depends on.
type Query struct {
	Record  *Record    // nil = the key was never used
	Trace   tga.ID     // trace that asks
	Request tga.Digest // what the store's records have of its proposal
	Retry   bool       // the trace is an explicit new attempt after a retryable_failure
	// Waited says that the trace waited for the outcome of Record.TraceID. It shares that
	// outcome, even not_sent: many traces that wait for one send must not become many sends
	// when the tool server is down.
	Waited  bool
	Profile Profile
	// Holder is the state of the process that holds Record.TraceID. If that is Trace, the
	// asking process holds the lease itself, and Holder is about the holder before it.
	Holder  Liveness
	Licence Licence // the present one; see [Effective]
	// Attempted is the licence under which the newest attempt was made. A call in doubt is sent
	// again only if both licences allow it. Nil means the same as Licence.
	Attempted *Licence
	// Suspect says that acknowledged appends may be missing from the log (a restored or
	// damaged store), and that appends about this call may be among them. Then nothing is sent,
	// whatever the licence.
	Suspect bool
	// Remote says that a remote executor asks, and sends the call itself, with a permit. False
	// means that this process would send.
	Remote   bool
	Now      tga.Millis
	NewestTS tga.Millis // newest time in the store; a Now before it licenses nothing
	// SendTimeout is the longest time from now to the arrival of a send. A dedupe_key licence
	// needs it: without a bound, no send is certain to arrive inside the window.
	SendTimeout time.Duration
}

// Action is what to do with a call.
type Action uint8

// Actions. Only Send and Resend lead to a send, each after attempt Decision.Attempt
// is durable.
const (
	Send         Action = 1 + iota // reserve or mark, then send: provably the first
	Resend                         // in doubt and licensed: mark, then send the same call
	ProbeFirst                     // in doubt: ask the server, then see DecideProbe
	RecordEffect                   // the probe says it ran: record that effect
	Wait                           // another holder has it, or recovery will send it
	Serve                          // the recorded effect is the answer
	Doubt                          // park it, visibly
	Abandoned                      // settled without knowing; never a plain failure
	Conflict                       // same key, another request
	KeyExpired                     // the effect is gone; never sent again
)

// Decision is the answer to a Query.
type Decision struct {
	Action Action
	// Code is the error code for a caller that gets no effect: for Wait when its time ends, for
	// Doubt, Abandoned, Conflict and KeyExpired at once.
	Code    tga.Code
	Attempt uint32 // number to make durable before the send; Send and Resend only
	Reason  string // for people; no part of the contract
	// Within is how long after Query.Now a Resend may begin at the latest. The window may close
	// between the decision and the time at which the attempt's mark is durable. 0 = no bound.
	Within time.Duration
}

// fact is a set of conditions about a Query, one bit each. A rule names those that must all
// hold.
type fact uint32

const (
	isUnused       fact = 1 << iota // no record
	isOtherRequest                  // same key, other request
	isReserved
	isSettled
	isExpired
	isAbandoned
	isRetryable  // settled as a definite non-execution
	isNotSent    // settled, and no attempt reached the transport
	hasWaited    // the asker waited for this outcome
	isRetry      // the asker is an explicit new attempt
	isStrict     // profile strict
	isOtherTrace // the record is another trace's
	isUnsent     // no attempt, or each known not to have been sent
	mayRun       // the holder is alive, or may be
	isForeign    // a remote executor's, and the asker is not one
	onPark       // licences
	onProbe      //
	onDedupeKey  //
	onDedupeArgs //
	onReadOnly   //
	inWindow     // of a dedupe_key licence
	clockBehind  // now is before a time that is stored
	isUnbounded  // no SendTimeout
	isSuspect    // the log may have lost what was known of the call
)

type numbering uint8

const (
	noAttempt    numbering = iota
	firstAttempt           // 1: the trace reserves the key
	nextAttempt            // Count+1
)

type rule struct {
	when    fact // all of these
	action  Action
	code    tga.Code
	attempt numbering
	reason  string
}

// rules is the dispatch decision (docs/SEMANTICS.md). The first rule whose facts all hold
// decides. The last rule always holds, so that an unforeseen case is doubt and not a send.
var rules = [...]rule{
	{isUnused | isSuspect, Doubt, tga.EffectInDoubt, noAttempt, "the key may have been used by a call that the log has lost"},
	{isUnused, Send, "", firstAttempt, "the key was never used"},
	{isOtherRequest, Conflict, tga.IdempotencyKeyConflict, noAttempt, "the key stands for another request"},
	{isExpired, KeyExpired, tga.IdempotencyKeyExpired, noAttempt, "the key was used and its effect has expired"},

	{isSettled | isAbandoned, Abandoned, tga.EffectInDoubt, noAttempt, "the call was abandoned: whether it ran stays unknown"},
	{isSettled | isNotSent | hasWaited, Serve, "", noAttempt, "nothing was sent, and the asker shares the outcome for which it waited"},
	{isSettled | isNotSent | isOtherTrace | isSuspect, Doubt, tga.EffectInDoubt, noAttempt, "nothing was sent, but the log may have lost an attempt after it"},
	{isSettled | isNotSent | isOtherTrace, Send, "", firstAttempt, "nothing was sent under this key"},
	{isSettled | isRetryable | isRetry | isStrict | isOtherTrace | isSuspect, Doubt, tga.EffectInDoubt, noAttempt, "definitely not executed, but the log may have lost an attempt after it"},
	{isSettled | isRetryable | isRetry | isStrict | isOtherTrace, Send, "", firstAttempt, "definitely not executed, and an explicit new attempt"},
	{isSettled, Serve, "", noAttempt, "the effect is recorded"},

	{isReserved | isOtherTrace | mayRun, Wait, tga.IdempotencyKeyInFlight, noAttempt, "another trace has the key"},
	{isReserved | isOtherTrace | isUnsent, Wait, tga.IdempotencyKeyInFlight, noAttempt, "another trace has the key and was not sent yet"},
	{isReserved | isOtherTrace, Doubt, tga.EffectInDoubt, noAttempt, "another trace has the key and is in doubt"},

	{isReserved | isForeign | mayRun, Wait, tga.IdempotencyKeyInFlight, noAttempt, "a remote executor has the call"},
	{isReserved | isForeign | isSuspect, Doubt, tga.EffectInDoubt, noAttempt, "a remote executor had the call, and the log may have lost what became of it"},
	{isReserved | isForeign | isUnsent, Doubt, tga.EffectInDoubt, noAttempt, "a remote executor had the call: only a remote executor may be given it"},
	{isReserved | isForeign | onProbe, ProbeFirst, "", noAttempt, "a remote executor had the call: the server can be asked whether it ran"},
	{isReserved | isForeign, Doubt, tga.EffectInDoubt, noAttempt, "a remote executor had the call: only a remote executor may be given it"},
	{isReserved | isUnsent | isSuspect, Doubt, tga.EffectInDoubt, noAttempt, "no attempt is known, but the log may have lost one"},
	{isReserved | isUnsent, Send, "", nextAttempt, "no attempt was sent"},
	{isReserved | mayRun, Wait, tga.IdempotencyKeyInFlight, noAttempt, "its holder runs it, or may"},
	{isReserved | isSuspect, Doubt, tga.EffectInDoubt, noAttempt, "the log may have lost what became of the call"},

	{isReserved | onPark, Doubt, tga.EffectInDoubt, noAttempt, "licence park: nothing attests that a second send is harmless"},
	{isReserved | onProbe, ProbeFirst, "", noAttempt, "licence probe: the server can be asked"},
	{isReserved | onDedupeArgs, Resend, "", nextAttempt, "licence dedupe_args: repeating the arguments adds nothing"},
	{isReserved | onReadOnly, Resend, "", nextAttempt, "licence read_only: the tool has no effect"},
	{isReserved | onDedupeKey | clockBehind, Doubt, tga.EffectInDoubt, noAttempt, "licence dedupe_key: the clock is behind the newest stored time"},
	{isReserved | onDedupeKey | isUnbounded, Doubt, tga.EffectInDoubt, noAttempt, "licence dedupe_key: the send has no time-out"},
	{isReserved | onDedupeKey | inWindow, Resend, "", nextAttempt, "licence dedupe_key: the server still honours the key"},
	{isReserved | onDedupeKey, Doubt, tga.EffectInDoubt, noAttempt, "licence dedupe_key: the server may have forgotten the key"},

	{0, Doubt, tga.EffectInDoubt, noAttempt, "no rule allows a send"},
}

// Decide decides whether a call may be sent. It never returns Send or Resend if the query is
// suspect, or if the record has another request digest, is in doubt without a licence, or is
// settled. A settled record has two exceptions: nothing was sent, or the call was definitely
// not executed and this is an explicit new attempt.
func Decide(q Query) Decision {
	d := decide(q)
	if q.Attempted != nil {
		q.Licence = *q.Attempted
		d = stricter(d, decide(q))
	}
	return d
}

// strictness orders the actions for a call in doubt that a licence decides between. No other
// action depends on a licence.
var strictness = map[Action]int{Resend: 1, ProbeFirst: 2, Doubt: 3}

// stricter returns the one of two decisions about the same call that allows less.
func stricter(a, b Decision) Decision {
	if strictness[b.Action] > strictness[a.Action] {
		return b
	}
	if a.Action == Resend && b.Action == Resend && b.Within != 0 && (a.Within == 0 || b.Within < a.Within) {
		return b
	}
	return a
}

func decide(q Query) Decision {
	holds := q.facts()
	for _, r := range rules {
		if holds&r.when != r.when {
			continue
		}
		d := Decision{Action: r.action, Code: r.code, Reason: r.reason}
		switch r.attempt {
		case firstAttempt:
			d.Attempt = 1
		case nextAttempt:
			d.Attempt = q.Record.Attempts.Count + 1
		}
		if d.Action == Resend && holds&onDedupeKey != 0 {
			d.Within = q.Licence.windowLeft(q.Record.Attempts.First, q.Now, q.SendTimeout)
		}
		return d
	}
	panic("ledger: the last rule holds always")
}

// SendWithin returns how long after q.Now a remote executor may begin the send of the record's
// newest attempt. bounded is false if there is no limit. There is one if an earlier attempt may
// have run and the server forgets the key after a time: a later send would be a second effect.
func (q Query) SendWithin() (left time.Duration, bounded bool) {
	left, bounded = q.sendWithin()
	if q.Attempted != nil {
		q.Licence = *q.Attempted
		if l, b := q.sendWithin(); b && (!bounded || l < left) {
			left, bounded = l, true
		}
	}
	return left, bounded
}

func (q Query) sendWithin() (left time.Duration, bounded bool) {
	a := q.Record.Attempts
	switch {
	case q.Licence.Kind != DedupeKey || a.Count-a.Unsent <= 1:
		return 0, false
	case q.Now < max(q.NewestTS, a.Newest):
		return 0, true
	}
	return q.Licence.windowLeft(a.First, q.Now, q.SendTimeout), true
}

// facts returns the facts that hold for the query.
func (q *Query) facts() fact {
	r := q.Record
	if r == nil {
		if q.Suspect {
			return isUnused | isSuspect
		}
		return isUnused
	}
	kind := q.Licence.Kind
	newest := max(q.NewestTS, r.Attempts.Newest)
	var holds fact
	for _, f := range [...]struct {
		fact fact
		is   bool
	}{
		{isOtherRequest, r.RequestDigest != q.Request},
		{isReserved, r.Status == Reserved},
		{isSettled, r.Status == Settled},
		{isExpired, r.Status == Expired},
		{isAbandoned, r.Abandoned},
		{isRetryable, r.Class.Retryable()},
		{isNotSent, r.Class == ClassNotSent},
		{hasWaited, q.Waited},
		{isRetry, q.Retry},
		{isStrict, q.Profile.NeedsLicence()},
		{isOtherTrace, r.TraceID != q.Trace},
		{isUnsent, r.Attempts.Count == r.Attempts.Unsent},
		{mayRun, q.Holder != HolderGone},
		{isForeign, r.Attempts.External && !q.Remote},
		{onPark, kind == Park},
		{onProbe, kind == Probe},
		{onDedupeKey, kind == DedupeKey},
		{onDedupeArgs, kind == DedupeArgs},
		{onReadOnly, kind == ReadOnly},
		{inWindow, q.Licence.windowLeft(r.Attempts.First, q.Now, q.SendTimeout) > 0},
		{clockBehind, q.Now < newest},
		{isUnbounded, q.SendTimeout <= 0},
		{isSuspect, q.Suspect},
	} {
		if f.is {
			holds |= f.fact
		}
	}
	return holds
}

// ProbeAnswer is a tool server's answer to the question whether the call of a key ran.
type ProbeAnswer uint8

// Answers of a probe. A probe that fails answers ProbeUnknown.
const (
	ProbeUnknown ProbeAnswer = iota
	ProbeRan
	ProbeNotRan
)

// DecideProbe decides what to do with the call of r, which is in doubt, after a probe. fenced
// says that no earlier attempt can take effect any more: the server burnt or claimed the key
// when it was asked, or [Licence.FencedByTime] returns true. Without a fence, "did not run" may
// become false a moment later.
func DecideProbe(r *Record, answer ProbeAnswer, fenced bool) Decision {
	switch {
	case !r.InDoubt():
		return Decision{Action: Doubt, Code: tga.EffectInDoubt, Reason: "the record is not in doubt: decide again"}
	case answer == ProbeRan:
		return Decision{Action: RecordEffect, Reason: "the server says that the key ran"}
	case answer == ProbeNotRan && fenced:
		return Decision{Action: Resend, Attempt: r.Attempts.Count + 1, Reason: "the server says that the key did not run and never will"}
	case answer == ProbeNotRan:
		return Decision{Action: Doubt, Code: tga.EffectInDoubt, Reason: "the key did not run yet, but an earlier attempt may still arrive"}
	}
	return Decision{Action: Doubt, Code: tga.EffectInDoubt, Reason: "the server cannot tell whether the key ran"}
}
