package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// allows says how much a decision allows for a call in doubt.
func allows(a Action) int {
	return -strictness[a] // Resend, ProbeFirst, Doubt in this order; the same of every other
}

// TestClaimAloneOnlyTightens: if the operator does not accept claims, the resulting licence never
// allows what the operator's licence or the claim forbids. A claim is refused exactly if it would
// allow more than the operator's licence.
func TestClaimAloneOnlyTightens(t *testing.T) {
	taken, refused := 0, 0
	for _, own := range licencesOf {
		for _, claim := range licencesOf {
			held, err := Claimed(own, &claim, false, tga.ClassRead), CheckClaim(own, &claim, false, tga.ClassRead)
			asked := claim
			if asked.Kind == DedupeKey {
				asked.Margin = own.margin()
			}
			more := false
			for _, r := range records() {
				for _, now := range []tga.Millis{t0 + 1, t0 + 20_000, t0 + 60_000, t0 + 3_000_000, t0 + 6_000_000, t0 + 90_000_000} {
					q := Query{Record: r, Trace: traceA, Request: request, Holder: HolderGone, Now: now, SendTimeout: time.Second, Remote: true}
					decide := func(l Licence) Decision { q.Licence = l; return Decide(q) }
					a, b, got := decide(own), decide(asked), decide(held)
					if allows(got.Action) > min(allows(a.Action), allows(b.Action)) {
						t.Errorf("%+v, claimed %+v: %v at %d of %+v, and alone they say %v and %v", own, claim, got.Action, now, r, a.Action, b.Action)
					}
					more = more || allows(b.Action) > allows(a.Action)
					if r != nil && r.InDoubt() {
						fences := func(l Licence) bool { return l.FencedByTime(r, r.Attempts.Newest, now) }
						more = more || own.Kind == Probe && fences(asked) && !fences(own)
						if own.Kind == Probe && fences(held) && !fences(own) {
							t.Errorf("%+v, claimed %+v: time fences attempts sooner", own, claim)
						}
					}
				}
			}
			switch {
			case more != (err != nil):
				t.Errorf("%+v, claimed %+v: allows more is %v, and the answer %v", own, claim, more, err)
			case err == nil:
				taken++
			case !errors.Is(err, tga.PermissionDenied):
				t.Errorf("%+v, claimed %+v: %v", own, claim, err)
			default:
				refused++
			}
		}
	}
	if taken < 10 || refused < 10 {
		t.Errorf("%d claims were taken and %d refused: too few to say anything", taken, refused)
	}
}

// TestClaimThatCountsIsTakenWithinBounds: the operator's times bound those of a claim, whatever the
// operator's licence is.
func TestClaimThatCountsIsTakenWithinBounds(t *testing.T) {
	day, hour := 24*time.Hour, time.Hour
	for _, c := range []struct {
		about      string
		own, claim Licence
		class      string
		want       string
		code       tga.Code
	}{
		{"without bounds it is taken as it is", Licence{}, Licence{Kind: DedupeKey, Window: hour}, tga.ClassWrite, "dedupe_key 3600000 60000", ""},
		{"a window that is not named is the operator's", Licence{Window: day, Margin: time.Second}, Licence{Kind: DedupeKey}, tga.ClassWrite, "dedupe_key 86400000 1000", ""},
		{"a shorter window is the program's", Licence{Kind: DedupeKey, Window: day}, Licence{Kind: DedupeKey, Window: hour}, tga.ClassWrite, "dedupe_key 3600000 60000", ""},
		{"a longer window is refused", Licence{Window: hour}, Licence{Kind: DedupeKey, Window: day}, tga.ClassWrite, "dedupe_key 3600000 60000", tga.PermissionDenied},
		{"nobody names the window", Licence{Kind: DedupeArgs}, Licence{Kind: DedupeKey}, tga.ClassWrite, "park", tga.ValidationError},
		{"a time in flight that is not named is the operator's", Licence{MaxInFlight: hour}, Licence{Kind: Probe}, tga.ClassWrite, "probe 3600000", ""},
		{"a longer time in flight is the program's", Licence{MaxInFlight: time.Minute}, Licence{Kind: Probe, MaxInFlight: hour}, tga.ClassWrite, "probe 3600000", ""},
		{"a shorter time in flight is refused", Licence{MaxInFlight: hour}, Licence{Kind: Probe, MaxInFlight: time.Minute}, tga.ClassWrite, "probe 3600000", tga.PermissionDenied},
		{"a time of another licence is refused", Licence{}, Licence{Kind: DedupeArgs, Window: hour}, tga.ClassWrite, "park", tga.ValidationError},
		{"the margin is the operator's", Licence{Window: hour, Margin: 2 * time.Minute}, Licence{Kind: DedupeKey, Margin: time.Second}, tga.ClassWrite, "dedupe_key 3600000 120000", ""},
		{"the margin of another licence is not looked at", Licence{}, Licence{Kind: DedupeArgs, Margin: time.Second}, tga.ClassWrite, "dedupe_args", ""},
		{"it may be stricter", Licence{Kind: DedupeArgs}, Licence{}, tga.ClassWrite, "park", ""},
		{"it may be laxer", Licence{}, Licence{Kind: DedupeArgs}, tga.ClassWrite, "dedupe_args", ""},
		{"only a read tool has no effect", Licence{Kind: DedupeArgs}, Licence{Kind: ReadOnly}, tga.ClassWrite, "park", tga.ValidationError},
		{"a read tool may be read again", Licence{Kind: Park}, Licence{Kind: ReadOnly}, tga.ClassRead, "read_only", ""},
	} {
		held, err := Claimed(c.own, &c.claim, true, c.class), CheckClaim(c.own, &c.claim, true, c.class)
		if held.Attested() != c.want || tga.CodeOf(err) != c.code {
			t.Errorf("%s: got %q, %v; want %q, %s", c.about, held.Attested(), err, c.want, c.code)
		}
	}
	own := Licence{Kind: DedupeKey, Window: time.Hour}
	if held, err := Claimed(own, nil, true, tga.ClassWrite), CheckClaim(own, nil, true, tga.ClassWrite); held != own || err != nil {
		t.Errorf("without a claim: %+v, %v", held, err)
	}
}
