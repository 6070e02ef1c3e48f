package message

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

func itoa(n int) string { return strconv.Itoa(n) }

// merge sorts hits and joins those that overlap.
func merge(hits []hit) []hit {
	slices.SortFunc(hits, func(a, b hit) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return a.rule - b.rule
	})
	out := hits[:0]
	for _, h := range hits {
		if n := len(out) - 1; n >= 0 && h.start < out[n].end {
			out[n].end = max(out[n].end, h.end)
			out[n].rule = min(out[n].rule, h.rule)
			if h.blocks >= 0 && (out[n].blocks < 0 || h.blocks < out[n].blocks) {
				out[n].blocks = h.blocks
			}
			continue
		}
		out = append(out, h)
	}
	return out
}

// sieve is one use of a filter.
type sieve struct {
	*Compiled
	findings []Finding
}

// size refuses a message of more than MaxBytes.
func (s *sieve) size(bytes int, at string) error {
	if s.maxBytes == 0 || bytes <= s.maxBytes {
		return nil
	}
	s.findings = append(s.findings, Finding{Rule: "size", At: at, Count: 1})
	return tga.Errorf(tga.ContentFiltered, "rule size: %d bytes, and %d may pass", bytes, s.maxBytes).At(at)
}

// MaxFindings bounds how many places are reported. For each rule, all further finds are counted
// in one more Finding, whose At is "…".
const MaxFindings = 1000

// elsewhere is the place of finds that are only counted.
const elsewhere = "…"

// found records the hits in the string at a place, and returns an error if one of their rules
// blocks.
func (s *sieve) found(hits []hit, place func() string) error {
	if len(hits) == 0 {
		return nil
	}
	first, at := len(s.findings), elsewhere
	if first < MaxFindings {
		at = place()
	} else {
		first = MaxFindings
	}
	for _, h := range hits {
		name := s.rules[h.rule].name
		i := slices.IndexFunc(s.findings[first:], func(f Finding) bool { return f.Rule == name && f.At == at })
		if i < 0 {
			s.findings = append(s.findings, Finding{Rule: name, At: at})
			i = len(s.findings) - 1 - first
		}
		s.findings[first+i].Count++
	}
	if i := slices.IndexFunc(hits, func(h hit) bool { return h.blocks >= 0 }); i >= 0 {
		return tga.Errorf(tga.ContentFiltered, "rule %s", s.rules[hits[i].blocks].name).At(at)
	}
	return nil
}

// fixed returns a function that returns a known place.
func fixed(at string) func() string { return func() string { return at } }

// replace replaces each hit by [REDACTED:kind].
func (s *sieve) replace(text string, hits []hit) string {
	var b strings.Builder
	at := 0
	for _, h := range hits {
		b.WriteString(text[at:h.start])
		b.WriteString(s.mark(h))
		at = h.end
	}
	b.WriteString(text[at:])
	return b.String()
}

func (s *sieve) mark(h hit) string { return "[REDACTED:" + s.rules[h.rule].kind + "]" }

// string filters the text at a place. If the text is itself JSON, it stays JSON.
func (s *sieve) string(text string, at func() string, depth int) (string, error) {
	if depth < mostEmbedded && isJSON(text) {
		out, err := s.json(text, at, depth+1)
		return string(out), err
	}
	hits := s.scan(text)
	if len(hits) == 0 {
		return text, nil
	}
	if err := s.found(hits, at); err != nil {
		return "", err
	}
	return s.replace(text, hits), nil
}

// Apply filters messages: their texts, the names and addresses of their parts, data that is text,
// and the arguments of tool calls. messages is not changed. The error is CONTENT_FILTERED; it
// names the rule and the place and never the content.
func (c *Compiled) Apply(messages []Message) ([]Message, []Finding, error) {
	s := sieve{Compiled: c}
	out := slices.Clone(messages)
	for i := range out {
		if err := s.message(&out[i], "/"+itoa(i)); err != nil {
			return nil, s.findings, err
		}
	}
	return out, s.findings, nil
}

func (s *sieve) message(m *Message, at string) error {
	if err := s.size(m.textBytes(), at); err != nil {
		return err
	}
	if len(s.rules) == 0 {
		return nil
	}
	m.Content, m.ToolCalls = slices.Clone(m.Content), slices.Clone(m.ToolCalls)
	for i := range m.Content {
		p, at := &m.Content[i], at+"/content/"+itoa(i)
		for _, f := range [...]struct {
			name  string
			value *string
		}{{"/text", &p.Text}, {"/name", &p.Name}, {"/uri", &p.URI}} {
			text, err := s.string(*f.value, fixed(at+f.name), 0)
			if err != nil {
				return err
			}
			*f.value = text
		}
		if len(p.Data) > 0 && utf8.Valid(p.Data) {
			text, err := s.string(string(p.Data), fixed(at+"/data"), 0)
			if err != nil {
				return err
			}
			p.Data = []byte(text)
		}
	}
	for i := range m.ToolCalls {
		text, err := s.string(m.ToolCalls[i].Arguments, fixed(at+"/tool_calls/"+itoa(i)+"/arguments"), 0)
		if err != nil {
			return err
		}
		m.ToolCalls[i].Arguments = text
	}
	return nil
}

// textBytes counts the bytes that [Filter.MaxBytes] bounds.
func (m Message) textBytes() (n int) {
	for _, p := range m.Content {
		n += len(p.Text) + len(p.Name) + len(p.URI)
		if utf8.Valid(p.Data) {
			n += len(p.Data)
		}
	}
	for _, c := range m.ToolCalls {
		n += len(c.Arguments)
	}
	return n
}

// ApplyBytes filters a tool's answer. JSON stays JSON: strings, names of members and numbers are
// filtered one by one, and those in which no rule finds anything keep their bytes. Any other
// answer is filtered as text. raw is not changed.
func (c *Compiled) ApplyBytes(raw []byte) ([]byte, []Finding, error) {
	s := sieve{Compiled: c}
	if err := s.size(len(raw), ""); err != nil {
		return nil, s.findings, err
	}
	if len(s.rules) == 0 {
		return raw, nil, nil
	}
	var out []byte
	var err error
	if text := string(raw); isValue(text) {
		out, err = s.json(text, fixed(""), 0)
	} else {
		text, err = s.string(text, fixed(""), mostEmbedded)
		out = []byte(text)
	}
	if err != nil {
		return nil, s.findings, err
	}
	return out, s.findings, nil
}
