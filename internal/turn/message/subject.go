package message

import (
	"regexp"
	"strings"
)

// subject is a text that rules search, with counts that are made once for all rules. Most texts
// cannot contain most of what the rules look for, and a regular expression takes a hundred times
// as long to find that out.
type subject struct {
	text                       string
	digits, colons, equals, at int    // how many there are
	low                        string // see lower
}

// set is a set of bytes.
type set [256]bool

func setOf(chars string) *set {
	var s set
	for i := range len(chars) {
		s[chars[i]] = true
	}
	return &s
}

const (
	decimals = "0123456789"
	letters  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

func newSubject(text string) *subject {
	s := &subject{text: text}
	for i := range len(text) {
		switch c := text[i]; c {
		case ':':
			s.colons++
		case '=':
			s.equals++
		case '@':
			s.at++
		default:
			if '0' <= c && c <= '9' {
				s.digits++
			}
		}
	}
	return s
}

// lower returns the text with its ASCII letters in lower case, byte for byte.
func (s *subject) lower() string {
	if s.low == "" {
		s.low = lowerASCII(s.text)
	}
	return s.low
}

func lowerASCII(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// runs returns the maximal runs of bytes of a set.
func (s *subject) runs(in *set) (all []span) {
	for at := 0; at < len(s.text); at++ {
		if !in[s.text[at]] {
			continue
		}
		start := at
		for at < len(s.text) && in[s.text[at]] {
			at++
		}
		all = append(all, span{start, at})
	}
	return all
}

// within returns the places where re matches and keep agrees. It searches only runs of a set that
// have at least the given number of digits.
func (s *subject) within(re *regexp.Regexp, in *set, digits int, keep func(span) bool) (spans []span) {
	if s.digits < digits {
		return nil
	}
	for _, run := range s.runs(in) {
		if len(digitsOf(s.text[run.start:run.end])) < digits {
			continue
		}
		for _, m := range all(re, s.text[run.start:run.end], -1) {
			if m = (span{run.start + m.start, run.start + m.end}); keep(m) {
				spans = append(spans, m)
			}
		}
	}
	return spans
}

// apart reports whether a span touches no letter and no digit and, in front, no byte of extra.
func (s *subject) apart(m span, extra string) bool {
	if m.start > 0 && (isWord(s.text[m.start-1]) || strings.IndexByte(extra, s.text[m.start-1]) >= 0) {
		return false
	}
	return m.end == len(s.text) || !isWord(s.text[m.end])
}

func isWord(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_'
}
