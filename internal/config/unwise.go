package config

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"github.com/tgad/tgad/internal/listen"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// Advice is a warning about something in a file that is allowed and may not be meant.
type Advice struct {
	Line   int    `json:"line,omitempty"` // 0 = the file as a whole
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"`
	Text   string `json:"text"`
}

// Unwise lists such warnings, in the order of the file.
func (c *Config) Unwise() (all []Advice) {
	r := &report{positions: c.places}
	say := func(path, format string, args ...any) {
		at := r.place(path)
		all = append(all, Advice{at.line, at.column, path, fmt.Sprintf(format, args...)})
	}
	for _, w := range c.warnings {
		say("", "%s", w)
	}
	all = append(all, c.zeros...)
	c.unwiseRules(say)
	if c.TrustHints {
		say("trust_hints", "an external server that the file does not list says itself which of its tools may be repeated")
	}
	if c.profile == ledger.Spec93 {
		say("profile", "a write call in doubt is sent again with its key, also to a tool of which no licence says that it honours the key")
	}
	if c.Store.ID == "" && c.Store.URL == "" {
		say("store.id", "no store is pinned: an older copy of the directory, or another store, is served without a word. Put the id that tgad init prints here")
	}
	if c.Approval.Self {
		say("approval.self", "who hands a request in may approve it: an approval proves no second person")
	}
	if c.Evidence.Signs() && len(c.Evidence.Places) == 0 {
		say("evidence", "no checkpoint leaves the machine: who can rewrite the store can rewrite them too. Name an [[evidence.place]]")
	}
	for i, rule := range c.Retention.Rules {
		if after := rule.EraseAfter.D; after > 0 && after < shortRetention {
			say(fmt.Sprintf("retention.rule.%d.erase_after", i), "a caller that repeats a call later than %s gets no answer: what the call carried is gone", after)
		}
	}
	if c.Retention.Archive != "" && c.Keyring.Path != "" {
		say("retention.archive", "exports are not sealed: who can read the directory can read what the key ring would have destroyed")
	}
	if c.Gateway.Observes() {
		say("gateway.mode", "tgad gateway records calls and protects none: a repeated call runs twice, and no rule counts")
	}
	c.unwiseServers(say)
	for i, role := range c.Roles {
		if role.Has(Append) && role.Has(Decide) {
			say(fmt.Sprintf("role.%d.verbs", i), "the role makes calls and approves them")
		}
	}
	slices.SortStableFunc(all, func(a, b Advice) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return all
}

func (c *Config) unwiseRules(say func(path, format string, args ...any)) {
	if c.AllowAll {
		say("allow_all", "every request is approved, of tools that a server gets later too. Name what is approved in rules")
	} else if len(c.Rules) == 0 {
		say("", "every request is denied: there is no [[rule]], and no allow_all")
	}
	for i, rule := range c.Rules {
		if rule.Server != "" || rule.Tool != "" || rule.Risk != "" {
			continue
		}
		if rule.Decision == tga.Approve {
			say(fmt.Sprintf("rule.%d", i), "the rule approves whatever no rule above it names, tools that a server gets later too")
		}
		if i+1 < len(c.Rules) {
			say(fmt.Sprintf("rule.%d", i+1), "no request reaches this rule: the one above it matches everything")
		}
		break
	}
}

// secretName matches the name of a variable whose value is probably a secret.
var secretName = regexp.MustCompile(`(?i)` + secretWord)

func (c *Config) unwiseServers(say func(path, format string, args ...any)) {
	for i := range c.Servers {
		s, at := &c.Servers[i], fmt.Sprintf("server.%d", i)
		for name := range s.Env {
			if secretName.MatchString(name) {
				say(at+".env."+name, "%s looks like a secret: env_file keeps it out of this file", name)
			}
		}
		if u, err := url.Parse(s.URL); err == nil && u.Scheme == "http" && !listen.Loopback(u.Host) {
			say(at+".url", "calls and answers pass the network in plain text: use https://")
		}
		for j := range c.Tools {
			if t := &c.Tools[j]; t.Server == s.ID && t.Name == AnyTool && t.ClientLicence {
				say(fmt.Sprintf("tool.%d.client_licence", j), "every program that may make calls licenses repeats of every tool of %q, also of tools that come later", s.ID)
			} else if t.Server == s.ID && t.Name == AnyTool && (t.licence.Kind == ledger.DedupeArgs || t.licence.Kind == ledger.DedupeKey) {
				say(fmt.Sprintf("tool.%d.licence", j), "it holds for every tool of %q that has no row, also for tools that the server gets later", s.ID)
			}
		}
	}
}
