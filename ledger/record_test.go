package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

func call(meta tga.Meta) *tga.Artifact {
	return &tga.Artifact{
		Type: tga.CallType, ID: callA, TraceID: traceA, Digest: tga.Digest{7}, Meta: meta,
		Call: &tga.ToolCall{
			Call:           tga.Proposal{ToolServer: "payments", ToolName: "charge", Args: []byte(`{"amount":5}`)},
			IdempotencyKey: "order-1", BatchTotalBytes: -1,
		},
	}
}

func effect(status string, meta tga.Meta) *tga.Artifact {
	return &tga.Artifact{
		Type: tga.EffectType, ID: traceB, TraceID: traceA, Digest: tga.Digest{8}, Meta: meta,
		Effect: &tga.ToolEffect{CallID: callA, Outcome: tga.Outcome{Status: status}},
	}
}

func note(kind tga.NoteKind, ts tga.Millis, body []byte) *tga.Note {
	return &tga.Note{TraceID: traceA, Kind: kind, TS: ts, Body: body}
}

func attempt(n uint32, ts tga.Millis, permit tga.Digest) *tga.Note {
	return note(tga.NoteAttempt, ts, Mark{Attempt: n, Epoch: 9, Permit: permit}.Body())
}

func notSent(n uint32) *tga.Note {
	return note(tga.NoteNotSent, t0, NotSent{Attempt: n, Reason: "dial refused"}.Body())
}

// wantCode fails the test unless err has that code; "" means that err must be nil.
func wantCode(t *testing.T, err error, code tga.Code, what string) {
	t.Helper()
	if tga.CodeOf(err) != code || (err == nil) != (code == "") {
		t.Errorf("%s: got %v, want %q", what, err, code)
	}
}

func TestReserveCountsTheEntryAsTheCallSays(t *testing.T) {
	permit := tga.Meta{tga.MetaAttempt: tga.AttemptExternal, tga.MetaPermitDigest: permitA.String()}
	one := Attempts{Count: 1, First: t0, Newest: t0, Epoch: 9}
	external := one
	external.External, external.Permit = true, permitA
	for _, c := range []struct {
		name string
		meta tga.Meta
		want Attempts
		code tga.Code
	}{
		{"absent", nil, one, ""},
		{"null", tga.Meta{tga.MetaAttempt: nil}, one, ""},
		{"fused", tga.Meta{tga.MetaAttempt: tga.AttemptFused}, one, ""},
		{"apart", tga.Meta{tga.MetaAttempt: tga.AttemptApart}, Attempts{}, ""},
		{"external", permit, external, ""},
		{"external without permit", tga.Meta{tga.MetaAttempt: tga.AttemptExternal}, Attempts{}, tga.ValidationError},
		{"external, zero permit", tga.Meta{tga.MetaAttempt: tga.AttemptExternal, tga.MetaPermitDigest: tga.Digest{}.String()}, Attempts{}, tga.ValidationError},
		{"none", tga.Meta{tga.MetaAttempt: tga.AttemptNone}, Attempts{}, tga.StateInvalidTransition},
		{"unknown word", tga.Meta{tga.MetaAttempt: "maybe"}, Attempts{}, tga.ValidationError},
		{"no string", tga.Meta{tga.MetaAttempt: tga.Number("1")}, Attempts{}, tga.ValidationError},
	} {
		r, err := Reserve(call(c.meta), 3, 9, t0)
		wantCode(t, err, c.code, c.name)
		if err != nil {
			continue
		}
		want := Record{Status: Reserved, RequestDigest: tga.RequestDigest(call(nil).Call.Call), ToolCallID: callA, TraceID: traceA, Seq: 3, Attempts: c.want}
		if r != want {
			t.Errorf("%s: got %+v, want %+v", c.name, r, want)
		}
	}
	keyless := call(nil)
	keyless.Call.IdempotencyKey = ""
	_, err := Reserve(keyless, 3, 9, t0)
	wantCode(t, err, tga.IdempotencyKeyRequired, "no key")
}

func reserved(t *testing.T, meta tga.Meta) Record {
	t.Helper()
	return must[Record](t)(Reserve(call(meta), 3, 9, t0))
}

func TestAttemptsAreNumberedWithoutGap(t *testing.T) {
	r := reserved(t, tga.Meta{tga.MetaAttempt: tga.AttemptApart})
	if r.InDoubt() {
		t.Error("no attempt, and in doubt")
	}
	for _, n := range []uint32{0, 2} {
		if _, err := r.ApplyNote(attempt(n, t0, tga.Digest{})); err == nil {
			t.Errorf("attempt %d of none was taken", n)
		}
	}
	r = must[Record](t)(r.ApplyNote(attempt(1, t0+5, tga.Digest{})))
	if !r.InDoubt() {
		t.Error("attempt 1, and not in doubt")
	}
	_, err := r.ApplyNote(attempt(1, t0, tga.Digest{}))
	wantCode(t, err, tga.StateSequenceGap, "attempt 1 again")
	// A clock that was set back moves the first attempt, never the newest.
	r = must[Record](t)(r.ApplyNote(attempt(2, t0-5, tga.Digest{})))
	if want := (Attempts{Count: 2, First: t0 - 5, Newest: t0 + 5, Epoch: 9}); r.Attempts != want {
		t.Errorf("got %+v, want %+v", r.Attempts, want)
	}
	other := attempt(3, t0, tga.Digest{})
	other.TraceID = traceB
	_, err = r.ApplyNote(other)
	wantCode(t, err, tga.StateInvalidTransition, "another trace's attempt")
}

func TestNotSentTwiceIsRefused(t *testing.T) {
	r := reserved(t, nil)
	r = must[Record](t)(r.ApplyNote(attempt(2, t0, tga.Digest{})))
	r = must[Record](t)(r.ApplyNote(notSent(2)))
	// Taking attempt 2 out twice would count attempt 1, which may have been sent, as
	// not sent.
	_, err := r.ApplyNote(notSent(2))
	wantCode(t, err, tga.StateInvalidTransition, "attempt 2 twice")
	if !r.InDoubt() {
		t.Error("attempt 1 is no longer in doubt")
	}
	for _, n := range []uint32{0, 3} {
		_, err := r.ApplyNote(notSent(n))
		if err == nil {
			t.Errorf("attempt %d of 2 was not sent, and is taken", n)
		}
	}
	// The attempt counted as sent stays so while more are marked and told.
	r = must[Record](t)(r.ApplyNote(attempt(3, t0, tga.Digest{})))
	_, err = r.ApplyNote(notSent(2))
	wantCode(t, err, tga.StateInvalidTransition, "attempt 2 after attempt 3")
	r = must[Record](t)(r.ApplyNote(notSent(1)))
	r = must[Record](t)(r.ApplyNote(notSent(3)))
	if r.InDoubt() || r.Attempts.Unsent != 3 {
		t.Errorf("each attempt was told not sent: %+v", r.Attempts)
	}
}

func TestNotSentReachesBack64Attempts(t *testing.T) {
	r := reserved(t, nil)
	for n := uint32(2); n <= 65; n++ {
		r = must[Record](t)(r.ApplyNote(attempt(n, t0, tga.Digest{})))
	}
	_, err := r.ApplyNote(notSent(1))
	wantCode(t, err, tga.StateInvalidTransition, "attempt 1 of 65")
	r = must[Record](t)(r.ApplyNote(notSent(2)))
	for n := uint32(3); n <= 65; n++ {
		r = must[Record](t)(r.ApplyNote(notSent(n)))
	}
	if !r.InDoubt() || r.Attempts.Unsent != 64 {
		t.Errorf("attempt 1 may have been sent: %+v", r.Attempts)
	}
	// The mask moves on and the count stays.
	r = must[Record](t)(r.ApplyNote(attempt(66, t0, tga.Digest{})))
	if r.Attempts.Unsent != 64 || r.flaw() != "" {
		t.Errorf("%+v: %s", r.Attempts, r.flaw())
	}
	got := must[*Record](t)(DecodeRecord(must[[]byte](t)(r.AppendBinary(nil))))
	if *got != r {
		t.Errorf("decoded %+v, want %+v", got, r)
	}
}

func TestRemoteExecutorsCallIsNeverTakenBack(t *testing.T) {
	r := reserved(t, nil)
	r = must[Record](t)(r.ApplyNote(attempt(2, t0, permitA)))
	if !r.Attempts.External || r.Attempts.Permit != permitA {
		t.Errorf("got %+v", r.Attempts)
	}
	r = must[Record](t)(r.ApplyNote(notSent(2)))
	_, err := r.ApplyNote(attempt(3, t0, tga.Digest{}))
	wantCode(t, err, tga.StateInvalidTransition, "a local attempt after an external one")
}

func TestNotesThatAreNotAttemptsChangeNothing(t *testing.T) {
	r := reserved(t, nil)
	for _, kind := range []tga.NoteKind{tga.NoteLateReply, "vote", ""} {
		if got := must[Record](t)(r.ApplyNote(note(kind, t0, []byte(`{}`)))); got != r {
			t.Errorf("%s: got %+v, want %+v", kind, got, r)
		}
	}
}

func TestSettleHappensOnceAndOnlyWithItsOwnEffect(t *testing.T) {
	r := reserved(t, nil)
	done := must[Record](t)(r.Settle(effect(tga.StatusSuccess, nil), 4))
	want := r
	want.Status, want.Class, want.EffectSeq, want.EffectDigest = Settled, ClassCommitted, 4, tga.Digest{8}
	if done != want || done.InDoubt() {
		t.Errorf("got %+v, want %+v", done, want)
	}
	otherCall, otherTrace, noEffect := effect(tga.StatusSuccess, nil), effect(tga.StatusSuccess, nil), call(nil)
	otherCall.Effect.CallID = traceB
	otherTrace.TraceID = traceB
	abandonedAs := func(class any) *tga.Artifact {
		e := effect(tga.StatusError, tga.Meta{tga.MetaOutcomeClass: class})
		e.Effect.Outcome.Error = &tga.OutcomeError{Code: string(tga.EffectInDoubt)}
		return e
	}
	for _, c := range []struct {
		name   string
		on     Record
		effect *tga.Artifact
		seq    uint64
		code   tga.Code
	}{
		{"second settle", done, effect(tga.StatusSuccess, nil), 5, tga.StateInvalidTransition},
		{"another call's effect", r, otherCall, 4, tga.StateInvalidTransition},
		{"another trace's effect", r, otherTrace, 4, tga.StateInvalidTransition},
		{"served effect", r, effect(tga.StatusSuccess, tga.Meta{tga.MetaReplayedFrom: traceB.String()}), 4, tga.StateInvalidTransition},
		{"no effect", r, noEffect, 4, tga.StateInvalidTransition},
		{"not after its call", r, effect(tga.StatusSuccess, nil), 3, tga.StateInvalidTransition},
		{"class that contradicts", r, effect(tga.StatusSuccess, tga.Meta{tga.MetaOutcomeClass: "retryable_failure"}), 4, tga.ValidationError},
		{"unknown class", r, effect(tga.StatusError, tga.Meta{tga.MetaOutcomeClass: "fine"}), 4, tga.ValidationError},
		{"abandoned as retryable", r, abandonedAs("retryable_failure"), 4, tga.ValidationError},
		{"abandoned", r, abandonedAs(nil), 4, ""},
	} {
		got, err := c.on.Settle(c.effect, c.seq)
		wantCode(t, err, c.code, c.name)
		if c.code == "" && !got.Abandoned {
			t.Errorf("%s: not marked abandoned", c.name)
		}
	}
	for _, n := range []*tga.Note{attempt(2, t0, tga.Digest{}), notSent(1)} {
		_, err := done.ApplyNote(n)
		wantCode(t, err, tga.StateInvalidTransition, string(n.Kind)+" after the effect")
	}
}

func TestClassAgreesWithStatus(t *testing.T) {
	for status, allowed := range classesOf {
		if got := ClassOf(effect(status, nil)); got != allowed[0] {
			t.Errorf("%s without class: got %v, want %v", status, got, allowed[0])
		}
		for class := ClassSuccess; class <= ClassNotSent; class++ {
			want := ClassNone
			for _, a := range allowed {
				if a == class {
					want = class
				}
			}
			if got := ClassOf(effect(status, tga.Meta{tga.MetaOutcomeClass: class.String()})); got != want {
				t.Errorf("%s with %v: got %v, want %v", status, class, got, want)
			}
			if class.Done() && class.Releases() {
				t.Errorf("%v is done and to be tried again", class)
			}
			// Only what is certainly no success may open a key again.
			if status == tga.StatusSuccess && want.Releases() || status != tga.StatusError && want == ClassNotSent {
				t.Errorf("%s may be %v", status, class)
			}
		}
	}
	if got := ClassOf(effect("", nil)); got != ClassNone {
		t.Errorf("an effect without a status is %v", got)
	}
}

// TestNotSentSettlesOnlyWhereNothingWasSent tries every combination of attempts and of the attempt
// that the effect names. The key is released only if each attempt is known as not sent.
func TestNotSentSettlesOnlyWhereNothingWasSent(t *testing.T) {
	n := func(n string) tga.Meta {
		return tga.Meta{tga.MetaOutcomeClass: "not_sent", tga.MetaAttempt: tga.Number(n)}
	}
	none := tga.Meta{tga.MetaOutcomeClass: "not_sent"}
	mark := func(i uint32) *tga.Note { return attempt(i, t0, tga.Digest{}) }
	for _, c := range []struct {
		name  string
		mode  string
		notes []*tga.Note
		meta  tga.Meta
		code  tga.Code
	}{
		{"its one attempt", tga.AttemptFused, nil, n("1"), ""},
		{"no attempt is named", tga.AttemptFused, nil, none, tga.StateInvalidTransition},
		{"one that was never marked", tga.AttemptFused, nil, n("2"), tga.StateInvalidTransition},
		{"no number", tga.AttemptFused, nil, n("one"), tga.StateInvalidTransition},
		{"never marked", tga.AttemptApart, nil, none, ""},
		{"never marked, and one is named", tga.AttemptApart, nil, n("1"), tga.StateInvalidTransition},
		{"an earlier one may have been sent", tga.AttemptFused, []*tga.Note{mark(2)}, n("2"), tga.StateInvalidTransition},
		{"a later one may have been sent", tga.AttemptFused, []*tga.Note{mark(2)}, n("1"), tga.StateInvalidTransition},
		{"the other was taken back", tga.AttemptFused, []*tga.Note{mark(2), notSent(1)}, n("2"), ""},
		{"taken back already", tga.AttemptFused, []*tga.Note{notSent(1)}, n("1"), tga.StateInvalidTransition},
		{"all were taken back", tga.AttemptFused, []*tga.Note{notSent(1)}, none, ""},
	} {
		r := reserved(t, tga.Meta{tga.MetaAttempt: c.mode})
		for _, note := range c.notes {
			r = must[Record](t)(r.ApplyNote(note))
		}
		got, err := r.Settle(effect(tga.StatusError, c.meta), 4)
		wantCode(t, err, c.code, c.name)
		if c.code == "" && (got.Class != ClassNotSent || got.Attempts.Unsent != got.Attempts.Count || got.flaw() != "") {
			t.Errorf("%s: got %+v, %s", c.name, got, got.flaw())
		}
	}
}

func TestExpiredRecordKeepsDigestAndOutcome(t *testing.T) {
	r := reserved(t, nil)
	_, err := r.Expire()
	wantCode(t, err, tga.StateInvalidTransition, "expire a reservation")
	r = must[Record](t)(r.Settle(effect(tga.StatusFailure, nil), 4))
	x := must[Record](t)(r.Expire())
	if x != (Record{Status: Expired, RequestDigest: r.RequestDigest, Class: ClassPermanent}) {
		t.Errorf("got %+v", x)
	}
	if b := must[[]byte](t)(x.AppendBinary(nil)); len(b) != expiredSize {
		t.Errorf("%d bytes, want %d", len(b), expiredSize)
	}
}

func TestRecordIsTheFoldOfItsTrace(t *testing.T) {
	e := effect(tga.StatusSuccess, nil)
	apart := call(tga.Meta{tga.MetaAttempt: tga.AttemptApart})
	late := note(tga.NoteLateReply, t0, []byte(`{"attempt":1}`))
	rec, touches, err := FromTrace(apart, 3, 1, t0, e, 4, []tga.Note{*attempt(1, t0, tga.Digest{}), *notSent(1), *attempt(2, t0+1, tga.Digest{}), *late})
	if err != nil || !touches || rec.Status != Settled || rec.Attempts.Count != 2 || rec.Attempts.Unsent != 1 || rec.EffectSeq != 4 {
		t.Errorf("got %+v, %v, %v", rec, touches, err)
	}
	none := call(tga.Meta{tga.MetaAttempt: tga.AttemptNone})
	for _, c := range []*tga.Artifact{nil, none} {
		if rec, touches, err := FromTrace(c, 3, 1, t0, nil, 0, nil); rec != (Record{}) || touches || err != nil {
			t.Errorf("got %+v, %v, %v, want a trace that never held its key", rec, touches, err)
		}
	}
	if _, _, err := FromTrace(apart, 3, 1, t0, nil, 0, []tga.Note{*attempt(2, t0, tga.Digest{})}); !errors.Is(err, tga.StateSequenceGap) {
		t.Errorf("a log whose attempts have a gap: %v", err)
	}
}

func TestNoteBodiesHaveOneForm(t *testing.T) {
	for _, m := range []Mark{
		{Attempt: 1, Epoch: 1},
		{Attempt: 4294967295, Epoch: 18446744073709551615, Permit: permitA, BeginID: "a\"\\\b\t\n\f\r\x01é\u2028😀</"},
	} {
		got, err := ParseMark(m.Body())
		if err != nil || got != m {
			t.Errorf("%s: got %+v, %v", m.Body(), got, err)
		}
		canonical, err := tga.Canonicalize(m.Body(), tga.Limits{})
		if err != nil || string(canonical) != string(m.Body()) {
			t.Errorf("%s is not canonical: %s, %v", m.Body(), canonical, err)
		}
	}
	for _, ms := range []int64{0, 1, tga.MaxRetryAfter.Milliseconds()} {
		n := NotSent{Attempt: 2, Reason: "dial tcp: \"refused\"", RetryAfterMS: ms}
		if got, err := ParseNotSent(n.Body()); err != nil || got != n {
			t.Errorf("got %+v, %v", got, err)
		}
		if canonical, err := tga.Canonicalize(n.Body(), tga.Limits{}); err != nil || string(canonical) != string(n.Body()) {
			t.Errorf("%s is not canonical: %s, %v", n.Body(), canonical, err)
		}
	}
	for _, body := range []string{
		``, `null`, `[]`, `{}`, `{"attempt":1}`,
		`{"attempt":0,"epoch":"1","executor":"local"}`,
		`{"attempt":4294967296,"epoch":"1","executor":"local"}`,
		`{"attempt":1,"epoch":1,"executor":"local"}`,
		`{"attempt":1,"epoch":"01","executor":"local"}`,
		`{"attempt":1,"epoch":"-1","executor":"local"}`,
		`{"attempt":1,"epoch":"1","executor":"external"}`,
		`{"attempt":1,"epoch":"1","executor":"nobody"}`,
		`{"attempt":1,"epoch":"1","executor":"local","more":1}`,
		`{"Attempt":1,"epoch":"1","executor":"local"}`,
		`{"attempt":1,"begin_id":"","epoch":"1","executor":"local"}`,
		`{"attempt":1,"begin_id":3,"epoch":"1","executor":"local"}`,
		`{"attempt":1, "epoch":"1","executor":"local"}`,
		`{"epoch":"1","attempt":1,"executor":"local"}`,
		`{"attempt":1,"epoch":"1","executor":"local","permit_digest":"` + permitA.String() + `"}`,
		`{"attempt":1,"epoch":"1","executor":"external","permit_digest":"0300"}`,
	} {
		if m, err := ParseMark([]byte(body)); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: got %+v, %v", body, m, err)
		}
	}
	for _, body := range []string{``, `null`, `{}`, `{"attempt":1}`, `{"attempt":0,"reason":"x"}`, `{"attempt":1,"reason":"x","y":0}`, `{"attempt":1,"reason":4}`,
		`{"attempt":1,"reason":"x","retry_after_ms":0}`, `{"attempt":1,"reason":"x","retry_after_ms":-1}`,
		`{"attempt":1,"reason":"x","retry_after_ms":"1"}`, `{"attempt":1,"reason":"x","retry_after_ms":86400001}`} {
		if n, err := ParseNotSent([]byte(body)); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: got %+v, %v", body, n, err)
		}
	}
}

func TestTimeFencesOnlyAnAttemptWhoseSenderIsKnownDead(t *testing.T) {
	l := Licence{Kind: Probe, MaxInFlight: time.Second}
	local := &Record{Status: Reserved, Attempts: Attempts{Count: 1, First: t0, Newest: t0}}
	external := *local
	external.Attempts.External = true
	for _, c := range []struct {
		name        string
		l           Licence
		r           *Record
		dead, asked tga.Millis
		want        bool
	}{
		{"asked later than max_in_flight", l, local, t0 + 10, t0 + 1011, true},
		{"asked at max_in_flight", l, local, t0 + 10, t0 + 1010, false},
		{"sender not known dead", l, local, 0, t0 + 99999, false},
		{"died before the attempt", l, local, t0 - 1, t0 + 99999, false},
		{"remote executor", l, &external, t0 + 10, t0 + 99999, false},
		{"no max_in_flight", Licence{Kind: Probe}, local, t0 + 10, t0 + 99999, false},
		{"another licence", Licence{Kind: DedupeArgs, MaxInFlight: time.Second}, local, t0 + 10, t0 + 99999, false},
	} {
		if got := c.l.FencedByTime(c.r, c.dead, c.asked); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestNamespacesKeepKeysApart(t *testing.T) {
	a, b := KeyOf("", call(nil)), KeyOf("tenant", call(nil))
	if a.Namespace != tga.DefaultNamespace || a.Hash() == b.Hash() || a.Hash() != KeyOf(tga.DefaultNamespace, call(nil)).Hash() {
		t.Errorf("%+v and %+v", a, b)
	}
	if a != (Key{"default", "payments", "charge", "order-1"}) {
		t.Errorf("got %+v", a)
	}
}
