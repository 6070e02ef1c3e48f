package ledger

import (
	"testing"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

var (
	traceA   = tga.ID{6: 0x70, 8: 0x80, 15: 1}
	traceB   = tga.ID{6: 0x70, 8: 0x80, 15: 2}
	callA    = tga.ID{6: 0x70, 8: 0x80, 15: 3}
	request  = tga.Digest{1}
	request2 = tga.Digest{2}
	permitA  = tga.Digest{3}
)

const t0 tga.Millis = 1_768_503_600_000

// records yields every shape of a record that the codec accepts. A shape that cannot be stored
// cannot occur in a query.
func records() []*Record {
	out := []*Record{nil}
	attempts := []Attempts{
		{},
		{Count: 1},
		{Count: 1, Unsent: 1, UnsentMask: 1},
		{Count: 2, Unsent: 1, UnsentMask: 1},
		{Count: 2, Unsent: 1, UnsentMask: 2},
		{Count: 2, Unsent: 2, UnsentMask: 3},
	}
	for status := Reserved; status <= Expired; status++ {
		for _, a := range attempts {
			for _, external := range []bool{false, true} {
				for class := ClassNone; class <= ClassNotSent; class++ {
					for _, abandoned := range []bool{false, true} {
						r := &Record{Status: status, RequestDigest: request, Class: class, Abandoned: abandoned}
						if status != Expired {
							if a.Count > 0 {
								a.First, a.Newest, a.Epoch = t0, t0, 7
							}
							r.TraceID, r.ToolCallID, r.Seq, r.Attempts = traceA, callA, 3, a
							if r.Attempts.External = external; external {
								r.Attempts.Permit = permitA
							}
						}
						if status == Settled {
							r.EffectSeq, r.EffectDigest = 4, tga.Digest{9}
						}
						if r.flaw() == "" {
							out = append(out, r)
						}
					}
				}
			}
		}
	}
	return out
}

// clock is one situation of a dedupe_key licence and its result, worked out by hand: a window of
// one hour from t0, a margin of one minute.
type clock struct {
	now, newest tga.Millis
	send        time.Duration
	open        bool
}

const millisInMinute = 60_000

var clocks = []clock{
	{t0 + 5, t0, 30 * time.Second, true},
	{t0 + 5, t0 + 5, 30 * time.Second, true},
	{t0 + 5, t0 + 6, 30 * time.Second, false},
	{t0 - 1, t0 - 1, 30 * time.Second, false}, // behind the attempt itself
	{t0 + 58*millisInMinute - 1, t0, time.Minute, true},
	{t0 + 58*millisInMinute, t0, time.Minute, false},
	{t0 + 58*millisInMinute - 1, t0, time.Minute + 1, false}, // a nanosecond counts as a millisecond
	{t0 + 5, t0, 0, false},
	{t0 + 5, t0, -1, false},
}

// TestDecisionGrid tries every combination and compares the decision with the promises of the
// module, which are written here independently of the table of rules.
func TestDecisionGrid(t *testing.T) {
	reached := map[string]int{}
	n := 0
	for _, r := range records() {
		for i := range 1 << 7 {
			bit := func(k int) bool { return i>>k&1 == 1 }
			q := Query{Record: r, Trace: traceA, Request: request, Retry: bit(2), Remote: bit(3), Suspect: bit(5), Waited: bit(6)}
			if bit(0) {
				q.Trace = traceB
			}
			if bit(1) {
				q.Request = request2
			}
			if bit(4) {
				q.Profile = Spec93
			}
			for holder := HolderUnknown; holder <= HolderGone; holder++ {
				q.Holder = holder
				for kind := Park; kind <= ReadOnly; kind++ {
					q.Licence = Licence{Kind: kind}
					if kind == DedupeKey {
						q.Licence.Window, q.Licence.Margin = time.Hour, time.Minute
					}
					for _, c := range clocks {
						q.Now, q.NewestTS, q.SendTimeout = c.now, c.newest, c.send
						before := Record{}
						if r != nil {
							before = *r
						}
						d := Decide(q)
						if r != nil && *r != before {
							t.Fatalf("%+v: Decide changed the record", q)
						}
						reached[d.Reason]++
						n++
						if why := broken(q, c.open, d); why != "" {
							t.Fatalf("%s:\nrecord %+v\nquery %+v\ndecision %+v", why, r, q, d)
						}
					}
				}
			}
		}
	}
	for _, r := range rules {
		switch hits := reached[r.reason]; {
		case r.when == 0 && hits != 0:
			t.Errorf("the catch-all decided %d times: some case has no rule", hits)
		case r.when != 0 && hits == 0:
			t.Errorf("rule %q is never reached", r.reason)
		}
	}
	t.Logf("%d combinations", n)
}

// broken returns the promise that d breaks, "" for none.
func broken(q Query, windowOpen bool, d Decision) string {
	sends := d.Action == Send || d.Action == Resend
	var (
		r        = q.Record
		kind     = q.Licence.Kind
		own      = r != nil && r.TraceID == q.Trace
		same     = r != nil && r.RequestDigest == q.Request
		settled  = r != nil && r.Status == Settled
		reserved = r != nil && r.Status == Reserved
		doubtful = r != nil && r.InDoubt()
		free     = settled && r.Class == ClassNotSent
		// asked is an explicit new attempt after a definite non-execution.
		asked = settled && r.Class == ClassRetryable && q.Retry && q.Profile == Strict
	)
	licensed := kind == DedupeArgs || kind == ReadOnly || kind == DedupeKey && windowOpen
	for _, p := range []struct {
		ok   bool
		says string
	}{
		{d.Action != 0 && d.Reason != "" && d.Action.String() != "", "a decision has an action and a reason"},
		{sends == (d.Attempt > 0), "an attempt number goes with a send and with nothing else"},
		{(d.Code == "") == (sends || d.Action == Serve || d.Action == ProbeFirst), "an action that may give no effect has a code"},
		{r != nil || q.Suspect || d.Action == Send && d.Attempt == 1, "an unused key is sent"},
		{!q.Suspect || !sends && d.Action != ProbeFirst, "where the log may have lost something, nothing is sent"},

		{r == nil || same == (d.Action != Conflict), "another digest is a conflict, and only that is"},
		{!(same && r.Status == Expired) || d.Action == KeyExpired, "an expired key is never sent again"},
		{d.Action != KeyExpired || r.Status == Expired, "only an expired key has expired"},

		{!settled || !sends || (asked || free && !q.Waited) && !own && same && !r.Abandoned && d.Action == Send && d.Attempt == 1,
			"a settled key is sent only where nothing was sent under it, or by an explicit new attempt after a definite non-execution, under strict"},
		{!(free && same) || own || q.Waited || q.Suspect || d.Action == Send, "a key under which nothing was sent is sent, in both profiles and without a flag"},
		{!(free && same && q.Waited) || d.Action == Serve, "who waited for a call shares its outcome"},
		{!free || r.Attempts.Count == r.Attempts.Unsent, "a key is free only where no attempt may have been sent"},
		{!(settled && same && r.Abandoned) || d.Action == Abandoned && d.Code == tga.EffectInDoubt, "an abandoned call stays in doubt"},
		{d.Action != Serve || settled && same && !r.Abandoned, "only a settled effect is served"},
		{!(settled && q.Profile == Spec93) || !sends || free, "spec-9.3 never sends a settled key under which something was sent"},

		{!(reserved && sends) || own && same, "a reserved call is sent by its own trace"},
		{!(reserved && same && !own) || d.Action == Wait || d.Action == Doubt, "another trace waits, or is told of the doubt"},
		{!(reserved && same && !own && d.Action == Doubt) || doubtful && q.Holder == HolderGone, "another trace is told of doubt only where there is doubt"},
		{d.Action != Resend || doubtful && q.Holder == HolderGone && licensed && d.Attempt == r.Attempts.Count+1, "a re-send needs doubt, a holder that is gone, a licence and the next number"},
		{!(doubtful && d.Action == Send), "a call in doubt is never sent as if it were the first"},
		{!(doubtful && kind == Park) || !sends && d.Action != ProbeFirst, "park never sends and never asks"},
		{!(doubtful && kind == Probe) || !sends, "probe asks before it sends"},
		{!(doubtful && same && q.Holder != HolderGone) || d.Action == Wait, "while the holder may run the call everybody waits"},
		{!(reserved && r.Attempts.External && !q.Remote) || !sends && (d.Action != ProbeFirst || kind == Probe), "the daemon never sends a remote executor's call; it may ask"},
		{!(reserved && own && same && !doubtful && (q.Remote || !r.Attempts.External) && !q.Suspect) || d.Action == Send && d.Attempt == r.Attempts.Count+1, "a call that was provably not sent is sent, whatever the licence"},
		{d.Action != ProbeFirst || kind == Probe && own && doubtful && q.Holder == HolderGone, "a probe needs doubt and its licence"},
	} {
		if !p.ok {
			return p.says
		}
	}
	return ""
}

func TestProbeNeverLicensesAnUnfencedSend(t *testing.T) {
	for _, r := range records() {
		if r == nil {
			continue
		}
		for answer := ProbeUnknown; answer <= ProbeNotRan; answer++ {
			for _, fenced := range []bool{false, true} {
				d := DecideProbe(r, answer, fenced)
				want := Doubt
				switch {
				case r.InDoubt() && answer == ProbeRan:
					want = RecordEffect
				case r.InDoubt() && answer == ProbeNotRan && fenced:
					want = Resend
				}
				if d.Action != want || (want == Resend) != (d.Attempt == r.Attempts.Count+1) {
					t.Fatalf("%+v, answer %v, fenced %v: got %+v, want %v", r, answer, fenced, d, want)
				}
			}
		}
	}
}

// TestResendNamesWhatIsLeftOfItsWindow: Within is what is left of the window for a re-send under
// dedupe_key. For other licences and other actions it is 0.
func TestResendNamesWhatIsLeftOfItsWindow(t *testing.T) {
	r := Record{Status: Reserved, RequestDigest: request, TraceID: traceA, ToolCallID: callA, Seq: 3, Attempts: Attempts{Count: 1, First: t0, Newest: t0, Epoch: 7}}
	ask := func(kind LicenceKind, after tga.Millis) Decision {
		l := Licence{Kind: kind}
		if kind == DedupeKey {
			l.Window, l.Margin = time.Hour, time.Minute
		}
		return Decide(Query{Record: &r, Trace: traceA, Request: request, Licence: l, Holder: HolderGone, Now: t0 + after, NewestTS: t0, SendTimeout: time.Minute})
	}
	for _, x := range []struct {
		kind   LicenceKind
		after  tga.Millis
		action Action
		within time.Duration
	}{
		{DedupeKey, 0, Resend, 58 * time.Minute},
		{DedupeKey, 58*millisInMinute - 1, Resend, time.Millisecond},
		{DedupeKey, 58 * millisInMinute, Doubt, 0},
		{DedupeArgs, 0, Resend, 0},
		{ReadOnly, 0, Resend, 0},
		{Probe, 0, ProbeFirst, 0},
		{Park, 0, Doubt, 0},
	} {
		if d := ask(x.kind, x.after); d.Action != x.action || d.Within != x.within {
			t.Errorf("%v after %d ms: %v within %v, want %v within %v", x.kind, x.after, d.Action, d.Within, x.action, x.within)
		}
	}
	// A wait under dedupe_key is no re-send.
	if d := Decide(Query{Record: &r, Trace: traceA, Request: request, Licence: Licence{Kind: DedupeKey, Window: time.Hour}, Holder: HolderAlive, Remote: true, Now: t0, NewestTS: t0, SendTimeout: time.Minute}); d.Action == Resend || d.Within != 0 {
		t.Errorf("%+v", d)
	}
}
