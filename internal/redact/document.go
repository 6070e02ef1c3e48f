package redact

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
)

// minText is the least length of a text at a named pointer for which copies elsewhere are
// removed, in bytes. Shorter texts, such as "1" or "on", occur everywhere.
const minText = 4

// taker removes from one call's documents what its rule names, and puts marks in its place.
type taker struct {
	rule     *Rule
	pointers []string
	texts    []string // to be removed wherever they occur, longest first
	mark     func(where string, value []byte) string
	took     bool
}

// answer redacts an answer, which need not be JSON. No pointer can name a part of an answer that
// is not JSON. So if the rule has pointers, such an answer is replaced as a whole.
func (t *taker) answer(raw []byte) ([]byte, error) {
	if json.Valid(raw) {
		more, err := textsAt(raw, t.pointers)
		if err != nil {
			return nil, err
		}
		t.texts = longestFirst(append(t.texts, more...))
		return t.document(raw)
	}
	if len(t.pointers) > 0 {
		t.took = true
		return []byte(t.mark("", raw)), nil
	}
	return []byte(t.text("", string(raw))), nil
}

// document redacts JSON. Everything that it does not replace keeps its bytes.
func (t *taker) document(raw []byte) ([]byte, error) {
	w := walk{raw: raw, dec: json.NewDecoder(bytes.NewReader(raw))}
	w.dec.UseNumber()
	w.named = func(at []string) bool { return names(t.pointers, at) }
	w.value = func(at []string, value []byte) []byte {
		t.took = true
		return quoted(t.mark(pointerOf(at), value))
	}
	w.text = func(at []string, text string) (string, bool) {
		left := t.text(pointerOf(at), text)
		return left, left != text
	}
	if err := w.all(nil); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "redact: %w", err)
	}
	return append(w.out, raw[w.copied:]...), nil
}

// text redacts a text: it replaces the known texts and what a pattern matches.
func (t *taker) text(where, text string) string {
	var found [][]int
	for _, known := range t.texts {
		for i := 0; ; {
			at := strings.Index(text[i:], known)
			if at < 0 {
				break
			}
			found = append(found, []int{i + at, i + at + len(known)})
			i += at + len(known)
		}
	}
	for _, p := range t.rule.Patterns {
		for _, m := range p.FindAllStringIndex(text, -1) {
			if m[0] < m[1] {
				found = append(found, m)
			}
		}
	}
	if len(found) == 0 {
		return text
	}
	t.took = true
	slices.SortFunc(found, func(a, b []int) int { return a[0] - b[0] })
	var out strings.Builder
	end := 0
	for i := 0; i < len(found); {
		from, to := found[i][0], found[i][1]
		for i++; i < len(found) && found[i][0] < to; i++ {
			to = max(to, found[i][1]) // they overlap: one mark for both
		}
		out.WriteString(text[end:from])
		out.WriteString(t.mark(where, []byte(text[from:to])))
		end = to
	}
	out.WriteString(text[end:])
	return out.String()
}

// textsAt returns the texts and numbers at and below the named pointers. It returns each one in
// two forms: plain, and escaped as within a JSON string.
func textsAt(raw []byte, pointers []string) (texts []string, err error) {
	if len(pointers) == 0 || len(raw) == 0 {
		return nil, nil
	}
	w := walk{raw: raw, dec: json.NewDecoder(bytes.NewReader(raw))}
	w.dec.UseNumber()
	w.named = func([]string) bool { return false }
	w.text = func(at []string, text string) (string, bool) {
		for n := range len(at) + 1 {
			if names(pointers, at[:n]) && len(text) >= minText {
				texts = append(texts, text)
				if escaped := quoted(text); string(escaped[1:len(escaped)-1]) != text {
					texts = append(texts, string(escaped[1:len(escaped)-1]))
				}
				break
			}
		}
		return text, false
	}
	if err := w.all(nil); err != nil {
		return nil, tga.Errorf(tga.ValidationError, "redact: %w", err)
	}
	return longestFirst(texts), nil
}

func longestFirst(texts []string) []string {
	slices.SortFunc(texts, func(a, b string) int { return len(b) - len(a) })
	return texts
}

// walk visits all values of a JSON text, and copies what is not replaced.
type walk struct {
	raw    []byte
	dec    *json.Decoder
	out    []byte
	copied int // bytes of raw that are in out, or replaced

	named func(at []string) bool                                     // whether a value is replaced whole
	value func(at []string, value []byte) []byte                     // by what
	text  func(at []string, text string) (left string, changed bool) // of a text, a member's name or a number
}

// start returns the offset at which the next token begins.
func (w *walk) start() int {
	at := int(w.dec.InputOffset())
	for at < len(w.raw) && strings.IndexByte(" \t\r\n,:", w.raw[at]) >= 0 {
		at++
	}
	return at
}

func (w *walk) replace(from int, by []byte) {
	w.out = append(append(w.out, w.raw[w.copied:from]...), by...)
	w.copied = int(w.dec.InputOffset())
}

// all visits the next value.
func (w *walk) all(at []string) error {
	from := w.start()
	if w.named(at) {
		var value json.RawMessage
		if err := w.dec.Decode(&value); err != nil {
			return err
		}
		w.replace(from, w.value(at, value))
		return nil
	}
	token, err := w.dec.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		return w.inside(at, token == '{')
	case string:
		if left, changed := w.text(at, token); changed {
			w.replace(from, quoted(left))
		}
	case json.Number:
		if left, changed := w.text(at, token.String()); changed {
			w.replace(from, quoted(left))
		}
	}
	return nil
}

// inside visits the members of an object or the elements of an array, up to its end.
func (w *walk) inside(at []string, object bool) error {
	for i := 0; w.dec.More(); i++ {
		name := decimal(i)
		if object {
			from := w.start()
			token, err := w.dec.Token()
			if err != nil {
				return err
			}
			name, _ = token.(string) // the decoder accepts nothing else as a name
			// A name is a part of its object, not of its value, so its place is at: a pointer
			// to the value does not redact the name.
			if left, changed := w.text(at, name); changed {
				w.replace(from, quoted(left))
			}
		}
		if err := w.all(append(at, name)); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}
