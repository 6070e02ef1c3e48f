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
	Retry   bool       // the asker is an explicit new attempt after a retryable_failure
	// Waited says that the asker waited for the outcome of Record.TraceID. It shares that
	// outcome, also where it is not_sent: a crowd that waits for one send must not turn
	// into a crowd of sends when the tool server is down.
	Waited  bool
	Profile Profile
	// Holder is that of Record.TraceID. Where that is Trace, the asker holds the
	// lease, so Holder speaks of the one before it.
	Holder  Liveness
	Licence Licence // of now; see [Effective]
	// Attempted is the licence that the newest attempt was made under. A call in doubt is sent
	// again only where both licences allow it. Nil = that of now.
	Attempted *Licence
	// Suspect says that acknowledged appends may be missing from the log (a restored or
	// damaged store) and that this call is among those its silence says nothing about:
	// then nothing is sent, whatever the licence.
	Suspect bool
	// Remote says that the asker sends by itself, with a permit. False means that the
	// process which asks would send.
	Remote   bool
	Now      tga.Millis
	NewestTS tga.Millis // newest time in the store; a Now before it licenses nothing
	// SendTimeout bounds a send from now to its arrival. A dedupe_key licence needs
	// it: without a bound no send is sure to arrive inside the window.
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
	// Code is what a caller is told who gets no effect: of Wait when its time ends, of
	// Doubt, Abandoned, Conflict and KeyExpired at once.
	Code    tga.Code
	Attempt uint32 // number to make durable before the send; Send and Resend only
	Reason  string // for people; no part of the contract
	// Within is how long after Query.Now the send of a Resend may begin at the latest: a
	// window that was open when the attempt was marked may be closed when the mark is
	// durable. 0 = no bound.
	Within time.Duration
}

// fact is one thing a rule can ask about a Query. A rule names the facts that must
// all hold.
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
	mayRun       // the holder is alive, or nobody knows
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

// rules is the dispatch decision (docs/SEMANTICS.md). The first rule whose facts
// all hold decides; the last one holds always, so that a case nobody foresaw is
// doubt and not a send.
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

// Decide answers whether a call may be sent. It never returns Send or Resend where
// the record is settled (but where nothing was sent, and for the explicit new attempt
// after a definite non-execution), has another request digest, is suspect, or is in doubt without a
// licence.
func Decide(q Query) Decision {
	d := decide(q)
	if q.Attempted != nil {
		q.Licence = *q.Attempted
		d = stricter(d, decide(q))
	}
	return d
}

// strictness orders what a licence may make of a call in doubt. No other action depends on one.
var strictness = map[Action]int{Resend: 1, ProbeFirst: 2, Doubt: 3}

// stricter is the one of two decisions about the same call that allows less.
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

// SendWithin answers within how long after q.Now the send of the record's newest attempt, which
// was handed to somebody else, must begin; bounded is false where that does not matter. It is
// bounded where an earlier attempt may have run and the server forgets the key: later than that
// the send would be a second effect.
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

// facts reads off the query what the rules ask.
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

// ProbeAnswer is what a tool server says when asked whether a key ran.
type ProbeAnswer uint8

// Answers of a probe. A probe that fails answers ProbeUnknown.
const (
	ProbeUnknown ProbeAnswer = iota
	ProbeRan
	ProbeNotRan
)

// DecideProbe answers what to do with the call of r, in doubt, after a probe. fenced
// says that no earlier attempt can take effect any more: the server burnt or claimed
// the key when it was asked, or [Licence.FencedByTime]. Without that, "did not run"
// may be untrue a moment later.
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
