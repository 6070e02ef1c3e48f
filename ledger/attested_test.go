package ledger

import (
	"testing"
	"time"
)

// licencesOf has one licence of each kind, and some that allow less than another of the same kind.
var licencesOf = []Licence{
	{Kind: Park}, {Kind: Probe}, {Kind: Probe, MaxInFlight: time.Minute}, {Kind: DedupeArgs}, {Kind: ReadOnly},
	{Kind: DedupeKey, Window: time.Hour}, {Kind: DedupeKey, Window: 2 * time.Hour, Margin: time.Second}, {Kind: DedupeKey, Window: 90 * time.Second},
}

// TestReSendTakesBothLicences: for every record, the decision under two licences is that of the
// licence which allows less, in either order.
func TestReSendTakesBothLicences(t *testing.T) {
	resent := 0
	for _, r := range records() {
		for _, now := range licencesOf {
			for _, then := range licencesOf {
				q := Query{Record: r, Trace: traceA, Request: request, Holder: HolderGone, Now: t0 + 20_000, SendTimeout: time.Second}
				alone := func(l Licence) Decision { q.Licence, q.Attempted = l, nil; return Decide(q) }
				a, b := alone(now), alone(then)
				q.Licence, q.Attempted = now, &then
				both := Decide(q)
				if both.Action == Resend {
					resent++
				}
				switch {
				case both != a && both != b:
					t.Errorf("%+v under %+v and %+v: %+v is the decision of neither", r, now, then, both)
				case (both.Action == Resend) != (a.Action == Resend && b.Action == Resend):
					t.Errorf("%+v under %+v and %+v: %v, alone %v and %v", r, now, then, both.Action, a.Action, b.Action)
				case (a.Action == Doubt || b.Action == Doubt) && both.Action != Doubt:
					t.Errorf("%+v under %+v and %+v: %v, and one of them doubts", r, now, then, both.Action)
				case both.Action == Resend && (a.Within != 0 && (both.Within == 0 || both.Within > a.Within) || b.Within != 0 && (both.Within == 0 || both.Within > b.Within)):
					t.Errorf("%+v under %+v and %+v: within %v, alone %v and %v", r, now, then, both.Within, a.Within, b.Within)
				}
				if r == nil {
					continue
				}
				q.Licence, q.Attempted = now, nil
				left, bounded := q.SendWithin()
				q.Licence = then
				other, otherBounded := q.SendWithin()
				q.Licence, q.Attempted = now, &then
				got, gotBounded := q.SendWithin()
				if gotBounded != (bounded || otherBounded) || bounded && got > left || otherBounded && got > other {
					t.Errorf("%+v under %+v and %+v: send within %v %v, alone %v %v and %v %v", r, now, then, got, gotBounded, left, bounded, other, otherBounded)
				}
			}
		}
	}
	if resent == 0 {
		t.Error("no pair of licences allowed a re-send")
	}
}

// TestAttestedIsReadBack: the stored form of a licence allows what the licence allows, and no other
// text is accepted as one.
func TestAttestedIsReadBack(t *testing.T) {
	for _, l := range licencesOf {
		got, err := ParseAttested(l.Attested())
		if l.Kind == DedupeKey && l.Margin == 0 {
			l.Margin = DefaultMargin
		}
		if err != nil || got != l {
			t.Errorf("%+v is kept as %q and read as %+v, %v", l, l.Attested(), got, err)
		}
	}
	for l, want := range map[Licence]string{
		{Kind: DedupeKey, Window: 24*time.Hour + 999*time.Microsecond, Margin: time.Second + 1}: "dedupe_key 86400000 1001",
		{Kind: Probe, MaxInFlight: 1}: "probe 1",
		{}:                            "park",
	} {
		if got := l.Attested(); got != want {
			t.Errorf("%+v is kept as %q, want %q", l, got, want)
		}
	}
	for _, s := range []string{"dedupe_key 0 1", "dedupe_key 9223372036854 1", "dedupe_key 1 9223372036854"} { // the limits of a number
		if l, err := ParseAttested(s); err != nil || l.Attested() != s {
			t.Errorf("%q is read as %+v, %v", s, l, err)
		}
	}
	for _, s := range []string{
		"dedupe_key -1 1", "dedupe_key 9223372036855 1",
		"", "none", "park 1", "probe 0", "probe 01", "probe 1 2", "probe -1", "dedupe_key", "dedupe_key 1", "dedupe_key 1 2 3",
		"dedupe_key  1 2", "dedupe_key 1 9223372036855", "dedupe_key x 1", "dedupe_args ", "Park", "read_only 0",
	} {
		if l, err := ParseAttested(s); err == nil {
			t.Errorf("%q is read as %+v", s, l)
		}
	}
}
