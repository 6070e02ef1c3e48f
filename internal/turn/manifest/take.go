package manifest

import (
	"bytes"
	"cmp"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// mostMistakes bounds what one error lists.
const mostMistakes = 50

// reader is the state of reading one manifest.
type reader struct {
	getenv   func(string) (string, bool)
	accepted []string // pointers of restrictions that need not be enforced
	report   Report
	mistakes []*Mistake
	quiet    bool // a value that was not taken is read for comparison only
	// The agents that may be delegated to. If allowed is nil, any agent that a tool names.
	noDelegation bool
	allowed      []string
}

func (r *reader) wrong(n *node, format string, args ...any) {
	if !r.quiet && len(r.mistakes) < mostMistakes {
		r.mistakes = append(r.mistakes, n.mistake(tga.SchemaViolation, format, args...))
	}
}

func (r *reader) warn(n *node, format string, args ...any) {
	if r.quiet {
		return
	}
	m := n.mistake("", format, args...)
	r.report.Warnings = append(r.report.Warnings, Warning{At: m.Pointer, Line: m.Line, Message: m.Message})
}

// place is a value and the name of its member, which may contain a unit.
type place struct {
	*node
	name string
}

// places returns the values of a field, best first. Of several bases only the first that has any
// value is used: a capability's setting overrides that of its tool, and is no contradiction.
func places(name string, bases ...*node) []place {
	list, ok := paths[name]
	if !ok {
		panic("manifest: no field " + name)
	}
	for _, base := range bases {
		var found []place
		for _, path := range list {
			n := base.at(path)
			if n == nil || n.kind == isObject && opened(list, path) {
				continue
			}
			found = append(found, place{n, path[strings.LastIndexByte(path, '.')+1:]})
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// opened reports whether a member of path is a place of the field too. Then an object at path
// only contains that member.
func opened(list []string, path string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(p, path+".") })
}

// take reads a field with parse and reports where its value comes from. It reads the field's
// other places only for comparison. ok is false if there is no value or it cannot be used.
func take[T any](r *reader, name string, parse func(*reader, place) (T, bool), bases ...*node) (v T, ok bool) {
	all := places(name, bases...)
	if len(all) == 0 {
		return v, false
	}
	before := len(r.mistakes)
	v, ok = parse(r, all[0])
	all[0].used = true
	if ok {
		r.took(name, all[0].node)
	}
	if !ok && len(r.mistakes) > before {
		return v, false
	}
	outer := r.quiet
	r.quiet = true
	for _, other := range all[1:] {
		w, same := parse(r, other)
		other.useAll()
		if !same || !equal(v, w) {
			r.report.Contradictions = append(r.report.Contradictions, Contradiction{Field: name, Taken: all[0].pointer, Other: other.pointer})
			if r.quiet = outer; restricting(name) {
				r.refuse(other.node, contradicts, all[0].pointer)
			}
			r.quiet = true
		}
	}
	r.quiet = outer
	return v, ok
}

// equal compares the values of two places.
func equal(v, w any) bool {
	if n, ok := v.(*node); ok {
		a, errA := n.json()
		b, errB := w.(*node).json()
		return errA == nil && errB == nil && bytes.Equal(a, b)
	}
	return reflect.DeepEqual(v, w)
}

// set calls take and stores the value in a variable.
func set[T any](r *reader, to *T, name string, parse func(*reader, place) (T, bool), bases ...*node) bool {
	v, ok := take(r, name, parse, bases...)
	if ok {
		*to = v
	}
	return ok
}

// least reads a limit. The smallest of all places holds, because a larger one would lift a limit
// that the manifest sets elsewhere. Each place is reported.
func least[T cmp.Ordered](r *reader, name string, parse func(*reader, place) (T, bool), bases ...*node) (v T, ok bool) {
	for _, p := range places(name, bases...) {
		w, good := parse(r, p)
		p.used = true
		if !good {
			continue
		}
		r.took(name, p.node)
		if !ok || w < v {
			v, ok = w, true
		}
	}
	return v, ok
}

// setLeast lowers a limit, where zero means no limit.
func setLeast[T cmp.Ordered](r *reader, to *T, name string, parse func(*reader, place) (T, bool), bases ...*node) {
	var none T
	if v, ok := least(r, name, parse, bases...); ok && (*to == none || v < *to) {
		*to = v
	}
}

// took reports where a field's value comes from.
func (r *reader) took(name string, n *node) {
	variable, def := r.variable(n)
	r.report.Taken = append(r.report.Taken, Taken{Field: name, From: n.pointer, Variable: variable, Default: def})
}

var placeholder = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}`)

// variable returns the name of the placeholder in n.
func (r *reader) variable(n *node) (name string, byDefault bool) {
	m := placeholder.FindStringSubmatch(n.text)
	if n.kind != isText || m == nil {
		return "", false
	}
	_, has := r.lookup(m[1])
	return m[1], !has
}

func (r *reader) lookup(name string) (string, bool) {
	if r.getenv == nil {
		return "", false
	}
	v, ok := r.getenv(name)
	return v, ok && v != ""
}

// expand fills the placeholders ${NAME} and ${NAME:-default} of a scalar.
func (r *reader) expand(n *node) (string, bool) {
	if n.kind != isText {
		return n.text, true
	}
	whole := true
	text := placeholder.ReplaceAllStringFunc(n.text, func(s string) string {
		m := placeholder.FindStringSubmatch(s)
		if v, ok := r.lookup(m[1]); ok {
			return v
		}
		if !strings.Contains(s, ":-") {
			r.wrong(n, "the placeholder %s has no value and no default", s)
			whole = false
		}
		return m[2]
	})
	return text, whole
}

// The parsers. prose reads text without replacing placeholders: "${" is ordinary text in it.
func prose(r *reader, p place) (string, bool) {
	switch p.kind {
	case isText, isNumber, isBool:
		return p.text, true
	}
	r.wrong(p.node, "%s is %s, and must be text", p.name, p.kind)
	return "", false
}

func text(r *reader, p place) (string, bool) {
	if _, ok := prose(r, p); !ok {
		return "", false
	}
	s, ok := r.expand(p.node)
	return strings.TrimSpace(s), ok
}

// word reads text, ignoring case and the difference between dash and underscore.
func word(r *reader, p place) (string, bool) {
	s, ok := text(r, p)
	return strings.ReplaceAll(strings.ToLower(s), "-", "_"), ok
}

func truth(r *reader, p place) (bool, bool) {
	s, ok := r.expand(p.node)
	if !ok {
		return false, false
	}
	if v, err := strconv.ParseBool(s); err == nil && (p.kind == isBool || p.kind == isText && s != p.text) {
		return v, true
	}
	r.wrong(p.node, "%s is %s, and must be true or false", p.name, describe(p.node))
	return false, false
}

func describe(n *node) string {
	if n.kind == isText || n.kind == isNumber {
		if len(n.text) <= 40 {
			return strconv.Quote(n.text)
		}
	}
	return n.kind.String()
}

// number reads a number, which may be quoted.
func number(r *reader, p place) (string, bool) {
	if p.kind == isNumber && p.node.number != "" {
		return p.node.number, true
	}
	if p.kind == isText {
		s, ok := r.expand(p.node)
		if !ok {
			return "", false
		}
		if jsonNumber.MatchString(s) {
			if s == p.text {
				r.warn(p.node, "%s is a number in quotes", p.name)
			}
			return s, true
		}
	}
	r.wrong(p.node, "%s is %s, and must be a number", p.name, describe(p.node))
	return "", false
}

// whole reads an integer from least to the largest integer that JSON carries exactly.
func whole(least int64) func(*reader, place) (int64, bool) {
	return func(r *reader, p place) (int64, bool) {
		s, ok := number(r, p)
		if !ok {
			return 0, false
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f != math.Trunc(f) || f < float64(least) || f > 1<<53 {
			r.wrong(p.node, "%s is %s, and must be a whole number from %d to 2^53", p.name, s, least)
			return 0, false
		}
		return int64(f), true
	}
}

// count reads an integer that fits an int on every platform.
func count(least int) func(*reader, place) (int, bool) {
	return func(r *reader, p place) (int, bool) {
		v, ok := whole(int64(least))(r, p)
		if ok && v > math.MaxInt32 {
			r.wrong(p.node, "%s is %d, and must be at most %d", p.name, v, math.MaxInt32)
			return 0, false
		}
		return int(v), ok
	}
}

// real reads a number from least to most.
func real(least, most float64) func(*reader, place) (float64, bool) {
	return func(r *reader, p place) (float64, bool) {
		s, ok := number(r, p)
		if !ok {
			return 0, false
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f < least || f > most {
			r.wrong(p.node, "%s is %s, and must be from %v to %v", p.name, s, least, most)
			return 0, false
		}
		return f, true
	}
}

// longest is the longest time that a manifest may ask for.
const longest = 10 * 365 * 24 * time.Hour

var units = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
	"d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "y": 365 * 24 * time.Hour,
}

var spelled = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?(ms|s|m|h|d|w|y)$`)

// span reads a duration: a number in the unit at the end of the name, seconds if the name has no
// unit, or text such as "30s" and "7d".
func span(r *reader, p place) (time.Duration, bool) {
	unit, amount := time.Second, ""
	if strings.HasSuffix(p.name, "_ms") || strings.HasSuffix(p.name, "Ms") {
		unit = time.Millisecond
	}
	if p.kind == isText {
		s, ok := r.expand(p.node)
		if !ok {
			return 0, false
		}
		if m := spelled.FindStringSubmatch(s); m != nil {
			amount, unit = m[1], units[m[2]]
		}
	}
	if amount == "" {
		var ok bool
		if amount, ok = number(r, p); !ok {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(amount, 64)
	if err != nil || f < 0 || f*float64(unit) > float64(longest) {
		r.wrong(p.node, "%s is %s, and must be from 0 to 10 years", p.name, p.text)
		return 0, false
	}
	return time.Duration(f * float64(unit)), true
}

// limit reads a span that must be more than 0, because 0 would mean no limit.
func limit(r *reader, p place) (time.Duration, bool) {
	d, ok := span(r, p)
	if ok && d <= 0 {
		r.wrong(p.node, "%s is %s, and must be more than 0", p.name, p.text)
		return 0, false
	}
	return d, ok
}

// texts reads a list of texts. A single text is a list of one.
func texts(r *reader, p place) ([]string, bool) {
	if p.kind == isText {
		s, ok := text(r, p)
		return []string{s}, ok
	}
	if p.kind != isList {
		r.wrong(p.node, "%s is %s, and must be a list", p.name, p.kind)
		return nil, false
	}
	list := []string{}
	for _, i := range p.items {
		s, ok := text(r, place{i, p.name})
		if !ok {
			return nil, false
		}
		i.used = true
		list = append(list, s)
	}
	return list, true
}

// object and entries read a value that has parts. The parts are marked as used when they are
// read.
func object(r *reader, p place) (*node, bool) {
	if p.kind != isObject {
		r.wrong(p.node, "%s is %s, and must be an object", p.name, p.kind)
		return nil, false
	}
	return p.node, true
}

func entries(r *reader, p place) (*node, bool) {
	if p.kind != isList {
		r.wrong(p.node, "%s is %s, and must be a list", p.name, p.kind)
		return nil, false
	}
	return p.node, true
}

// value reads any value as JSON.
func value(r *reader, p place) ([]byte, bool) {
	raw, err := p.json()
	if err != nil {
		r.wrong(p.node, "%s holds a number that JSON can't", p.name)
		return nil, false
	}
	p.useAll()
	return raw, true
}
