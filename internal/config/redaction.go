package config

import (
	"fmt"
	"regexp"

	"github.com/tgad/tgad/internal/redact"
)

// Redaction has the key of the marks that replace redacted values.
type Redaction struct {
	KeyFile string `toml:"key_file"` // a secret of 32 bytes or more, outside of the store
}

// Redact says which parts of a tool's calls are not stored.
type Redact struct {
	Args     []string `toml:"args"`     // JSON Pointers into the arguments; a token * is each member or element
	Result   []string `toml:"result"`   // JSON Pointers into the answer; "" is all of it
	Patterns []string `toml:"patterns"` // RE2; matches are removed from each text of both

	patterns []*regexp.Regexp
}

// Redacts says whether a part of the tool's calls is not stored.
func (t *Tool) Redacts() bool {
	return len(t.Redact.Args)+len(t.Redact.Result)+len(t.Redact.Patterns) > 0
}

// RedactionOf returns which parts of a tool's calls are not stored; nil if all are stored.
func (c *Config) RedactionOf(server, tool string) *redact.Rule {
	t := c.ToolOf(server, tool)
	if t == nil || !t.Redacts() {
		return nil
	}
	return &redact.Rule{Args: t.Redact.Args, Result: t.Redact.Result, Patterns: t.Redact.patterns}
}

// check checks the redaction of a tool's row. key is where its calls have their idempotency key.
func (d *Redact) check(r *report, at, key string) {
	for list, pointers := range map[string][]string{"args": d.Args, "result": d.Result} {
		for i, p := range pointers {
			if err := redact.CheckPointer(p, list == "args"); err != nil {
				r.refused(fmt.Sprintf("%s.redact.%s.%d", at, list, i), err)
			}
			if list == "args" && p == key && key != "" {
				r.add(at+".key.from", "%q is redacted: an idempotency key is stored, and cannot be taken out", key)
			}
		}
	}
	for i, text := range d.Patterns {
		p, err := regexp.Compile(text)
		switch {
		case err != nil:
			r.add(fmt.Sprintf("%s.redact.patterns.%d", at, i), "%v", err)
		case p.MatchString(""):
			r.add(fmt.Sprintf("%s.redact.patterns.%d", at, i), "%.80q matches the empty text", text)
		default:
			d.patterns = append(d.patterns, p)
		}
	}
}

// checkRedaction requires a key file if something is redacted.
func (c *Config) checkRedaction(r *report) {
	redacts := false
	for i := range c.Tools {
		t := &c.Tools[i]
		t.Redact.check(r, fmt.Sprintf("tool.%d", i), t.Key.From)
		redacts = redacts || t.Redacts()
	}
	if redacts && c.Redaction.KeyFile == "" {
		r.add("redaction.key_file", "tools are redacted, and the marks that stand in the place of values need a key")
	}
}
