package ledger

import (
	"math/bits"
	"strconv"

	"github.com/tgad/tgad/schemas/tga"
)

// Reserve returns the record that a tool_call opens when it is appended as entry
// seq under the given lease epoch. ts is the entry's ts, or its commit time if that is
// earlier: the window of a dedupe_key licence begins at ts.
//
// meta.attempt says whether the entry is itself attempt 1 (fused, external) or not
// (apart). A call marked none never reserves: STATE_INVALID_TRANSITION.
func Reserve(call *tga.Artifact, seq uint64, epoch uint64, ts tga.Millis) (Record, error) {
	if call.Type != tga.CallType {
		return Record{}, tga.Errorf(tga.StateInvalidTransition, "reserve: artifact %v is a %v, not a tool_call", call.ID, call.Type).In(call.TraceID)
	}
	if call.Call.IdempotencyKey == "" {
		return Record{}, tga.Errorf(tga.IdempotencyKeyRequired, "reserve: tool_call %v has no idempotency_key", call.ID).In(call.TraceID)
	}
	r := Record{
		Status:        Reserved,
		RequestDigest: tga.RequestDigest(call.Call.Call),
		ToolCallID:    call.ID,
		TraceID:       call.TraceID,
		Seq:           seq,
	}
	mode, err := attemptMode(call)
	if err != nil {
		return Record{}, err
	}
	switch mode {
	case tga.AttemptFused:
		r.Attempts = r.Attempts.mark(epoch, ts, tga.Digest{})
	case tga.AttemptApart:
	case tga.AttemptExternal:
		permit, err := tga.ParseDigest(call.Meta.String(tga.MetaPermitDigest))
		if err != nil || permit.IsZero() {
			return Record{}, tga.Errorf(tga.ValidationError, "reserve: tool_call %v is external without a digest of its permit", call.ID).In(call.TraceID).At("/meta/" + tga.MetaPermitDigest)
		}
		r.Attempts = r.Attempts.mark(epoch, ts, permit)
	case tga.AttemptNone:
		return Record{}, tga.Errorf(tga.StateInvalidTransition, "reserve: tool_call %v says meta.attempt %q: it is never sent", call.ID, mode).In(call.TraceID)
	}
	return r, nil
}

// attemptMode returns the call's meta.attempt, fused if it is absent.
func attemptMode(call *tga.Artifact) (string, error) {
	v, ok := call.Meta[tga.MetaAttempt]
	if !ok || v == nil {
		v = tga.AttemptFused
	}
	switch v {
	case tga.AttemptFused, tga.AttemptApart, tga.AttemptExternal, tga.AttemptNone:
		return v.(string), nil
	}
	return "", tga.Errorf(tga.ValidationError, "tool_call %v: meta.attempt %.80q is none of fused, apart, external, none", call.ID, v).In(call.TraceID).At("/meta/" + tga.MetaAttempt)
}

// NeverSent reports whether a tool_call is marked as one that reserves no key and is not
// sent: its effect is in the same batch.
func NeverSent(call *tga.Artifact) bool {
	return call.Meta.String(tga.MetaAttempt) == tga.AttemptNone
}

// Settle closes a reservation with its effect, appended as entry seq. STATE_INVALID_TRANSITION:
// the record is not reserved, the effect is of another call or served from another trace, or its
// class is not_sent although an attempt may have been sent. VALIDATION_ERROR: the outcome class
// contradicts the status.
//
// An effect of class not_sent names in meta.attempt the attempt that was not sent, unless no
// attempt was marked. Every other attempt must be known as not sent already: otherwise the key
// would be free while a call may be running under it.
func (r Record) Settle(effect *tga.Artifact, seq uint64) (Record, error) {
	refuse := func(format string, args ...any) (Record, error) {
		return Record{}, tga.Errorf(tga.StateInvalidTransition, "settle: "+format, args...).In(r.TraceID)
	}
	switch {
	case effect.Type != tga.EffectType:
		return refuse("artifact %v is a %v, not a tool_effect", effect.ID, effect.Type)
	case r.Status != Reserved:
		return refuse("effect %v: the record is %v", effect.ID, r.Status)
	case effect.TraceID != r.TraceID || effect.Effect.CallID != r.ToolCallID:
		return refuse("effect %v is of call %v in trace %v, reserved is call %v", effect.ID, effect.Effect.CallID, effect.TraceID, r.ToolCallID)
	case effect.Meta[tga.MetaReplayedFrom] != nil:
		return refuse("effect %v is replayed from %v: a reserved call has an effect of its own", effect.ID, effect.Meta[tga.MetaReplayedFrom])
	case seq <= r.Seq:
		return refuse("effect %v at seq %d: reserved at seq %d", effect.ID, seq, r.Seq)
	}
	r.Status = Settled
	r.Class = ClassOf(effect)
	r.Abandoned = abandoned(effect)
	r.EffectSeq = seq
	r.EffectDigest = effect.Digest
	if r.Class == ClassNone || r.Abandoned && r.Class != ClassPermanent {
		return Record{}, tga.Errorf(tga.ValidationError, "settle: effect %v with status %s cannot be of class %.80q", effect.ID, effect.Effect.Outcome.Status, effect.Meta[tga.MetaOutcomeClass]).In(r.TraceID).At("/meta/" + tga.MetaOutcomeClass)
	}
	if r.Class != ClassNotSent {
		return r, nil
	}
	if n := attemptOf(effect); n != 0 {
		var ok bool
		if r.Attempts, ok = r.Attempts.notSent(n); !ok {
			return refuse("effect %v: attempt %d of %d is not one that may have been sent", effect.ID, n, r.Attempts.Count)
		}
	}
	if sent := r.Attempts.Count - r.Attempts.Unsent; sent != 0 {
		return refuse("effect %v says that nothing was sent: of %d attempts %d may have been", effect.ID, r.Attempts.Count, sent)
	}
	return r, nil
}

// attemptOf returns the attempt that an effect names in its meta, 0 if it names none.
func attemptOf(effect *tga.Artifact) uint32 {
	n, ok := effect.Meta[tga.MetaAttempt].(tga.Number)
	if !ok {
		return 0
	}
	v, err := strconv.ParseUint(string(n), 10, 32)
	if err != nil {
		return 0 // then Settle requires that every attempt is known as not sent
	}
	return uint32(v)
}

// Expire shrinks a settled record to status, request digest and outcome. These are enough to
// prevent that its key is used again.
func (r Record) Expire() (Record, error) {
	if r.Status != Settled {
		return Record{}, tga.Errorf(tga.StateInvalidTransition, "expire: the record is %v", r.Status).In(r.TraceID)
	}
	return Record{Status: Expired, RequestDigest: r.RequestDigest, Class: r.Class, Abandoned: r.Abandoned}, nil
}

// InDoubt reports whether the call may have been sent and has no effect.
func (r *Record) InDoubt() bool {
	return r.Status == Reserved && r.Attempts.Count > r.Attempts.Unsent
}

// mark counts one more attempt. First becomes the earliest ts and Newest the latest, so that
// a clock that was set back never extends a licence.
func (a Attempts) mark(epoch uint64, ts tga.Millis, permit tga.Digest) Attempts {
	if a.Count == 0 {
		a.First, a.Newest = ts, ts
	}
	a.Count++
	a.UnsentMask <<= 1
	a.First, a.Newest = min(a.First, ts), max(a.Newest, ts)
	a.Epoch = epoch
	a.External, a.Permit = !permit.IsZero(), permit
	return a
}

// unsentWindow is how many of the newest attempts can still be marked as not sent. An older
// attempt stays in doubt.
const unsentWindow = 64

// notSent takes attempt n out of doubt. ok is false if n was never marked, is already known
// as not sent, or is too old. If one attempt were counted twice, another one, which may have
// been sent, would look provably unsent.
func (a Attempts) notSent(n uint32) (_ Attempts, ok bool) {
	if n == 0 || n > a.Count || a.Count-n >= unsentWindow {
		return a, false
	}
	bit := uint64(1) << (a.Count - n)
	if a.UnsentMask&bit != 0 {
		return a, false
	}
	a.UnsentMask |= bit
	a.Unsent++
	return a, true
}

// consistent reports whether the counters agree with each other.
func (a Attempts) consistent() bool {
	told := uint32(bits.OnesCount64(a.UnsentMask))
	switch {
	case a.Count == 0:
		return a == Attempts{}
	case a.Unsent > a.Count, told > a.Unsent, a.First > a.Newest:
		return false
	case a.External == a.Permit.IsZero():
		return false
	case a.Count <= unsentWindow:
		return told == a.Unsent && bits.Len64(a.UnsentMask) <= int(a.Count)
	}
	// Unsent attempts that are no longer in the mask are at most all attempts before the window.
	return a.Unsent-told <= a.Count-unsentWindow
}
