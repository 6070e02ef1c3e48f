package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
)

func ruleOf(decision string, required int, within time.Duration) runtime.Supervisor {
	return runtime.Rules{Rules: []runtime.Rule{{Decision: decision, Rationale: "as the table says", Required: required, Within: within}}}
}

// TestStricterRuleOfNowWins tests every pair of a rule at the time of the request and a rule at the
// time of the vote or of the first byte, with the votes that each needs, with and without a restart in
// between. A laxer rule changes nothing for earlier requests.
func TestStricterRuleOfNowWins(t *testing.T) {
	serial.Test(t)
	ask := tga.NeedsApproval
	for _, c := range []struct {
		name     string
		was, now runtime.Supervisor
		votes    int // after which the outcome is looked at
		state    tga.State
	}{
		{"asked, then denied, then a vote", ruleOf(ask, 1, 0), ruleOf(tga.Deny, 0, 0), 1, tga.Denied},
		{"asked, then denied, without a vote", ruleOf(ask, 1, 0), ruleOf(tga.Deny, 0, 0), 0, tga.Denied},
		{"one approval, then three: one vote", ruleOf(ask, 1, 0), ruleOf(ask, 3, 0), 1, tga.Pending},
		{"one approval, then three: two votes", ruleOf(ask, 1, 0), ruleOf(ask, 3, 0), 2, tga.Pending},
		{"one approval, then three: three votes", ruleOf(ask, 1, 0), ruleOf(ask, 3, 0), 3, tga.Completed},
		{"three approvals, then one: one vote", ruleOf(ask, 3, 0), ruleOf(ask, 1, 0), 1, tga.Pending},
		{"three approvals, then one: three votes", ruleOf(ask, 3, 0), ruleOf(ask, 1, 0), 3, tga.Completed},
		{"asked, then allowed: no vote", ruleOf(ask, 1, 0), runtime.AllowAll, 0, tga.Pending},
		{"asked, then allowed: a vote", ruleOf(ask, 1, 0), runtime.AllowAll, 1, tga.Completed},
		{"for ever, then for a minute", ruleOf(ask, 1, 0), ruleOf(ask, 1, time.Minute), 1, tga.Denied},
		{"for two hours, then for a minute", ruleOf(ask, 1, 2*time.Hour), ruleOf(ask, 1, time.Minute), 1, tga.Denied},
		{"for two hours, then for ever", ruleOf(ask, 1, 2*time.Hour), ruleOf(ask, 1, 0), 1, tga.Completed},
	} {
		for _, restart := range []bool{false, true} {
			name := c.name
			if restart {
				name += ", restarted"
			}
			t.Run(name, func(t *testing.T) {
				b := setup(t, park, func(b *bench) { b.sup = c.was })
				res, err := b.call(charge("k"))
				wantCode(t, err, tga.EscalationRequired)
				b.sup = c.now
				b.advance(time.Hour)
				if restart {
					b.reopen()
				} else {
					b.start()
				}
				for _, who := range []string{"ann", "bob", "cyd"}[:c.votes] {
					_, _ = b.rt.Decide(t.Context(), res.TraceID, vote(who, true)) // the state is checked below
				}
				if c.votes == 0 {
					_, _ = b.rt.Recover(t.Context(), res.TraceID)
				}
				b.wantState(res.TraceID, c.state)
				b.wantSends(map[bool]int{true: 1, false: 0}[c.state == tga.Completed])
			})
		}
	}
}

// TestApprovedAndUnsentIsAskedAboutAgain: the call is AUTHORIZED and waits for its key. The rules
// become stricter before its first byte.
func TestApprovedAndUnsentIsAskedAboutAgain(t *testing.T) {
	for name, c := range map[string]struct {
		was, now runtime.Supervisor
		votes    int
		sent     bool
	}{
		"approved by people, then denied":            {ruleOf(tga.NeedsApproval, 1, 0), ruleOf(tga.Deny, 0, 0), 1, false},
		"approved by a rule, then denied":            {runtime.AllowAll, ruleOf(tga.Deny, 0, 0), 0, false},
		"approved by a rule, then by people":         {runtime.AllowAll, ruleOf(tga.NeedsApproval, 1, 0), 0, false},
		"approved by one, then by two":               {ruleOf(tga.NeedsApproval, 1, 0), ruleOf(tga.NeedsApproval, 2, 0), 1, false},
		"approved by two, then by two":               {ruleOf(tga.NeedsApproval, 2, 0), ruleOf(tga.NeedsApproval, 2, 0), 2, true},
		"approved by two, then by one":               {ruleOf(tga.NeedsApproval, 2, 0), ruleOf(tga.NeedsApproval, 1, 0), 2, true},
		"approved by people, then by a rule":         {ruleOf(tga.NeedsApproval, 1, 0), runtime.AllowAll, 1, true},
		"approved by a rule, and the rule is as was": {runtime.AllowAll, runtime.AllowAll, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, park)
			inside, release := make(chan struct{}), make(chan struct{})
			b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
				if n == 1 {
					close(inside)
					<-release
					return runtime.Reply{}, errDial
				}
				return ok(`1`), nil
			}
			first := make(chan struct{})
			rt := b.rt
			go func() {
				defer close(first)
				_, _ = rt.Call(context.Background(), charge("k"))
			}()
			<-inside
			b.sup = c.was
			b.start()
			second := charge("k")
			second.TraceID = newID()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = b.rt.Call(ctx, second)
				for _, who := range []string{"ann", "bob"}[:c.votes] {
					_, _ = b.rt.Decide(ctx, second.TraceID, vote(who, true))
				}
			}()
			eventually(t, func() bool {
				res, err := b.rt.Result(t.Context(), second.TraceID)
				return err == nil && res.State == tga.Authorized
			})
			cancel()
			<-done
			close(release)
			<-first
			b.sup = c.now
			b.reopen()
			_, err := b.rt.Recover(t.Context(), second.TraceID)
			if c.sent {
				b.wantState(second.TraceID, tga.Completed)
				b.wantSends(2)
				return
			}
			wantCode(t, err, tga.PolicyViolation)
			b.wantState(second.TraceID, tga.Failed)
			b.wantSends(1)
		})
	}
}

// TestVotesAreForOneDefinition: the definition of the tool changes while people are asked. Their
// votes are void, durably, and they are asked about the new one.
func TestVotesAreForOneDefinition(t *testing.T) {
	for _, restart := range []bool{false, true} {
		schema := tga.Digest{1}
		b := setup(t, park, func(b *bench) {
			b.sup = ruleOf(tga.NeedsApproval, 2, 0)
			b.opts.Trust.Schema = func(context.Context, string, string) (tga.Digest, error) { return schema, nil }
		})
		again := func() {
			if restart {
				b.reopen()
			}
		}
		res, err := b.call(charge("k"))
		wantCode(t, err, tga.EscalationRequired)
		_, err = b.rt.Decide(t.Context(), res.TraceID, vote("ann", true))
		wantCode(t, err, tga.EscalationRequired)
		schema = tga.Digest{2}
		again()
		_, err = b.rt.Decide(t.Context(), res.TraceID, vote("bob", true))
		wantCode(t, err, tga.ToolSchemaChanged)
		again()
		waiting, err := b.rt.Approvals(t.Context())
		if err != nil || len(waiting) != 1 || len(waiting[0].Votes) != 0 || waiting[0].Schema != schema {
			t.Fatalf("%+v, %v", waiting, err)
		}
		_, err = b.rt.Decide(t.Context(), res.TraceID, about("ann", schema)) // her first vote is void
		wantCode(t, err, tga.EscalationRequired)
		b.wantSends(0)
		if _, err = b.rt.Decide(t.Context(), res.TraceID, about("bob", schema)); err != nil {
			t.Fatal(err)
		}
		b.wantState(res.TraceID, tga.Completed)
		trace, err := b.db.Load(t.Context(), res.TraceID)
		if err != nil || trace.Decision.Meta.String(tga.MetaSchemaDigest) != schema.String() {
			t.Errorf("the decision names %q, %v", trace.Decision.Meta.String(tga.MetaSchemaDigest), err)
		}
		var kinds []tga.NoteKind
		for _, n := range trace.Notes {
			kinds = append(kinds, n.Kind)
		}
		if len(kinds) != 4 || kinds[1] != tga.NoteAskedAgain {
			t.Errorf("notes %v", kinds)
		}
	}
}

// TestDenialNeedsNoDefinition: a denial counts for every definition of the tool.
func TestDenialNeedsNoDefinition(t *testing.T) {
	schema := tga.Digest{1}
	b := setup(t, park, func(b *bench) {
		b.sup = ruleOf(tga.NeedsApproval, 1, 0)
		b.opts.Trust.Schema = func(context.Context, string, string) (tga.Digest, error) { return schema, nil }
	})
	res, err := b.call(charge("k"))
	wantCode(t, err, tga.EscalationRequired)
	schema = tga.Digest{2}
	if _, err := b.rt.Decide(t.Context(), res.TraceID, vote("ann", false)); err != nil {
		t.Fatal(err)
	}
	b.wantState(res.TraceID, tga.Denied)
}

// TestRulesOfNowStandBeforeAFirstSend: a call is EXECUTING and nothing was sent: its log says that
// attempts are separate notes, and has none. Its recovery asks the current rules before it marks attempt
// 1. It ends the call as not sent if they deny it, and else sends it.
func TestRulesOfNowStandBeforeAFirstSend(t *testing.T) {
	for _, c := range []struct {
		now   runtime.Supervisor
		sends int
		state tga.State
		class ledger.Class
	}{
		{ruleOf(tga.Deny, 0, 0), 0, tga.Failed, ledger.ClassNotSent},
		{ruleOf(tga.NeedsApproval, 1, 0), 0, tga.Failed, ledger.ClassNotSent},
		{runtime.AllowAll, 1, tga.Completed, ledger.ClassCommitted},
	} {
		b := setup(t, park, func(b *bench) { b.sup = c.now })
		trace := storetest.New(t)
		lease, err := b.db.Acquire(t.Context(), trace.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.db.Append(t.Context(), lease, trace.Begin(tga.AttemptApart)); err != nil {
			t.Fatal(err)
		}
		b.db.Release(lease)
		res, err := b.rt.Recover(t.Context(), trace.TraceID)
		if err != nil || res.State != c.state || res.Class != c.class {
			t.Errorf("%+v, %v", res, err)
		}
		if c.sends == 0 && res.ErrorCode != tga.PolicyViolation {
			t.Errorf("refused with %s", res.ErrorCode)
		}
		b.wantSends(c.sends)
	}
}
