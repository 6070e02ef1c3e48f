package ledger

import (
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

func settled(t *testing.T, class Class) Record {
	t.Helper()
	status := tga.StatusSuccess
	if class != ClassCommitted && class != ClassSuccess {
		status = tga.StatusFailure
	}
	return must[Record](t)(reserved(t, nil).Settle(effect(status, tga.Meta{tga.MetaOutcomeClass: class.String()}), 4))
}

func confirmation(t *testing.T, finding string) *tga.Note {
	t.Helper()
	return note(tga.NoteConfirmation, t0+9, must[[]byte](t)(Confirmation{Checked: 2, EvidenceDigest: tga.Digest{5}, Finding: finding, MismatchDigest: tga.Digest{6}, Mismatches: 1}.Body()))
}

func TestConfirmationMarksASettledRecord(t *testing.T) {
	for finding, at := range map[string]tga.Millis{Confirmed: t0 + 9, Mismatched: 0, Unconfirmed: 0, Rejected: 0} {
		r := must[Record](t)(settled(t, ClassCommitted).ApplyNote(confirmation(t, finding)))
		if r.ConfirmedAt != at || r.EvidenceDigest.IsZero() != (at == 0) || r.Status != Settled {
			t.Errorf("%s: %+v", finding, r)
		}
		b := must[[]byte](t)(r.AppendBinary(nil))
		if back, err := DecodeRecord(b); err != nil || *back != r {
			t.Errorf("%s: read back %+v, %v", finding, back, err)
		}
	}
	_, err := reserved(t, nil).ApplyNote(confirmation(t, Confirmed))
	wantCode(t, err, tga.StateInvalidTransition, "a reserved record")
	_, err = settled(t, ClassCommitted).ApplyNote(confirmation(t, "certain"))
	wantCode(t, err, tga.ValidationError, "an unknown finding")
	other := confirmation(t, Confirmed)
	other.TraceID = traceB
	_, err = settled(t, ClassCommitted).ApplyNote(other)
	wantCode(t, err, tga.StateInvalidTransition, "another trace's")
}

func TestCompensationIsOnceAndOfWhatChangedTheWorld(t *testing.T) {
	undone := note(tga.NoteCompensated, t0, must[[]byte](t)(Undone{EffectDigest: tga.Digest{1}, TraceID: traceB}.Body()))
	for class, code := range map[Class]tga.Code{
		ClassCommitted: "", ClassCompensatable: "",
		ClassSuccess: tga.StateInvalidTransition, ClassRetryable: tga.StateInvalidTransition, ClassPermanent: tga.StateInvalidTransition,
	} {
		r, err := settled(t, class).ApplyNote(undone)
		wantCode(t, err, code, class.String())
		if err != nil {
			continue
		}
		if r.Class != ClassCompensated || !r.Class.Done() {
			t.Errorf("%v: %+v", class, r)
		}
		_, err = r.ApplyNote(undone)
		wantCode(t, err, tga.StateInvalidTransition, "a second time")
	}
}

// TestRecordFollowsNotesOnBothSidesOfTheEffect: attempts come before the effect, confirmations
// after it, and the fold of the whole trace is the record.
func TestRecordFollowsNotesOnBothSidesOfTheEffect(t *testing.T) {
	notes := []tga.Note{*attempt(2, t0+1, tga.Digest{}), *confirmation(t, Mismatched), *confirmation(t, Confirmed)}
	r, touches, err := FromTrace(call(nil), 3, 9, t0, effect(tga.StatusSuccess, nil), 4, notes)
	if err != nil || !touches {
		t.Fatal(touches, err)
	}
	if r.Attempts.Count != 2 || r.Status != Settled || r.ConfirmedAt != t0+9 || r.EvidenceDigest != (tga.Digest{5}) {
		t.Errorf("%+v", r)
	}
}

func TestBodiesOfLaterNotesHaveOneForm(t *testing.T) {
	good := map[string]func([]byte) error{
		`{"checked":2,"evidence_digest":"` + tga.Digest{5}.String() + `","finding":"confirmed","mismatches":0,"unchecked":1}`: func(b []byte) error { _, err := ParseConfirmation(b); return err },
		`{"effect_digest":"` + tga.Digest{1}.String() + `","trace_id":"` + traceB.String() + `"}`:                             func(b []byte) error { _, err := ParseUndone(b); return err },
	}
	for body, parse := range good {
		if err := parse([]byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		for _, bad := range []string{body + " ", body[:len(body)-1] + `,"x":1}`, "{}", "[]", "", body[:len(body)-1]} {
			if err := parse([]byte(bad)); tga.CodeOf(err) != tga.ValidationError {
				t.Errorf("%s: %v", bad, err)
			}
		}
	}
}

func TestDerivedKeys(t *testing.T) {
	for _, v := range vectors(t).DerivedKeys {
		got, err := DeriveKey(v.Scope, v.Step, v.Tool, []byte(v.Args), v.Occurrence)
		if err != nil || got != v.Key {
			t.Errorf("%+v: got %s, %v", v, got, err)
		}
	}
	for _, parts := range [][4]string{{"a\x00", "b", "t", "{}"}, {"a", "\x00b", "t", "{}"}, {"a", "b", "t\x00", "{}"}, {"a", "b", "t", "{\x00}"}} {
		_, err := DeriveKey(parts[0], parts[1], parts[2], []byte(parts[3]), 0)
		wantCode(t, err, tga.ValidationError, "a zero byte")
	}
	if len(vectors(t).DerivedKeys) < 5 {
		t.Error("the vectors are missing")
	}
}
