package ledger

import "github.com/tgad/tgad/schemas/tga"

// Change is one append as far as it concerns the ledger record of its key: what the append
// adds to the trace, and what the trace has afterwards.
type Change struct {
	Trace                 tga.ID
	State                 tga.State     // after the append
	Request, Call, Effect *tga.Artifact // after the append; nil if not there, or erased
	Epoch                 uint64        // of the lease that appends

	Began   uint64     // sequence number of the tool_call among what is appended; 0 = none
	BeganTS tga.Millis // its ts, or its commit time if that is earlier
	Ended   uint64     // sequence number of the tool_effect among what is appended; 0 = none
	Notes   []tga.Note // notes that are appended

	// Digest makes the digest of a request that the store's records have; nil is
	// [tga.RequestDigest].
	Digest func(tga.Proposal) tga.Digest
}

// digest returns a request's digest as the store's records have it.
func (c *Change) digest(p tga.Proposal) tga.Digest {
	if c.Digest == nil {
		return tga.RequestDigest(p)
	}
	return c.Digest(p)
}

// Appends adds an entry to the change. Of ts and commit time it keeps the earlier: a ts ahead of its
// commit must not extend the window in which the tool server is taken to know the key.
func (c *Change) Appends(t tga.ArtifactType, seq uint64, ts, committed tga.Millis) {
	switch t {
	case tga.CallType:
		c.Began, c.BeganTS = seq, min(ts, committed)
	case tga.EffectType:
		c.Ended = seq
	}
}

// Touches reports whether the append changes the record of the call's key or relies on it. If
// so, the caller must call [Change.Apply] while nobody else can change that record. The error
// is STATE_INVALID_TRANSITION for a note that the trace's state does not allow, and for a trace
// whose call is not there.
func (c *Change) Touches() (bool, error) {
	touches := c.Began != 0 || c.Ended != 0
	for i := range c.Notes {
		kind := c.Notes[i].Kind
		changes, afterEffect := ChangesRecord(kind)
		if !changes {
			continue
		}
		touches = true
		if afterEffect && !c.State.Terminal() || !afterEffect && c.State != tga.Executing {
			return false, tga.Errorf(tga.StateInvalidTransition, "note %s on trace %s: it is %s", kind, c.Trace, c.State).In(c.Trace)
		}
	}
	if touches && c.Call == nil {
		return false, tga.Errorf(tga.StateInvalidTransition, "append to trace %s: its tool_call is not there", c.Trace).In(c.Trace)
	}
	return touches, nil
}

// Apply returns the record of the key after the append, nil if the append does not change
// it. stored is the record before, nil if the key was never used. statusOf returns the
// outcome status of the settled effect that is entry seq of a trace, "" if that is erased.
// The rule (docs/SEMANTICS.md):
//
//	call that is sent, no record                        reserve
//	…, other request digest                             IDEMPOTENCY_KEY_CONFLICT
//	…, reserved by another trace                        IDEMPOTENCY_KEY_IN_FLIGHT, naming it
//	…, settled not_sent, the call's retry_of names it   reserve anew
//	…, settled retryable, the request's names it        reserve anew
//	…, settled otherwise                                IDEMPOTENCY_KEY_IN_FLIGHT, naming it
//	…, abandoned                                        EFFECT_IN_DOUBT
//	…, expired                                          IDEMPOTENCY_KEY_EXPIRED
//	call never sent, with its effect                    unchanged
//	call that is sent and its effect in one append      STATE_INVALID_TRANSITION
//	effect, notes attempt and not_sent                  the trace's own reservation follows
//	notes confirmation and compensated                  the trace's own settled record follows
func (c *Change) Apply(stored *Record, statusOf func(trace tga.ID, seq uint64) (string, error)) (*Record, error) {
	if NeverSent(c.Call) {
		return nil, c.served(stored, statusOf)
	}
	rec := stored
	if c.Began != 0 {
		if c.Ended != 0 {
			// If call and effect commit together, nothing was sent between them, so the
			// effect would be invented.
			return nil, tga.Errorf(tga.StateInvalidTransition, "append to trace %s: tool_call %s says meta.attempt %q, and its effect is in the same batch", c.Trace, c.Call.ID, c.Call.Meta.String(tga.MetaAttempt)).In(c.Trace)
		}
		if err := c.free(stored); err != nil {
			return nil, err
		}
		made, err := Reserve(c.Call, c.Began, c.Epoch, c.BeganTS)
		if err != nil {
			return nil, err
		}
		made.RequestDigest = c.digest(c.Call.Call.Call)
		rec = &made
	}
	own := rec != nil && rec.TraceID == c.Trace
	switch {
	case own:
		return c.follow(*rec)
	case c.Began == 0 && c.Ended == 0 && c.State.Terminal():
		return nil, tga.Errorf(tga.StateInvalidTransition, "note on trace %s: the record of its key is another trace's by now", c.Trace).In(c.Trace)
	}
	err := tga.Errorf(tga.StateChecksumMismatch, "trace %s is EXECUTING, and the record of its key is not its own", c.Trace).In(c.Trace)
	err.Where = "stored"
	return nil, err
}

// follow applies the effect and the notes to the trace's own reservation.
func (c *Change) follow(rec Record) (*Record, error) {
	var err error
	if c.Ended != 0 {
		if rec, err = rec.Settle(c.Effect, c.Ended); err != nil {
			return nil, err
		}
	}
	for i := range c.Notes {
		n := &c.Notes[i]
		if n.Kind == tga.NoteAttempt {
			m, err := ParseMark(n.Body)
			if err != nil {
				return nil, err
			}
			if m.Epoch != c.Epoch {
				return nil, tga.Errorf(tga.StateConcurrentExecution, "attempt note of epoch %#x under epoch %#x", m.Epoch, c.Epoch).In(c.Trace)
			}
		}
		if rec, err = rec.ApplyNote(n); err != nil {
			return nil, err
		}
	}
	return &rec, nil
}

// free reports whether the call may reserve a key whose record is r.
func (c *Change) free(r *Record) error {
	if r == nil {
		return nil
	}
	call := c.Call.Call
	refuse := func(code tga.Code, format string, args ...any) error {
		err := tga.Errorf(code, "key %q of %s/%s: "+format, append([]any{call.IdempotencyKey, call.Call.ToolServer, call.Call.ToolName}, args...)...)
		return err.In(r.TraceID)
	}
	switch {
	case r.RequestDigest != c.digest(call.Call):
		return refuse(tga.IdempotencyKeyConflict, "used for another request by trace %s", r.TraceID)
	case r.Abandoned:
		return refuse(tga.EffectInDoubt, "trace %s was abandoned: whether it ran is not known", r.TraceID)
	case r.Status == Expired:
		return refuse(tga.IdempotencyKeyExpired, "used, and its record has expired")
	case r.Status == Reserved:
		return refuse(tga.IdempotencyKeyInFlight, "reserved by trace %s", r.TraceID)
	case r.Class == ClassNotSent && c.Call.Meta.String(tga.MetaRetryOf) == r.TraceID.String():
		// The call names the trace whose key it takes over. The request does not: it may be
		// older than the failure.
		return nil
	case r.Class == ClassRetryable && c.Request != nil && c.Request.Meta.String(tga.MetaRetryOf) == r.TraceID.String():
		return nil
	}
	return refuse(tga.IdempotencyKeyInFlight, "settled by trace %s: its effect is to be served", r.TraceID)
}

// served checks a call that is never sent. It is appended together with its effect, which is
// either the settled effect of its key or an error of this trace alone. Any other effect would
// let a caller record an outcome that never happened, or an answer that nobody gave.
func (c *Change) served(r *Record, statusOf func(tga.ID, uint64) (string, error)) error {
	refuse := func(format string, args ...any) error {
		return tga.Errorf(tga.StateInvalidTransition, "append to trace %s, call never sent: "+format, append([]any{c.Trace}, args...)...).In(c.Trace)
	}
	if c.Began == 0 || c.Ended == 0 {
		return refuse("call and effect are not in one batch")
	}
	status := c.Effect.Effect.Outcome.Status
	from, given := c.Effect.Meta[tga.MetaReplayedFrom]
	if !given {
		if status != tga.StatusError {
			return refuse("effect %s without meta.replayed_from", status)
		}
		return nil
	}
	switch {
	case r == nil || r.Status != Settled:
		return refuse("the key has no settled record to serve")
	case from != r.TraceID.String():
		return refuse("replayed from %v, settled by %s", from, r.TraceID)
	case r.RequestDigest != c.digest(c.Call.Call.Call):
		return refuse("trace %s was for another request", r.TraceID)
	case len(c.Effect.Effect.DocumentHashes) > 0:
		return refuse("it binds documents of its own, and serves those of trace %s", r.TraceID)
	}
	if named, ok := c.Effect.Meta[tga.MetaReplayedEffect]; ok && named != r.EffectDigest.String() {
		return refuse("meta.replayed_effect is %.80v, the effect of trace %s is %s", named, r.TraceID, r.EffectDigest)
	}
	// The class of an undone record is no longer the one that its effect names.
	if class, ok := c.Effect.Meta[tga.MetaOutcomeClass]; ok && class != r.Class.String() && r.Class != ClassCompensated {
		return refuse("meta.outcome_class is %.80v, that of trace %s is %s", class, r.TraceID, r.Class)
	}
	recorded, err := statusOf(r.TraceID, r.EffectSeq)
	if err != nil {
		return err
	}
	if recorded != "" && recorded != status {
		return refuse("effect %s, that of trace %s is %s", status, r.TraceID, recorded)
	}
	return nil
}
