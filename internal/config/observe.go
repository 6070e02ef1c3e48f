package config

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tgad/tgad/internal/clip"
	"github.com/tgad/tgad/schemas/tga"
)

// Modes of a gateway.
const (
	Enforce = "enforce" // calls are governed
	Observe = "observe" // calls pass unchanged, and are recorded
)

// Observes says whether the gateway observes.
func (g *Gateway) Observes() bool { return g.Mode == Observe }

// observedBy begins the rationale of each decision in observe mode, so that nobody takes it for a decision
// that permitted the call.
const observedBy = "observed; the rules say "

// observing are rules that approve everything. Their rationales say what the file's rules would decide.
func (c *Config) observing() (all []Rule) {
	rules := append([]Rule(nil), c.Rules...)
	if c.AllowAll {
		rules = []Rule{{Decision: tga.Approve, Rationale: "the configuration says allow_all"}}
	}
	for _, r := range append(rules, Rule{Decision: tga.Deny, Rationale: "no rule matches this request"}) {
		said := fmt.Sprintf("%s%s: %s", observedBy, r.Decision, cmp.Or(r.Rationale, "the rule gives no reason"))
		r.Decision, r.Rationale, r.Required, r.Within = tga.Approve, clip.Runes(said, 1000), 0, Duration{}
		all = append(all, r)
	}
	return all
}

// RulesWouldSay is what the rules would have decided about an observed call, by the rationale of its
// decision; "" if the call was not observed.
func RulesWouldSay(rationale string) string {
	said, ok := strings.CutPrefix(rationale, observedBy)
	if !ok {
		return ""
	}
	decision, _, _ := strings.Cut(said, ":")
	return decision
}
