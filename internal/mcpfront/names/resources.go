package names

import (
	"net/url"
	"slices"
	"strings"
)

// Resources are the URIs of resources that clients may have: patterns as in [Lists]. URIs are not
// renamed: answers of tools name them.
type Resources []string

// Permit reports whether a URI is for the client. One whose path climbs is permitted by "*" alone: what
// stands after the beginning of a pattern could lead out of it.
func (r Resources) Permit(uri string) bool {
	if slices.Contains(r, "*") {
		return true
	}
	return matchAny(r, uri) && !climbs(uri)
}

// climbs reports whether a server could take a URI for one that begins otherwise.
func climbs(uri string) bool {
	plain, err := url.PathUnescape(uri)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(plain, func(c rune) bool { return strings.ContainsRune(`/\?#`, c) }), func(segment string) bool {
		return segment == "." || segment == ".."
	})
}

// PermitTemplate reports whether a template has URIs that could be for the client. Whether one of them
// is says [Resources.Permit].
func (r Resources) PermitTemplate(template string) bool {
	fixed, _, _ := strings.Cut(template, "{")
	return slices.ContainsFunc(r, func(pattern string) bool {
		start, open := strings.CutSuffix(pattern, "*")
		return strings.HasPrefix(start, fixed) || open && strings.HasPrefix(fixed, start)
	})
}
