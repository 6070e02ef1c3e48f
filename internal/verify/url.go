package verify

import (
	"net/url"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// URL is a URL template. {name} is replaced by a value, escaped so that it is one path
// segment or one part of the query; {+name} keeps the slashes of a path. Scheme and host
// are fixed: otherwise whoever chooses a resource's id could choose which server gets the
// headers with the secrets.
type URL struct {
	key   string
	parts []urlPart
}

type urlPart struct {
	literal, name string // one of the two
	keep          bool   // the slashes
	query         bool
}

// ParseURL reads a template. key is for errors.
func ParseURL(key, text string, names Names) (*URL, error) {
	t := &URL{key: key}
	query, probe := false, ""
	for rest := text; rest != ""; {
		literal, after, open := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return nil, Invalid(key, "a } without its {")
		}
		query = query || strings.Contains(literal, "?")
		t.parts, probe = append(t.parts, urlPart{literal: literal}), probe+literal
		if !open {
			break
		}
		name, after, shut := strings.Cut(after, "}")
		if !shut {
			return nil, Invalid(key, "a { without its }")
		}
		if strings.Count(probe, "/") < 3 {
			return nil, Invalid(key, "{%.80s} stands before the path", name)
		}
		name, keep := strings.CutPrefix(name, "+")
		if keep && query {
			return nil, Invalid(key, "{+%.80s}: the query has no slashes to keep", name)
		}
		if err := names.Check(key, name); err != nil {
			return nil, err
		}
		t.parts, probe = append(t.parts, urlPart{name: name, keep: keep, query: query}), probe+"x"
		rest = after
	}
	u, err := url.Parse(probe)
	// The URL is not repeated where it did not parse: it may hold a password.
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Contains(probe, "#") {
		return nil, Invalid(key, "want http:// or https://, a host and a path, no fragment, and credentials in a file of headers")
	}
	return t, nil
}

// Names are the names that have a place in the URL.
func (t *URL) Names() []string {
	var names []string
	for _, p := range t.parts {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// Expand puts a subject's values in their places. VALIDATION_ERROR says which value is
// missing or would change the path: an empty segment would name the collection above,
// and .. another resource.
func (t *URL) Expand(s Subject) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.name == "" {
			b.WriteString(p.literal)
			continue
		}
		v, err := s.Text(p.name)
		if err != nil {
			return "", err
		}
		if v == "" {
			return "", tga.Errorf(tga.ValidationError, "%s: there is no value for {%s}", t.key, p.name)
		}
		if p.query {
			b.WriteString(url.QueryEscape(v))
			continue
		}
		segments := strings.Split(v, "/")
		for _, s := range segments {
			// Escaping does not help: some servers unescape first and then resolve.
			if s == "." || s == ".." || s == "" && p.keep {
				return "", tga.Errorf(tga.ValidationError, "%s: the value %.80q of {%s} has a segment %q", t.key, v, p.name, s)
			}
		}
		if !p.keep {
			b.WriteString(url.PathEscape(v))
			continue
		}
		for i, segment := range segments {
			if i > 0 {
				b.WriteByte('/')
			}
			b.WriteString(url.PathEscape(segment))
		}
	}
	return b.String(), nil
}
