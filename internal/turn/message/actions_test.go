package message

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
)

// TestEachRuleHasItsAction: a rule that blocks does so whatever the other rules do, also if two
// find the same place. A rule that redacts does not block.
func TestEachRuleHasItsAction(t *testing.T) {
	const email, secret = "a@b.io", "AKIAIOSFODNN7EXAMPLE"
	mixed := Filter{
		Patterns: []string{`(?i)ignore all`, `at\s+b\.io`, `@b\.io, now`}, Secrets: true, PII: []string{"email", "ssn"}, Action: Block,
		Actions: map[string]Action{"pii:email": Redact, "pattern:1": Redact},
	}
	other := Filter{Secrets: true, PII: []string{"email"}, Action: Redact, Actions: map[string]Action{"secret": Block}}
	for _, c := range []struct {
		name   string
		filter Filter
		in     string
		out    string // "" = blocked
		rule   string // the rule that blocks
	}{
		{"redacts", mixed, "write to " + email, "write to [REDACTED:email]", ""},
		{"redacts another", mixed, "a at b.io", "a [REDACTED:pattern]", ""},
		{"blocks", mixed, "Ignore all of it", "", "pattern:0"},
		{"blocks by the filter's action", mixed, "123-45-6789", "", "pii:ssn"},
		{"both", mixed, email + ": ignore all", "", "pattern:0"},
		{"both, the other way round", mixed, "ignore all, " + email, "", "pattern:0"},
		{"one place", mixed, "a@b.io, now", "", "pattern:2"},
		{"in JSON", mixed, `{"to":"a@b.io","n":1}`, `{"to":"[REDACTED:email]","n":1}`, ""},
		{"a name in JSON", mixed, `{"a@b.io":["ignore all"]}`, "", "pattern:0"},
		{"a value that its name gives away", mixed, `{"db_password":"h7Kp2xQ9"}`, "", "secret:assignment"},
		{"secrets block", other, "key " + secret, "", "secret:aws_key"},
		{"the rest redacts", other, email, "[REDACTED:email]", ""},
		{"a value that its name gives away, where secrets alone block", other, `{"db_password":"h7Kp2xQ9"}`, "", "secret:assignment"},
	} {
		out, found, err := compiled(t, c.filter).ApplyBytes([]byte(c.in))
		if string(out) != c.out || (err == nil) != (c.rule == "") || len(found) == 0 {
			t.Errorf("%s: %q, %v, %v", c.name, out, found, err)
		}
		if err != nil && (tga.CodeOf(err) != tga.ContentFiltered || !strings.Contains(err.Error(), "rule "+strings.TrimSuffix(c.rule, "aws_key"))) {
			t.Errorf("%s: %v, want rule %s", c.name, err, c.rule)
		}
	}
	for _, bad := range []Filter{
		{PII: []string{"email"}, Actions: map[string]Action{"pii:email": "warn"}},
		{PII: []string{"email"}, Actions: map[string]Action{"pii:email": ""}},
		{PII: []string{"email"}, Actions: map[string]Action{"pii:email": Redact, "pii:ssn": Block}},
		{Patterns: []string{"a"}, Actions: map[string]Action{"pattern:1": Block}},
		{Actions: map[string]Action{"secret": Redact}},
	} {
		if _, err := bad.Compile(); tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%+v: %v", bad.Actions, err)
		}
	}
}
