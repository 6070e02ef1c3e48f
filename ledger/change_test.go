package ledger

import (
	"errors"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestTouches: which appends change the record of their key, or rely on it.
func TestTouches(t *testing.T) {
	sent := call(nil)
	notes := func(kinds ...tga.NoteKind) (list []tga.Note) {
		for _, k := range kinds {
			list = append(list, *note(k, t0, nil))
		}
		return list
	}
	for name, c := range map[string]struct {
		c    Change
		want bool
		code tga.Code
	}{
		"nothing":                  {Change{State: tga.Pending}, false, ""},
		"a call":                   {Change{State: tga.Executing, Call: sent, Began: 3}, true, ""},
		"an effect":                {Change{State: tga.Completed, Call: sent, Ended: 4}, true, ""},
		"a call that is not there": {Change{State: tga.Executing, Began: 3}, false, tga.StateInvalidTransition},
		"an effect without call":   {Change{State: tga.Completed, Ended: 4}, false, tga.StateInvalidTransition},
		"another note":             {Change{State: tga.Pending, Notes: notes(tga.NoteLateReply)}, false, ""},
		"an attempt":               {Change{State: tga.Executing, Call: sent, Notes: notes(tga.NoteAttempt)}, true, ""},
		"an attempt without call":  {Change{State: tga.Executing, Notes: notes(tga.NoteAttempt)}, false, tga.StateInvalidTransition},
		"an attempt too early":     {Change{State: tga.Authorized, Call: sent, Notes: notes(tga.NoteAttempt)}, false, tga.StateInvalidTransition},
		"an attempt too late":      {Change{State: tga.Completed, Call: sent, Notes: notes(tga.NoteLateReply, tga.NoteNotSent)}, false, tga.StateInvalidTransition},
		"a confirmation":           {Change{State: tga.Completed, Call: sent, Notes: notes(tga.NoteConfirmation)}, true, ""},
		"a confirmation, failed":   {Change{State: tga.Failed, Call: sent, Notes: notes(tga.NoteConfirmation)}, true, ""},
		"a confirmation too early": {Change{State: tga.Executing, Call: sent, Notes: notes(tga.NoteConfirmation)}, false, tga.StateInvalidTransition},
		"a compensation too early": {Change{State: tga.Executing, Call: sent, Notes: notes(tga.NoteAttempt, tga.NoteCompensated)}, false, tga.StateInvalidTransition},
	} {
		got, err := c.c.Touches()
		wantCode(t, err, c.code, name)
		if got != c.want {
			t.Errorf("%s: touches %v", name, got)
		}
	}
}

// callOf is call, by another trace.
func callOf(trace tga.ID, meta tga.Meta) *tga.Artifact {
	a := call(meta)
	a.TraceID = trace
	return a
}

// TestCallTakesAFreeKeyOnly tries every record that a key can have when another trace's call is
// appended: see the table of [Change.Apply].
func TestCallTakesAFreeKeyOnly(t *testing.T) {
	open, retryable, notSent := reserved(t, nil), settled(t, ClassRetryable), Record{}
	n := reserved(t, tga.Meta{tga.MetaAttempt: tga.AttemptApart})
	notSent = must[Record](t)(n.Settle(effect(tga.StatusError, tga.Meta{tga.MetaOutcomeClass: ClassNotSent.String()}), 4))
	done, permanent := settled(t, ClassSuccess), settled(t, ClassPermanent)
	expired := must[Record](t)(done.Expire())
	abandoned := permanent
	abandoned.Abandoned = true
	other := open
	other.RequestDigest = request
	otherDone := retryable
	otherDone.RequestDigest = request
	of, wrong := tga.Meta{tga.MetaRetryOf: traceA.String()}, tga.Meta{tga.MetaRetryOf: traceB.String()}
	for name, c := range map[string]struct {
		stored        *Record
		request, call tga.Meta
		code          tga.Code
	}{
		"no record":                       {nil, nil, nil, ""},
		"other request, reserved":         {&other, nil, nil, tga.IdempotencyKeyConflict},
		"other request, retryable":        {&otherDone, of, of, tga.IdempotencyKeyConflict},
		"reserved":                        {&open, nil, nil, tga.IdempotencyKeyInFlight},
		"reserved, named":                 {&open, of, of, tga.IdempotencyKeyInFlight},
		"success":                         {&done, of, of, tga.IdempotencyKeyInFlight},
		"permanent":                       {&permanent, of, of, tga.IdempotencyKeyInFlight},
		"not sent":                        {&notSent, nil, nil, tga.IdempotencyKeyInFlight},
		"not sent, named by the call":     {&notSent, nil, of, ""},
		"not sent, named by the request":  {&notSent, of, nil, tga.IdempotencyKeyInFlight},
		"not sent, another named":         {&notSent, nil, wrong, tga.IdempotencyKeyInFlight},
		"retryable":                       {&retryable, nil, nil, tga.IdempotencyKeyInFlight},
		"retryable, named by the request": {&retryable, of, nil, ""},
		"retryable, named by the call":    {&retryable, nil, of, tga.IdempotencyKeyInFlight},
		"retryable, another named":        {&retryable, wrong, nil, tga.IdempotencyKeyInFlight},
		"abandoned":                       {&abandoned, of, of, tga.EffectInDoubt},
		"expired":                         {&expired, of, of, tga.IdempotencyKeyExpired},
	} {
		change := Change{
			Trace: traceB, State: tga.Executing, Request: &tga.Artifact{Type: tga.RequestType, Meta: c.request},
			Call: callOf(traceB, c.call), Epoch: 9, Began: 3, BeganTS: t0,
		}
		got, err := change.Apply(c.stored, nil)
		wantCode(t, err, c.code, name)
		if want := must[Record](t)(Reserve(change.Call, 3, 9, t0)); err == nil && *got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		var te *tga.Error
		if errors.As(err, &te) && te.TraceID != c.stored.TraceID {
			t.Errorf("%s: the error is of trace %s", name, te.TraceID)
		}
	}
	// A request that was erased names nothing.
	erased := Change{Trace: traceB, State: tga.Executing, Call: callOf(traceB, nil), Epoch: 9, Began: 3, BeganTS: t0}
	_, err := erased.Apply(&retryable, nil)
	wantCode(t, err, tga.IdempotencyKeyInFlight, "erased request")
	both := Change{Trace: traceB, State: tga.Completed, Call: callOf(traceB, nil), Effect: effect(tga.StatusSuccess, nil), Epoch: 9, Began: 3, BeganTS: t0, Ended: 4}
	_, err = both.Apply(nil, nil)
	wantCode(t, err, tga.StateInvalidTransition, "call and effect at once")
}

// TestOwnRecordFollows: the effect and the notes of a trace change only the trace's own record.
func TestOwnRecordFollows(t *testing.T) {
	open, done := reserved(t, nil), settled(t, ClassCommitted)
	foreign := open
	foreign.TraceID = traceB
	success := effect(tga.StatusSuccess, tga.Meta{tga.MetaOutcomeClass: ClassCommitted.String()})
	mark := []tga.Note{*attempt(2, t0+1, tga.Digest{})}
	for name, c := range map[string]struct {
		c      Change
		stored *Record
		want   func() (Record, error)
		code   tga.Code
	}{
		"effect":                    {Change{State: tga.Completed, Effect: success, Ended: 4}, &open, func() (Record, error) { return open.Settle(success, 4) }, ""},
		"effect of a settled one":   {Change{State: tga.Completed, Effect: success, Ended: 4}, &done, nil, tga.StateInvalidTransition},
		"effect, no record":         {Change{State: tga.Completed, Effect: success, Ended: 4}, nil, nil, tga.StateChecksumMismatch},
		"effect, another's record":  {Change{State: tga.Completed, Effect: success, Ended: 4}, &foreign, nil, tga.StateChecksumMismatch},
		"attempt":                   {Change{State: tga.Executing, Epoch: 9, Notes: mark}, &open, func() (Record, error) { return open.ApplyNote(&mark[0]) }, ""},
		"attempt of another epoch":  {Change{State: tga.Executing, Epoch: 8, Notes: mark}, &open, nil, tga.StateConcurrentExecution},
		"attempt, another's record": {Change{State: tga.Executing, Epoch: 9, Notes: mark}, &foreign, nil, tga.StateChecksumMismatch},
		"confirmation": {Change{State: tga.Completed, Notes: []tga.Note{*confirmation(t, Confirmed)}}, &done,
			func() (Record, error) { return done.ApplyNote(confirmation(t, Confirmed)) }, ""},
		"confirmation, another's": {Change{State: tga.Completed, Notes: []tga.Note{*confirmation(t, Confirmed)}}, &foreign, nil, tga.StateInvalidTransition},
		"a broken mark":           {Change{State: tga.Executing, Epoch: 9, Notes: []tga.Note{*note(tga.NoteAttempt, t0, []byte("{}"))}}, &open, nil, tga.ValidationError},
	} {
		c.c.Trace, c.c.Call = traceA, call(nil)
		got, err := c.c.Apply(c.stored, nil)
		wantCode(t, err, c.code, name)
		if c.want == nil {
			continue
		}
		if want := must[Record](t)(c.want()); err != nil || *got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestServedCallNeedsItsEffect: a call that is never sent comes with an error of its own,
// or with the recorded effect of its key.
func TestServedCallNeedsItsEffect(t *testing.T) {
	errGone := errors.New("the effect can't be read")
	open, done := reserved(t, nil), settled(t, ClassSuccess)
	other := done
	other.RequestDigest = request
	from := func(id tga.ID) tga.Meta { return tga.Meta{tga.MetaReplayedFrom: id.String()} }
	undone := done
	undone.Class = ClassCompensated
	saying := func(name, value string) *tga.Artifact {
		return effect(tga.StatusSuccess, tga.Meta{tga.MetaReplayedFrom: traceA.String(), name: value})
	}
	answering := effect(tga.StatusSuccess, from(traceA))
	answering.Effect.DocumentHashes = []tga.DocumentHash{{Pointer: tga.PointerResult, Hash: request}}
	recorded := func(status string, err error) func(tga.ID, uint64) (string, error) {
		return func(trace tga.ID, seq uint64) (string, error) {
			if trace != traceA || seq != 4 {
				t.Errorf("asked for entry %d of %s", seq, trace)
			}
			return status, err
		}
	}
	success := recorded(tga.StatusSuccess, nil)
	for name, c := range map[string]struct {
		began, ended uint64
		effect       *tga.Artifact
		stored       *Record
		status       func(tga.ID, uint64) (string, error)
		code         tga.Code
	}{
		"served":               {3, 4, effect(tga.StatusSuccess, from(traceA)), &done, success, ""},
		"served, erased":       {3, 4, effect(tga.StatusSuccess, from(traceA)), &done, recorded("", nil), ""},
		"an error of its own":  {3, 4, effect(tga.StatusError, nil), &open, nil, ""},
		"a success of its own": {3, 4, effect(tga.StatusSuccess, nil), &done, nil, tga.StateInvalidTransition},
		"no call":              {0, 4, effect(tga.StatusSuccess, from(traceA)), &done, success, tga.StateInvalidTransition},
		"no effect":            {3, 0, effect(tga.StatusSuccess, from(traceA)), &done, success, tga.StateInvalidTransition},
		"no record":            {3, 4, effect(tga.StatusSuccess, from(traceA)), nil, success, tga.StateInvalidTransition},
		"not settled":          {3, 4, effect(tga.StatusSuccess, from(traceA)), &open, success, tga.StateInvalidTransition},
		"from another":         {3, 4, effect(tga.StatusSuccess, from(traceB)), &done, success, tga.StateInvalidTransition},
		"another request":      {3, 4, effect(tga.StatusSuccess, from(traceA)), &other, success, tga.StateInvalidTransition},
		"another status":       {3, 4, effect(tga.StatusFailure, from(traceA)), &done, success, tga.StateInvalidTransition},
		"its digest":           {3, 4, saying(tga.MetaReplayedEffect, done.EffectDigest.String()), &done, success, ""},
		"another digest":       {3, 4, saying(tga.MetaReplayedEffect, request.String()), &done, success, tga.StateInvalidTransition},
		"its class":            {3, 4, saying(tga.MetaOutcomeClass, "success"), &done, success, ""},
		"another class":        {3, 4, saying(tga.MetaOutcomeClass, "compensated"), &done, success, tga.StateInvalidTransition},
		"undone since":         {3, 4, saying(tga.MetaOutcomeClass, "success"), &undone, success, ""},
		"an answer of its own": {3, 4, answering, &done, success, tga.StateInvalidTransition},
		"unreadable":           {3, 4, effect(tga.StatusSuccess, from(traceA)), &done, recorded("", errGone), ""},
	} {
		change := Change{
			Trace: traceB, State: tga.Completed, Call: callOf(traceB, tga.Meta{tga.MetaAttempt: tga.AttemptNone}),
			Effect: c.effect, Epoch: 9, Began: c.began, Ended: c.ended,
		}
		got, err := change.Apply(c.stored, c.status)
		if name == "unreadable" {
			if !errors.Is(err, errGone) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantCode(t, err, c.code, name)
		if got != nil {
			t.Errorf("%s: the record becomes %+v", name, got)
		}
	}
}
