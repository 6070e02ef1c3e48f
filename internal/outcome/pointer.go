package outcome

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// maxPointer is the most bytes of a pointer in the configuration.
const maxPointer = 1024

// pointer is a JSON Pointer (RFC 6901), its tokens unescaped.
type pointer []string

// parsePointer reads a pointer. It refuses the empty pointer to a whole document: here the
// first token always names a document.
func parsePointer(s string) (pointer, error) {
	bad := func(why string) (pointer, error) { return nil, fmt.Errorf("%.80q %s", s, why) }
	switch {
	case s == "" || s[0] != '/':
		return bad("does not begin with /")
	case len(s) > maxPointer:
		return bad("has over 1024 bytes")
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		for rest := t; ; {
			_, after, escaped := strings.Cut(rest, "~")
			if !escaped {
				break
			}
			if after == "" || after[0] != '0' && after[0] != '1' {
				return bad("has a ~ that neither 0 nor 1 follows")
			}
			rest = after
		}
		tokens[i] = tga.UnescapeToken(t)
	}
	return tokens, nil
}

// parseIn reads a pointer into one of the named documents.
func parseIn(s string, documents []string) (pointer, error) {
	p, err := parsePointer(s)
	if err == nil && !slices.Contains(documents, p[0]) {
		err = fmt.Errorf("%.80q begins with none of /%s", s, strings.Join(documents, ", /"))
	}
	return p, err
}

// String returns the text form of p.
func (p pointer) String() string {
	var b strings.Builder
	for _, t := range p {
		b.WriteString("/" + tga.EscapeToken(t))
	}
	return b.String()
}
