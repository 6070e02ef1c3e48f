package turn_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRestrictedToolsAreNotCalled: a call that the manifest blocks or does not allow reaches no
// tool, however the manifest spells the name. The model is told so.
func TestRestrictedToolsAreNotCalled(t *testing.T) {
	allow := func(names ...string) turn.Autonomy { return turn.Autonomy{Restricted: true, Allowed: names} }
	block := func(names ...string) turn.Autonomy { return turn.Autonomy{Blocked: names} }
	for _, c := range []struct {
		name  string
		a     turn.Autonomy
		sends int
	}{
		{"nothing", turn.Autonomy{}, 1},
		{"blocked", block("other", "echo"), 0},
		{"blocked by its server's name for it", block("local/echo"), 0},
		{"blocked in another spelling", block("Local.ECHO"), 0},
		{"blocked with its server", block("local"), 0},
		{"blocked by a pattern", block("ec*"), 0},
		{"another is blocked", block("echoes"), 1},
		{"allowed", allow("echo"), 1},
		{"allowed with its server", allow("local/echo"), 1},
		{"allowed by a pattern", allow("local/*"), 1},
		{"not allowed", allow("count"), 0},
		{"nothing is allowed", allow(), 0},
		{"allowed in another spelling", allow("Echo"), 0},
		{"allowed and blocked", turn.Autonomy{Restricted: true, Allowed: []string{"echo"}, Blocked: []string{"echo"}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(w *world) { w.agents[0].Autonomy = c.a })
			offered := false
			w.say = func(q turn.Question) (turn.Answer, error) {
				for _, d := range q.Tools {
					offered = offered || d.Name == "echo"
				}
				return obedient(q)
			}
			res := w.run(`call echo {"a":1}`)
			if sum(w.out.sends) != c.sends || offered != (c.sends > 0) {
				t.Errorf("sent %v, offered %v", w.out.sends, offered)
			}
			if c.sends == 0 && (len(res.Effects) != 1 || res.Effects[0].Failure == nil) {
				t.Errorf("%+v", res)
			}
		})
	}
}

// TestRestrictionHoldsForTurnsUnderWay: a turn resolved its tools under a laxer manifest and goes
// on under a stricter one. The stricter one applies.
func TestRestrictionHoldsForTurnsUnderWay(t *testing.T) {
	for _, call := range []string{"call echo {}", `call ask {"message":"call echo {}"}`} {
		w := newWorld(t, delegating(turn.Delegation{Type: turn.Supervisor}))
		w.say = func(q turn.Question) (turn.Answer, error) {
			w.agents[0].Autonomy.Blocked = []string{"echo", "ask"} // as after a restart with a new manifest
			return obedient(q)
		}
		res := w.run(call)
		if sum(w.out.sends) != 0 || res.Effects[0].Failure.Code != tga.PolicyViolation {
			t.Errorf("%s: %v, %+v", call, w.out.sends, res)
		}
	}
}

// TestApprovalsOfAManifest: a call for which the manifest wants an approval waits for a person,
// also through a restart. If the person denies it, it is never sent.
func TestApprovalsOfAManifest(t *testing.T) {
	for _, c := range []struct {
		name  string
		a     turn.Autonomy
		risk  string
		own   bool // the tool's own setting
		waits bool
	}{
		{name: "nothing"},
		{name: "every call", a: turn.Autonomy{Approve: true}, waits: true},
		{name: "the tool by name", a: turn.Autonomy{ApproveTools: []string{"ECHO"}}, waits: true},
		{name: "another tool", a: turn.Autonomy{ApproveTools: []string{"count"}}},
		{name: "the tool itself says so", own: true, waits: true},
		{name: "high risk", a: turn.Autonomy{ApproveHighRisk: true}, risk: tga.RiskHigh, waits: true},
		{name: "risk unknown", a: turn.Autonomy{ApproveHighRisk: true}, waits: true},
		{name: "a write", a: turn.Autonomy{ApproveHighRisk: true}, risk: tga.RiskWrite},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				w.agents[0].Autonomy = c.a
				for i := range w.defs {
					w.defs[i].Risk, w.defs[i].Approve = c.risk, c.own
				}
			})
			res := w.run("call echo {}")
			if !c.waits {
				if res.Status != turn.Completed || sum(w.out.sends) != 1 {
					t.Errorf("%+v", res)
				}
				return
			}
			if res.Status != turn.Waiting || res.Waiting.Code != tga.EscalationRequired || res.Waiting.TraceID.IsZero() || sum(w.out.sends) != 0 {
				t.Fatalf("sent %v, %+v", w.out.sends, res)
			}
			w.restart()
			if all, err := w.r.Runtime().RecoverAll(t.Context(), 1); err != nil || sum(w.out.sends) != 0 {
				t.Fatalf("recovered %+v, %v: sent %v", all, err, w.out.sends)
			}
			if _, err := w.r.Settle(t.Context(), res.InteractionID, turn.Settlement{Who: "ann", Action: turn.Approve, Note: "it is as it should be"}); err != nil {
				t.Fatal(err)
			}
			end, err := w.r.Resume(t.Context(), res.InteractionID)
			if err != nil || end.Status != turn.Completed || sum(w.out.sends) != 1 || end.Effects[0].Status != turn.ToolSucceeded {
				t.Errorf("%+v, %v", end, err)
			}
		})
	}
}

// TestManifestNeverWidensTheRules: if the operator's rules deny a call or want more approvals,
// the manifest cannot change that.
func TestManifestNeverWidensTheRules(t *testing.T) {
	rule := runtime.Rule{Decision: tga.NeedsApproval, Required: 2, Within: time.Minute}
	w := newWorld(t, func(w *world) {
		w.supervisor = runtime.Rules{Rules: []runtime.Rule{{Tool: "echo", Decision: tga.Deny, Rationale: "nobody echoes here"}, {Tool: "count", Decision: rule.Decision, Required: rule.Required, Within: rule.Within}, {Decision: tga.Approve}}}
		w.agents[0].Autonomy = turn.Autonomy{Approve: true, Within: time.Hour}
		w.agents[0].Model.Provider = "local"
	})
	if res := w.run("call echo {}"); res.Status != turn.Completed || sum(w.out.sends) != 0 || res.Effects[0].Failure.Code != tga.PolicyViolation {
		t.Errorf("%+v", res)
	}
	res := w.run("call count {}")
	if res.Status != turn.Waiting {
		t.Fatalf("%+v", res)
	}
	vote := turn.Settlement{Who: "ann", Action: turn.Approve, Note: "it is as it should be"}
	if _, err := w.r.Settle(t.Context(), res.InteractionID, vote); tga.CodeOf(err) != tga.EscalationRequired || sum(w.out.sends) != 0 {
		t.Errorf("one vote of two: %v", err)
	}
	vote.Who = "bob"
	if got, err := w.r.Settle(t.Context(), res.InteractionID, vote); err != nil || got.State != tga.Completed || sum(w.out.sends) != 1 {
		t.Errorf("two votes: %+v, %v", got, err)
	}
}

// TestDelegationIsAnAction: a delegation can be blocked, and can need an approval, like a tool
// call.
func TestDelegationIsAnAction(t *testing.T) {
	to := delegating(turn.Delegation{Type: turn.Supervisor})
	for _, a := range []turn.Autonomy{{Blocked: []string{"ask"}}, {Blocked: []string{"Expert"}}, {Restricted: true, Allowed: []string{"echo"}}} {
		w := newWorld(t, to, func(w *world) { w.agents[0].Autonomy = a })
		if res := w.run(`call ask {"message":"call echo {}"}`); sum(w.out.sends) != 0 || res.Effects[0].Failure == nil {
			t.Errorf("%+v: %+v", a, res)
		}
	}
	for _, c := range []struct {
		action turn.Strategy
		sends  int
	}{{turn.Retry, 1}, {turn.Skip, 0}} {
		w := newWorld(t, to, func(w *world) {
			w.agents[0].Autonomy = turn.Autonomy{Approve: true}
			w.licence = ledger.DedupeArgs
		})
		res := w.run(`call ask {"message":"call echo {}"}`)
		if res.Status != turn.Waiting || res.Waiting.CallID != "c0" || len(w.out.requests) != 1 {
			t.Fatalf("%+v", res)
		}
		w.restart()
		if err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: c.action}); err != nil {
			t.Fatal(err)
		}
		end, err := w.r.Resume(t.Context(), res.InteractionID)
		if err != nil || end.Status != turn.Completed || sum(w.out.sends) != c.sends {
			t.Errorf("%s: sent %v, %+v, %v", c.action, w.out.sends, end, err)
		}
	}
}

// TestApprovalOfADelegationExpires: just before the time limit a person may approve, at the limit
// not any more. Looking at the turn meanwhile, or a restart, does not extend the limit.
func TestApprovalOfADelegationExpires(t *testing.T) {
	to := delegating(turn.Delegation{Type: turn.Supervisor})
	for _, c := range []struct {
		within, after time.Duration
		expired       bool
	}{{time.Minute, time.Minute, true}, {time.Minute, time.Minute - time.Millisecond, false}, {0, 1000 * time.Hour, false}} {
		var now atomic.Int64
		w := newWorld(t, to, ageing(&now), func(w *world) {
			now.Store(time.Now().Add(-2000 * time.Hour).UnixMilli())
			w.agents[0].Autonomy = turn.Autonomy{Approve: true, Within: c.within}
			w.licence = ledger.DedupeArgs
		})
		res := w.run(`call ask {"message":"call echo {}"}`)
		half := c.after.Milliseconds() / 2
		now.Add(half)
		if again, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || again.Status != turn.Waiting {
			t.Fatalf("%+v: half the time later: %+v, %v", c, again, err)
		}
		w.restart()
		now.Add(c.after.Milliseconds() - half)
		err := w.r.Decide(t.Context(), res.InteractionID, turn.Decision{Who: "ann", Action: turn.Retry})
		if c.expired != (tga.CodeOf(err) == tga.ApprovalExpired) || !c.expired && err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		end, err := w.r.Resume(t.Context(), res.InteractionID)
		if sends := sum(w.out.sends); err != nil || end.Status != turn.Completed || (sends == 0) != c.expired {
			t.Errorf("%+v: %d sends, %+v, %v", c, sends, end, err)
		}
		if c.expired && (len(end.Effects) == 0 || end.Effects[0].Failure == nil || end.Effects[0].Failure.Code != tga.ApprovalExpired) {
			t.Errorf("%+v: the model is told %+v", c, end.Effects)
		}
	}
}

// TestDelegationToOneselfIsBounded: an agent that delegates to itself goes one level deeper each
// time, like any other delegation.
func TestDelegationToOneselfIsBounded(t *testing.T) {
	for most, begun := range map[int]int{1: 1, 3: 3} {
		w := newWorld(t, endless(1, func(o *turn.Options) { o.MaxDepth = most }), func(w *world) {
			w.defs[0].Delegation.Target = w.agents[0].Name
			w.defs[0].Source.AgentID = w.agents[0].Name
		})
		res := w.run("go on")
		if res.Status != turn.Completed || sum(w.out.requests) != 2*(begun+1) || !strings.Contains(res.Text, "maximum depth") {
			t.Errorf("at most %d: %d questions to the model, %+v", most, sum(w.out.requests), res)
		}
	}
}

// TestToolCallsOfAnInvocationAreLimited: at the limit and one past it. The limit counts over all
// turns of a chain, not for each turn anew.
func TestToolCallsOfAnInvocationAreLimited(t *testing.T) {
	for most, sends := range map[int]int{3: 3, 2: 2} {
		w := newWorld(t, func(w *world) { w.agents[0].Constraints.MaxToolCalls = most })
		turns := 0
		w.say = func(q turn.Question) (turn.Answer, error) {
			if turns++; turns <= 3 {
				q.Messages = q.Messages[:1]
				q.Messages[0].Content[0].Text = "call echo {}"
			}
			return obedient(q)
		}
		res := w.run("call echo {}")
		refused := 0
		for _, e := range res.Effects {
			if e.Failure != nil && e.Failure.Code == tga.QuotaExceeded && strings.Contains(e.Failure.Message, "for one message") {
				refused++
			}
		}
		if sum(w.out.sends) != sends || refused != 3-sends {
			t.Errorf("at most %d: sent %v, %d refused", most, w.out.sends, refused)
		}
	}
}
