package config

import (
	"encoding/json"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Supervisor returns the rule table. Without a rule it denies every request, and with
// allow_all it approves every one.
func (c *Config) Supervisor() (runtime.Rules, error) {
	rules := c.Rules
	if c.AllowAll {
		rules = []Rule{{Decision: tga.Approve, Rationale: "the configuration says allow_all"}}
	}
	s := runtime.Rules{}
	table := []map[string]any{}
	for _, r := range rules {
		s.Rules = append(s.Rules, runtime.Rule{
			Server: r.Server, Tool: r.Tool, Risk: r.Risk,
			Decision: r.Decision, Rationale: r.Rationale, Required: r.Required, Within: r.Within.D,
		})
		table = append(table, map[string]any{
			"server": r.Server, "tool": r.Tool, "risk": r.Risk, "decision": r.Decision,
			"rationale": r.Rationale, "required": r.Required, "within_ms": r.Within.D.Milliseconds(),
		})
	}
	raw, err := json.Marshal(table)
	if err != nil {
		return s, tga.Errorf(tga.ValidationError, "rule table: %w", err)
	}
	// Digest the canonical form, and not the output of encoding/json, which may change.
	canonical, err := tga.Canonicalize(raw, tga.Limits{})
	s.PolicyHash = tga.Sum(canonical)
	return s, err
}
