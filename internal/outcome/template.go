package outcome

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxTemplate is the most bytes of a template in the configuration.
const maxTemplate = 64 << 10

// template is a text with references: a list of texts and pointers.
type template struct {
	parts []part
}

// part is a text, or a reference where at is set.
type part struct {
	text string
	at   pointer
}

// parseTemplate reads a template. "{/…}" is a reference, "{{" a brace; a brace before
// anything else stands for itself. No reference can lead to a name that contains "}".
func parseTemplate(s string, documents []string) (template, error) {
	bad := func(why string) (template, error) { return template{}, fmt.Errorf("template %.80q %s", s, why) }
	if len(s) > maxTemplate {
		return bad("has over 64 KiB")
	}
	if !utf8.ValidString(s) {
		return bad("is not UTF-8")
	}
	var t template
	var text strings.Builder
	for rest := s; ; {
		before, after, ok := strings.Cut(rest, "{")
		text.WriteString(before)
		if !ok {
			break
		}
		rest = after
		switch {
		case strings.HasPrefix(after, "{"):
			text.WriteByte('{')
			rest = after[1:]
		case strings.HasPrefix(after, "/"):
			ref, more, ok := strings.Cut(after, "}")
			if !ok {
				return bad("has a reference without end")
			}
			p, err := parseIn(ref, documents)
			if err != nil {
				return template{}, err
			}
			if text.Len() > 0 {
				t.parts = append(t.parts, part{text: text.String()})
				text.Reset()
			}
			t.parts = append(t.parts, part{at: p})
			rest = more
		default:
			text.WriteByte('{')
		}
	}
	if text.Len() > 0 {
		t.parts = append(t.parts, part{text: text.String()})
	}
	return t, nil
}

// whole returns the pointer of a template that is nothing but one reference.
func (t template) whole() (pointer, bool) {
	if len(t.parts) == 1 && t.parts[0].at != nil {
		return t.parts[0].at, true
	}
	return nil, false
}

// text returns the text with its references replaced. A reference that leads nowhere, or
// to an object or array, is an error. absent is true only if the document exists and the
// reference leads nowhere in it.
func (t template) text(d documents) (s string, absent bool, err error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.at == nil {
			b.WriteString(p.text)
			continue
		}
		v, absent := d.find(p.at)
		if v == nil {
			return "", absent, nothing(p.at)
		}
		s, err := v.text()
		if err != nil {
			return "", false, fmt.Errorf("%s %w", p.at, err)
		}
		b.WriteString(s)
	}
	return b.String(), false, nil
}

func nothing(p pointer) error { return fmt.Errorf("there is nothing at %s", p) }
