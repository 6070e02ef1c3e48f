package message

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// mostEmbedded bounds how deep JSON inside strings of JSON is treated as JSON. Deeper, it is
// treated as text. Each level is read once more, so the bound also limits the work.
const mostEmbedded = 4

// isJSON reports whether a string holds an object or array.
func isJSON(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	return text != "" && (text[0] == '{' || text[0] == '[') && isValue(text)
}

func isValue(text string) bool { return utf8.ValidString(text) && json.Valid([]byte(text)) }

// level is an array or object that is open.
type level struct {
	object bool
	index  int             // of the element
	name   string          // of the member, as written to the output
	secret bool            // the member's name says that its value is secret
	names  map[string]bool // names that look redacted, and whether this filter redacted them
	isName bool            // the next string is a member's name
}

// jsonSieve filters one JSON text.
type jsonSieve struct {
	*sieve
	root  func() string // pointer to the text
	depth int
	open  []level
	out   []byte
}

// json filters a text that is valid JSON, string by string.
func (s *sieve) json(text string, at func() string, depth int) ([]byte, error) {
	j := jsonSieve{sieve: s, root: at, depth: depth, out: make([]byte, 0, len(text))}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			end := stringEnd(text, i)
			if err := j.quoted(text[i:end]); err != nil {
				return nil, err
			}
			i = end
			continue
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(text) && strings.IndexByte("0123456789+-.eE", text[end]) >= 0 {
				end++
			}
			if err := j.number(text[i:end]); err != nil {
				return nil, err
			}
			i = end
			continue
		case c == '{' || c == '[':
			j.open = append(j.open, level{object: c == '{', isName: c == '{'})
		case c == '}' || c == ']':
			j.open = j.open[:len(j.open)-1]
		case c == ',':
			l := &j.open[len(j.open)-1]
			l.index++
			l.isName = l.object
		}
		j.out = append(j.out, text[i])
		i++
	}
	return j.out, nil
}

// stringEnd returns the index after the string that starts at i.
func stringEnd(text string, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// mostTokens bounds the tokens of a pointer: a longer pointer ends in "/…".
const mostTokens = 64

// here returns the pointer to the current value.
func (j *jsonSieve) here() string {
	var b strings.Builder
	b.WriteString(j.root())
	for i, l := range j.open {
		if i == mostTokens {
			return b.String() + "/" + elsewhere
		}
		b.WriteByte('/')
		if l.object {
			b.WriteString(tga.ReadableToken(l.name))
		} else {
			b.WriteString(itoa(l.index))
		}
	}
	return b.String()
}

func (j *jsonSieve) quoted(token string) error {
	var text string
	if err := json.Unmarshal([]byte(token), &text); err != nil {
		return err // valid JSON has no such string
	}
	var top *level
	if len(j.open) > 0 {
		top = &j.open[len(j.open)-1]
	}
	if top != nil && top.isName {
		top.isName = false
		return j.memberName(top, token, text)
	}
	if top != nil && top.secret && strong(text) {
		return j.secretMember(text)
	}
	if j.depth < mostEmbedded && isJSON(text) {
		clean, err := j.string(text, j.here, j.depth)
		if err != nil {
			return err
		}
		if clean != text {
			token = string(appendQuoted(nil, clean))
		}
		j.out = append(j.out, token...)
		return nil
	}
	hits := j.scan(text)
	if len(hits) == 0 {
		j.out = append(j.out, token...)
		return nil
	}
	return j.hidden(text, hits)
}

// hidden writes a string with its hits replaced.
func (j *jsonSieve) hidden(text string, hits []hit) error {
	if err := j.found(hits, j.here); err != nil {
		return err
	}
	j.out = appendQuoted(j.out, j.replace(text, hits))
	return nil
}

// memberName filters a member's name. If redaction makes two names equal, they are numbered.
func (j *jsonSieve) memberName(l *level, token, text string) error {
	hits := j.scan(text)
	clean := j.replace(text, hits)
	l.name, l.secret = clean, j.secrets && secretName(text)
	// A name may also look redacted because an earlier filter redacted it.
	if len(hits) > 0 || strings.Contains(text, "[REDACTED:") {
		for n := 2; !l.take(l.name, len(hits) > 0 || n > 2); n++ {
			l.name = clean + "#" + itoa(n)
		}
	}
	if len(hits) > 0 {
		if err := j.found(hits, j.here); err != nil {
			return err
		}
	}
	if l.name != text {
		token = string(appendQuoted(nil, l.name))
	}
	j.out = append(j.out, token...)
	return nil
}

// take reports whether a name is free in an object, and takes it. Two equal names that the input
// already had are left alone.
func (l *level) take(name string, made bool) bool {
	if before, taken := l.names[name]; taken && (made || before) {
		return false
	}
	if l.names == nil {
		l.names = map[string]bool{}
	}
	l.names[name] = made
	return true
}

// secretMember replaces a value whose member's name says that it is secret.
func (j *jsonSieve) secretMember(text string) error {
	rule := slices.IndexFunc(j.rules, func(r rule) bool { return r.name == assignment })
	return j.hidden(text, []hit{j.hit(span{0, len(text)}, rule)})
}

// number filters a number as text, because the number of a payment card may be written as a JSON
// number. A number with a hit becomes a string.
func (j *jsonSieve) number(token string) error {
	hits := j.scan(token)
	if len(hits) == 0 {
		j.out = append(j.out, token...)
		return nil
	}
	return j.hidden(token, hits)
}

// appendQuoted appends a JSON string, without the escapes of HTML.
func appendQuoted(dst []byte, s string) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string has a JSON form
	}
	return append(dst, strings.TrimSuffix(b.String(), "\n")...)
}
