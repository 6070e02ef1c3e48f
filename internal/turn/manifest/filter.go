package manifest

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
)

// pii lists the kinds of personal data that a filter can find.
var pii = []string{"email", "phone", "ssn", "credit_card", "ip_address", "iban"}

// filters reads what may not come in, and what is removed from the answers of tools.
func (r *reader) filters(a *turn.Agent, root *node) {
	in, inSet := r.filter("Filter", message.Block, root)
	out, outSet := r.filter("Redact", message.Redact, root)
	found, foundSet := r.filter("Filter.PII", message.Redact, root)
	if foundSet && found.PII == nil {
		found.PII = slices.Clone(pii)
	}
	if foundSet {
		switch {
		case !inSet:
			in.Action = found.Action
		case in.Action != found.Action:
			in.Actions = map[string]message.Action{}
			var both []string
			for _, kind := range found.PII {
				if slices.Contains(in.PII, kind) {
					both = append(both, kind)
					in.Actions["pii:"+kind] = message.Block
				} else {
					in.Actions["pii:"+kind] = found.Action
				}
			}
			if both != nil {
				r.warn(places("Filter.PII", root)[0].node, "content_filtering and pii_detection do not agree about %s: it is blocked", strings.Join(both, ", "))
			}
		}
		in.PII = union(in.PII, found.PII)
		out.PII = union(out.PII, found.PII)
		inSet = true
		if !outSet {
			out.Action, outSet = found.Action, true
		}
	}
	if on, ok := take(r, "Redact.Audit", truth, root); ok && on {
		out.PII = union(out.PII, pii)
		if !outSet {
			out.Action, outSet = message.Redact, true
		}
	}
	if inSet {
		a.Filter = in
		r.compile("Filter", in, root)
	}
	if outSet {
		a.Redact = out
		r.compile("Redact", out, root)
	}
}

// compile refuses a filter that package message would refuse. Its limits apply to the whole
// filter.
func (r *reader) compile(name string, f message.Filter, root *node) {
	if _, err := f.Compile(); err != nil {
		at := root
		if p := places(name, root); p != nil {
			at = p[0].node
		}
		r.wrong(at, "the filter can't be used: %v", err)
	}
}

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// filter reads one section. The section true means a filter of secrets and personal data.
func (r *reader) filter(name string, by message.Action, root *node) (f message.Filter, ok bool) {
	n, ok := take(r, name, section, root)
	if !ok {
		return f, false
	}
	f.Action = by
	if n.kind == isBool {
		if n.text != "true" {
			return f, false
		}
		f.Secrets, f.PII = true, slices.Clone(pii)
		return f, true
	}
	if n.kind == isList {
		f.Patterns, ok = patterns(r, place{n, "output_filtering"})
		return f, ok
	}
	on := true
	set(r, &on, "Filters.Enabled", truth, n)
	action, named := take(r, "Filters.Action", word, n)
	switch {
	case !named:
	case action == "block":
		f.Action = message.Block
	case action == "redact":
		f.Action = message.Redact
	case action == "warn" || action == "log":
		r.warn(places("Filters.Action", n)[0].node, "the action %q neither blocks nor redacts: the filter is off", action)
		on = false
	default:
		r.refuse(places("Filters.Action", n)[0].node, "is %q, and must be block, redact, warn or log", action)
	}
	set(r, &f.MaxBytes, "Filters.MaxBytes", count(1), n)
	set(r, &f.Patterns, "Filters.Patterns", patterns, n)
	set(r, &f.Secrets, "Filters.Secrets", truth, n)
	set(r, &f.PII, "Filters.PII", kinds(on), n)
	if list, ok := take(r, "Filters.Categories", texts, n); ok {
		r.categories(&f, n, list, on)
	}
	if on && f.Off() && name != "Filter.PII" {
		r.warn(n, "the filter names nothing that it filters")
	}
	return f, on
}

func section(r *reader, p place) (*node, bool) {
	switch p.kind {
	case isObject, isList, isBool:
		return p.node, true
	}
	r.wrong(p.node, "%s is %s, and must be an object", p.name, p.kind)
	return nil, false
}

func patterns(r *reader, p place) ([]string, bool) {
	if p.kind != isList {
		r.wrong(p.node, "%s is %s, and must be a list", p.name, p.kind)
		return nil, false
	}
	list := []string{}
	for _, n := range p.items {
		if _, err := regexp.Compile(n.text); err != nil || n.kind != isText {
			r.wrong(n, "the pattern %s can't be used: %v", describe(n), err)
			return nil, false
		}
		n.used = true
		list = append(list, n.text)
	}
	return list, true
}

// kinds reads kinds of personal data: a list, or true for all. If the filter is on, a kind that
// it cannot find is refused.
func kinds(on bool) func(*reader, place) ([]string, bool) {
	return func(r *reader, p place) ([]string, bool) {
		if p.kind == isBool {
			if p.text == "true" {
				return slices.Clone(pii), true
			}
			return []string{}, true
		}
		names, ok := texts(r, p)
		if !ok {
			return nil, false
		}
		list := []string{}
		for _, name := range names {
			switch {
			case slices.Contains(pii, name):
				list = union(list, []string{name})
			case on:
				r.refuse(p.node, "names personal data of the kind %q, which can't be found", name)
			}
		}
		return list, true
	}
}

// categories reads the categories of content that are filtered. If the filter is on, a category
// that it cannot find is refused.
func (r *reader) categories(f *message.Filter, n *node, list []string, on bool) {
	for _, c := range list {
		switch {
		case c == "pii":
			f.PII = union(f.PII, pii)
		case c == "secrets" || c == "credentials":
			f.Secrets = true
		case on:
			r.refuse(places("Filters.Categories", n)[0].node, "names content of the category %q, which takes a classifier to find", c)
		}
	}
}
