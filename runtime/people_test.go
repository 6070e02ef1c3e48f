package runtime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestNamesOfPeopleAreBounded: a name has 1 to 255 bytes, and so has the id of a begin.
func TestNamesOfPeopleAreBounded(t *testing.T) {
	for n, taken := range map[int]bool{0: false, 1: true, 255: true, 256: false} {
		who := strings.Repeat("a", n)
		refused := func(what string, err error) {
			t.Helper()
			if got := tga.CodeOf(err) == tga.ValidationError; got == taken {
				t.Errorf("%s with %d bytes: %v", what, n, err)
			}
		}
		b := setup(t, park, needsApproval(1, 0))
		res, _ := b.call(charge("k"))
		_, err := b.rt.Decide(t.Context(), res.TraceID, vote(who, true))
		refused("a vote", err)
		_, err = b.rt.Compensate(t.Context(), res.TraceID, who)
		refused("an undoing", err)
		_, err = b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k2"), BeginID: who})
		refused("a begin", err)
	}
}

// TestWaitingRequestSaysWhatItWaitsFor: how many votes are missing, and who cannot give one.
func TestWaitingRequestSaysWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		submitter string
		self      bool
		barred    bool
	}{{"ann", false, true}, {"ann", true, false}, {"", false, false}} {
		b := setup(t, park, needsApproval(2, 0), func(b *bench) { b.opts.Trust.SelfApproval = c.self })
		req := charge("k")
		req.Submitter = c.submitter
		res, err := b.call(req)
		wantCode(t, err, tga.EscalationRequired)
		says := func(err error, votes string) {
			t.Helper()
			if !strings.Contains(err.Error(), "waits for "+votes+" approval(s)") || strings.Contains(err.Error(), "cannot approve") != c.barred {
				t.Errorf("%+v: %v", c, err)
			}
		}
		says(err, "2")
		_, err = b.rt.Decide(t.Context(), res.TraceID, vote("bob", true))
		wantCode(t, err, tga.EscalationRequired)
		says(err, "1")

		begin := func(by string) runtime.Begun {
			t.Helper()
			req := charge("k2")
			req.Submitter = by
			g, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: req, BeginID: "one"})
			if err != nil {
				t.Fatal(err)
			}
			b.wantStanding(g, runtime.BeginNeedsApproval)
			return g
		}
		if g := begin(c.submitter); g.Barred != c.barred {
			t.Errorf("%+v: the vote of who began it is barred: %v", c, g.Barred)
		}
	}
}

// TestPeopleAreNotAskedInVain: a request whose deadline has passed is refused at once as too late. If
// the question does not become durable, the caller gets that error and is not told to wait for people.
func TestPeopleAreNotAskedInVain(t *testing.T) {
	b := setup(t, park, needsApproval(1, time.Hour))
	late := charge("late")
	late.Deadline = epoch.Add(time.Minute)
	b.advance(time.Hour)
	res, err := b.call(late)
	wantCode(t, err, tga.ToolTimeout)
	if !res.TraceID.IsZero() {
		if asked, err := b.rt.Approvals(t.Context()); err != nil || len(asked) != 0 {
			t.Errorf("%+v, %v", asked, err)
		}
	}
	for _, after := range []bool{false, true} {
		b.store = &counted{Store: b.db, crashAt: 1, after: after}
		b.start()
		_, err = b.call(charge("k"))
		wantCode(t, err, tga.StoreUnavailable)
	}
}

// TestDenialsAreCounted: denials of the supervisor and of people count, and nothing else.
func TestDenialsAreCounted(t *testing.T) {
	b := setup(t, park, needsApproval(1, 0))
	for i, yes := range []bool{false, true, false} {
		res, _ := b.call(charge(strings.Repeat("k", i+1)))
		if _, err := b.rt.Decide(t.Context(), res.TraceID, vote("bob", yes)); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.rt.Stats().Denied; n != 2 {
		t.Errorf("%d denials are counted, want 2", n)
	}
}

// TestApprovedCallWaitsForItsExecutor: a call that a remote executor began, and people approved, is
// not sent by a recovery, which says whom it waits for.
func TestApprovedCallWaitsForItsExecutor(t *testing.T) {
	b := setup(t, park, needsApproval(1, 0))
	begun := b.begin("k", "one")
	b.wantStanding(begun, runtime.BeginNeedsApproval)
	if _, err := b.rt.Decide(t.Context(), begun.Result.TraceID, vote("bob", true)); err != nil {
		t.Fatal(err)
	}
	_, err := b.rt.Recover(t.Context(), begun.Result.TraceID)
	wantCode(t, err, tga.IdempotencyKeyInFlight)
	b.wantSends(0)
	b.wantStanding(b.begin("k", "one"), runtime.BeginSend)
}
