package message

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// Action says what happens to content that a filter finds.
type Action string

// The actions.
const (
	Block  Action = "block" // CONTENT_FILTERED
	Redact Action = "redact"
)

// Filter says what content may not pass. The zero Filter lets everything pass.
//
// A filter finds forms, not meaning. Content that is spelled in another alphabet, split between
// two messages, drawn in an image or packed in an archive passes.
type Filter struct {
	MaxBytes int      // of a message's text; 0 = no limit; a longer message is always blocked
	Patterns []string // RE2
	Secrets  bool     // keys and tokens of well-known forms
	PII      []string // email, phone, ssn, credit_card, ip_address, iban
	Action   Action   // "" = Block
	// Actions overrides Action for single rules, by name: secret (all kinds of secrets),
	// pii:KIND, pattern:N. If two rules find the same place and one of them blocks, the place is
	// blocked.
	Actions map[string]Action
}

// Off reports whether everything passes.
func (f Filter) Off() bool {
	return f.MaxBytes == 0 && len(f.Patterns) == 0 && !f.Secrets && len(f.PII) == 0
}

// Limits of a filter. Exceeding one is LIMIT_EXCEEDED.
const (
	MaxPatterns     = 256
	MaxPatternBytes = 4096
)

// Finding says that a rule found something. It never holds what was found.
type Finding struct {
	// Rule is size, pattern:N (the Nth of Filter.Patterns, from 0), secret:KIND or pii:KIND.
	Rule string `json:"rule"`
	// At is a JSON Pointer to the string that the rule matched: into the list of messages, or
	// into the bytes. It shows the names of members as they are after redaction. See
	// [MaxFindings].
	At    string `json:"at"`
	Count int    `json:"count"`
}

// rule finds one kind of content.
type rule struct {
	name string // as in Finding.Rule
	kind string // the kind in [REDACTED:kind]
	find func(s *subject) []span
}

// span is a part of a text, in bytes.
type span struct{ start, end int }

// mostMatches bounds how many matches of an operator's pattern are searched for in one string,
// and mostRead how many bytes that may read. If there are more, the whole string counts as a
// match. A search that starts again after each match is quadratic if a pattern looks far ahead
// before it settles for a short match, as x(.*y)? does. The bounds keep the search linear. The
// rules of this package look no further ahead than the next character that none of their parts
// accepts.
const (
	mostMatches = 1000
	mostRead    = 32 << 20
)

// matches returns how many matches to search for in a text.
func matches(text string) int {
	return min(mostMatches, max(16, mostRead/max(len(text), 1)))
}

// Compiled is a filter ready for use, by several goroutines at once.
type Compiled struct {
	maxBytes int
	secrets  bool
	rules    []rule
	blocks   []bool // by rule
}

// Compile checks a filter. It returns VALIDATION_ERROR for an unknown action, kind or rule, for a
// pattern that does not compile, and for a pattern that matches the empty text and so matches
// everywhere.
func (f Filter) Compile() (*Compiled, error) {
	c := &Compiled{maxBytes: f.MaxBytes, secrets: f.Secrets}
	if f.Action != "" && !f.Action.known() {
		return nil, tga.Errorf(tga.ValidationError, "filter action %.80q: want block or redact", f.Action)
	}
	if f.MaxBytes < 0 {
		return nil, tga.Errorf(tga.ValidationError, "filter size %d is negative", f.MaxBytes)
	}
	if len(f.Patterns) > MaxPatterns {
		return nil, tga.Errorf(tga.LimitExceeded, "%d filter patterns: the limit is %d", len(f.Patterns), MaxPatterns)
	}
	// The known kinds go first: if two rules find the same text, the more telling name is given.
	if f.Secrets {
		c.rules = append(c.rules, secretRules...)
	}
	for _, kind := range f.PII {
		find, ok := piiRules[kind]
		if !ok {
			return nil, tga.Errorf(tga.ValidationError, "personal data of kind %.80q: want email, phone, ssn, credit_card, ip_address or iban", kind)
		}
		c.rules = append(c.rules, rule{name: "pii:" + kind, kind: kind, find: find})
	}
	for i, p := range f.Patterns {
		r, err := patternRule(i, p)
		if err != nil {
			return nil, err
		}
		c.rules = append(c.rules, r)
	}
	return c, c.act(f)
}

func (a Action) known() bool { return a == Block || a == Redact }

// act gives each rule its action.
func (c *Compiled) act(f Filter) error {
	left := maps.Clone(f.Actions)
	for _, r := range c.rules {
		action, name := f.Action, r.name
		if strings.HasPrefix(name, secretPrefix) {
			name = secretAll
		}
		if own, ok := f.Actions[name]; ok {
			if !own.known() {
				return tga.Errorf(tga.ValidationError, "filter action %.80q of rule %.80s: want block or redact", own, name)
			}
			action = own
			delete(left, name)
		}
		c.blocks = append(c.blocks, action != Redact)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		return tga.Errorf(tga.ValidationError, "the filter has an action for %.80q, and no such rule", name)
	}
	return nil
}

// Names of the rules for secrets, and the name that stands for all of them in [Filter.Actions].
const (
	secretPrefix = "secret:"
	secretAll    = "secret"
)

func patternRule(i int, pattern string) (rule, error) {
	if len(pattern) > MaxPatternBytes {
		return rule{}, tga.Errorf(tga.LimitExceeded, "filter pattern %d has %d bytes: the limit is %d", i, len(pattern), MaxPatternBytes)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return rule{}, tga.Errorf(tga.ValidationError, "filter pattern %d: %w", i, err)
	}
	if re.MatchString("") {
		return rule{}, tga.Errorf(tga.ValidationError, "filter pattern %d matches the empty text, so everything", i)
	}
	return rule{name: "pattern:" + itoa(i), kind: "pattern", find: func(s *subject) []span {
		most := matches(s.text)
		if spans := all(re, s.text, most+1); len(spans) <= most {
			return spans
		}
		return []span{{0, len(s.text)}}
	}}, nil
}

// all returns the first most places where re matches; -1 = all of them.
func all(re *regexp.Regexp, text string, most int) []span {
	found := re.FindAllStringIndex(text, most)
	spans := make([]span, 0, len(found))
	for _, m := range found {
		if m[0] < m[1] { // \b and similar patterns match between two characters
			spans = append(spans, span{m[0], m[1]})
		}
	}
	return spans
}

// hit is a span and the index of the rule that found it. blocks is the index of the first rule
// that found it and blocks, -1 for none.
type hit struct {
	span
	rule, blocks int
}

func (c *Compiled) hit(s span, rule int) hit {
	h := hit{s, rule, -1}
	if c.blocks[rule] {
		h.blocks = rule
	}
	return h
}

// scan returns what all rules find in a text, in order and without overlap. If finds overlap, the
// first of their rules gives its name to the whole span, and the whole span is blocked if one of
// the rules blocks.
func (c *Compiled) scan(text string) []hit {
	var hits []hit
	sub := newSubject(text)
	for i, r := range c.rules {
		for _, s := range r.find(sub) {
			hits = append(hits, c.hit(s, i))
		}
	}
	return merge(hits)
}
