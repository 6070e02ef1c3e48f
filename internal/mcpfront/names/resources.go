package names

import (
	"net/url"
	"slices"
	"strings"
)

// Resources are patterns, as in [Lists], of the URIs of resources that clients may have. URIs are not
// renamed, because answers of tools contain them.
type Resources []string

// Permit reports whether the client may have a URI. A URI with "." or ".." segments is permitted only by
// the pattern "*", because it could lead out of a prefix.
func (r Resources) Permit(uri string) bool {
	if slices.Contains(r, "*") {
		return true
	}
	return matchAny(r, uri) && !climbs(uri)
}

// climbs reports whether a URI has "." or ".." segments, which a server could resolve to a URI with
// another prefix.
func climbs(uri string) bool {
	plain, err := url.PathUnescape(uri)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(plain, func(c rune) bool { return strings.ContainsRune(`/\?#`, c) }), func(segment string) bool {
		return segment == "." || segment == ".."
	})
}

// PermitTemplate reports whether the client could have some URIs of a template. Ask [Resources.Permit]
// about each URI.
func (r Resources) PermitTemplate(template string) bool {
	fixed, _, _ := strings.Cut(template, "{")
	return slices.ContainsFunc(r, func(pattern string) bool {
		start, open := strings.CutSuffix(pattern, "*")
		return strings.HasPrefix(start, fixed) || open && strings.HasPrefix(fixed, start)
	})
}
