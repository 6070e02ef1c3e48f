package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

func needsApproval(required int, within time.Duration) func(*bench) {
	return func(b *bench) {
		b.sup = runtime.Rules{Rules: []runtime.Rule{{
			Decision: tga.NeedsApproval, Rationale: "payments need a person", Required: required, Within: within,
		}}}
	}
}

func vote(who string, approve bool) runtime.Vote {
	return runtime.Vote{Who: who, Approve: approve, Rationale: "seen the invoice"}
}

func TestApprovalSurvivesARestart(t *testing.T) {
	b := setup(t, park, needsApproval(1, 0))
	ctx := context.Background()
	res, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EscalationRequired)
	b.wantState(res.TraceID, tga.Pending)
	b.reopen()
	if _, err := b.rt.RecoverAll(ctx, 1); err != nil {
		t.Fatal(err)
	}
	b.wantSends(0)
	waiting, err := b.rt.Approvals(ctx)
	if err != nil || len(waiting) != 1 || waiting[0].TraceID != res.TraceID {
		t.Fatalf("approvals %+v, %v", waiting, err)
	}
	got, err := b.rt.Decide(ctx, res.TraceID, vote("ann", true))
	if err != nil || got.State != tga.Completed {
		t.Fatalf("%+v, %v", got, err)
	}
	b.wantSends(1)
	if waiting, _ := b.rt.Approvals(ctx); len(waiting) != 0 {
		t.Errorf("approvals %+v are left", waiting)
	}
	_, err = b.rt.Decide(ctx, res.TraceID, vote("bob", false))
	wantCode(t, err, tga.StateInvalidTransition)
	trace, err := b.db.Load(ctx, res.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	if who := trace.Decision.Meta.String("approvers"); who != "ann" {
		t.Errorf("approvers %q", who)
	}
}

func TestOneDenialDenies(t *testing.T) {
	b := setup(t, park, needsApproval(2, 0))
	res, _ := b.call(charge("order-1"))
	got, err := b.rt.Decide(context.Background(), res.TraceID, vote("ann", false))
	if err != nil || got.State != tga.Denied {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantSends(0)
}

func TestEachApproverCountsOnce(t *testing.T) {
	b := setup(t, park, needsApproval(2, 0))
	ctx := context.Background()
	res, _ := b.call(charge("order-1"))
	_, err := b.rt.Decide(ctx, res.TraceID, vote("ann", true))
	wantCode(t, err, tga.EscalationRequired)
	b.reopen()
	_, err = b.rt.Decide(ctx, res.TraceID, vote("ann", true))
	wantCode(t, err, tga.PermissionDenied)
	b.wantSends(0)
	got, err := b.rt.Decide(ctx, res.TraceID, vote("bob", true))
	if err != nil || got.State != tga.Completed {
		t.Errorf("%+v, %v", got, err)
	}
	b.wantSends(1)
}

func TestExpiredApprovalIsARecordedDenial(t *testing.T) {
	for _, late := range []time.Duration{-time.Millisecond, 0} {
		b := setup(t, park, needsApproval(1, time.Hour))
		res, _ := b.call(charge("order-1"))
		b.advance(time.Hour + late)
		got, err := b.rt.Decide(context.Background(), res.TraceID, vote("ann", true))
		if err != nil {
			t.Fatal(err)
		}
		want, sends := tga.Completed, 1
		if late >= 0 {
			want, sends = tga.Denied, 0
		}
		if got.State != want {
			t.Errorf("%v after the end: %v, want %v", late, got.State, want)
		}
		b.wantSends(sends)
	}
}

// TestVoteThatTheLogWouldNotShow: a vote whose rationale the log would not show as it was given counts for nothing,
// also if more votes are wanted.
func TestVoteThatTheLogWouldNotShow(t *testing.T) {
	ctx := context.Background()
	b := setup(t, park, needsApproval(2, 0))
	res, _ := b.call(charge("order-1"))
	for _, c := range []struct {
		rationale string
		refused   bool
	}{
		{"", true}, {strings.Repeat("é", 9), true}, {strings.Repeat("é", 10), false},
		{strings.Repeat("é", 1000), false}, {strings.Repeat("é", 1001), true}, {strings.Repeat("\xff", 10), true},
	} {
		for _, approve := range []bool{true, false} {
			v := vote("ann", approve)
			if v.Rationale = c.rationale; !c.refused {
				v.Who = "" // refused for another reason
			}
			_, err := b.rt.Decide(ctx, res.TraceID, v)
			var e *tga.Error
			want := "/who"
			if c.refused {
				want = "/rationale"
			}
			if !errors.As(err, &e) || e.Code != tga.ValidationError || e.Pointer != want {
				t.Errorf("%.20q, approve %v: %v, want VALIDATION_ERROR at %s", c.rationale, approve, err, want)
			}
		}
	}
	if waiting, err := b.rt.Approvals(ctx); err != nil || len(waiting) != 1 || len(waiting[0].Votes) != 0 {
		t.Errorf("%+v, %v", waiting, err)
	}
}

// TestTimeForApprovalsThatIsOver: a supervisor that computes the time until a moment that has passed gives none, and does
// not let the request wait for ever.
func TestTimeForApprovalsThatIsOver(t *testing.T) {
	b := setup(t, park, needsApproval(1, -time.Hour))
	res, err := b.call(charge("order-1"))
	if err != nil || res.State != tga.Denied {
		t.Errorf("asked: %v, %v", res.State, err)
	}
	b.close()

	within := time.Duration(0)
	b = setup(t, park, func(b *bench) { b.sup = asksFor{&within} })
	res, err = b.call(charge("order-2"))
	wantCode(t, err, tga.EscalationRequired)
	within = -time.Hour
	if res, err = b.rt.Decide(t.Context(), res.TraceID, yes); err != nil || res.State != tga.Denied {
		t.Errorf("by the rules of now: %v, %v", res.State, err)
	}
	b.wantSends(0)
}

// asksFor is a supervisor that asks people, and gives them a time.
type asksFor struct{ within *time.Duration }

func (a asksFor) Decide(context.Context, *tga.Artifact) (runtime.Verdict, error) {
	return runtime.Verdict{Decision: tga.NeedsApproval, Rationale: "people are to decide", Within: *a.within}, nil
}
