package config

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestObservingRulesApproveAndTell: each rule of a log that observes approves, and matches the calls of its
// original rule. Its rationale says what the original rule decides. The end of the table does the same.
func TestObservingRulesApproveAndTell(t *testing.T) {
	long := strings.Repeat("é", 1000)
	c := &Config{Gateway: Gateway{Mode: Observe}, Rules: []Rule{
		{Server: "a", Tool: "t", Decision: tga.Deny, Rationale: long},
		{Server: "b", Decision: tga.NeedsApproval, Required: 2, Within: Duration{D: 1}},
		{Risk: tga.RiskRead, Decision: tga.Approve, Rationale: "reads: DENY none"},
	}}
	log := c.ForGatewayLog()
	want := []string{tga.Deny, tga.NeedsApproval, tga.Approve, tga.Deny}
	if len(log.Rules) != len(want) || log.AllowAll {
		t.Fatalf("%d rules, allow_all %v", len(log.Rules), log.AllowAll)
	}
	for i, r := range log.Rules {
		if i < len(c.Rules) && (r.Server != c.Rules[i].Server || r.Tool != c.Rules[i].Tool || r.Risk != c.Rules[i].Risk) {
			t.Errorf("rule %d matches other calls", i)
		}
		if said := RulesWouldSay(r.Rationale); r.Decision != tga.Approve || said != want[i] || r.Required != 0 || r.Within.D != 0 {
			t.Errorf("rule %d: %+v, says %q, want %q", i, r, said, want[i])
		}
		if n := len([]rune(r.Rationale)); n < 10 || n > 1000 {
			t.Errorf("rule %d: a rationale of %d characters", i, n)
		}
	}
	if said := RulesWouldSay("by the rules: DENY"); said != "" {
		t.Errorf("a decision that is not observed: %q", said)
	}
	all := (&Config{Gateway: Gateway{Mode: Observe}, AllowAll: true}).ForGatewayLog()
	if said := RulesWouldSay(all.Rules[0].Rationale); said != tga.Approve {
		t.Errorf("allow_all: %q", said)
	}
	c.Gateway.Mode = Enforce
	if log := c.ForGatewayLog(); len(log.Rules) != 3 || log.Rules[0].Decision != tga.Deny {
		t.Error("the rules of a gateway that governs are changed")
	}
	if len(c.Rules) != 3 || c.Rules[0].Decision != tga.Deny {
		t.Error("the configuration itself is changed")
	}
}
