package ndjson

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// line is one line, split into its members. The values are unchanged bytes of the line.
type line map[string]json.RawMessage

// forms lists the members of each kind of line. The members in always are required. If the
// content has several forms, exactly one of the members in one is required too.
var forms = map[string]struct{ always, one []string }{
	"entry":    {always: []string{"committed", "epoch", "entry"}},
	"artifact": {always: []string{"seq"}, one: []string{"artifact", "erased"}},
	"document": {always: []string{"seq", "pointer"}, one: []string{"json", "base64", "erased"}},
	"note":     {always: []string{"note"}},
	"head":     {always: []string{"trace_id", "entries", "notes", "state", "head_digest", "note_digest"}},
	"end":      {always: []string{"traces"}},
}

// parseLine reads a line, which must be a JSON object of one of the forms. It calls the gate
// first, which refuses a repeated member: the decoder would keep only the last.
func parseLine(b []byte) (kind string, l line, err error) {
	if err := tga.Gate(b, lineLimits); err != nil {
		return "", nil, err
	}
	if err := json.Unmarshal(b, &l); err != nil || l == nil {
		return "", nil, bad("line is no JSON object")
	}
	if kind, err = l.text("kind"); err != nil {
		return "", nil, err
	}
	form, ok := forms[kind]
	if !ok {
		return "", nil, bad("kind %q is not one of entry, artifact, document, note, head, end", kind)
	}
	members := 1 // kind
	for _, name := range form.always {
		if _, ok := l[name]; !ok {
			return "", nil, bad("%s line without %s", kind, name)
		}
		members++
	}
	if form.one != nil {
		var some int
		for _, name := range form.one {
			if _, ok := l[name]; ok {
				some++
			}
		}
		if some != 1 {
			return "", nil, bad("%s line with %d of %v, want one", kind, some, form.one)
		}
		members++
	}
	if len(l) != members {
		return "", nil, bad("%s line with %d members, want %d", kind, len(l), members)
	}
	return kind, l, nil
}

func (l line) text(name string) (string, error) {
	var s *string
	if err := json.Unmarshal(l[name], &s); err != nil || s == nil {
		return "", bad("%s is no string", name).At("/" + name)
	}
	return *s, nil
}

func (l line) uint(name string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(string(l[name]), 10, bits)
	if err != nil {
		return 0, bad("%s is no number", name).At("/" + name)
	}
	return n, nil
}

// erased reports whether the line has the member erased. Its value must be true.
func (l line) erased() (bool, error) {
	v, ok := l["erased"]
	if ok && string(v) != "true" {
		return false, bad("erased is not true").At("/erased")
	}
	return ok, nil
}

func (l line) digest(name string) (tga.Digest, error) {
	s, err := l.text(name)
	if err != nil {
		return tga.Digest{}, err
	}
	return tga.ParseDigest(s)
}

// entry reads an entry line.
func (l line) entry() (*chain.Entry, error) {
	e, err := tga.DecodeLogEntry(l["entry"])
	if err != nil {
		return nil, err
	}
	text, err := l.text("committed")
	if err != nil {
		return nil, err
	}
	committed, err := tga.ParseMillis(text)
	if err != nil {
		return nil, err
	}
	if text, err = l.text("epoch"); err != nil {
		return nil, err
	}
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, bad("epoch %q is no number of 64 bits", text).At("/epoch")
	}
	return &chain.Entry{LogEntry: *e, Committed: committed, Epoch: chain.Epoch(epoch)}, nil
}

// document reads a document line.
func (l line) document() (d chain.Document, err error) {
	if d.Pointer, err = l.text("pointer"); err != nil {
		return d, err
	}
	if d.Erased, err = l.erased(); err != nil || d.Erased {
		return d, err
	}
	if raw, ok := l["json"]; ok {
		// A reader in another language may have only the parsed value. It can hash the document
		// only if the value's canonical form is the document. Otherwise its verdict would differ.
		if !isCanonical(raw) {
			return d, bad("json is not in canonical form: such a document stands under base64").At("/json")
		}
		d.Data = raw
		return d, nil
	}
	text, err := l.text("base64")
	if err != nil {
		return d, err
	}
	if d.Data, err = base64.StdEncoding.Strict().DecodeString(text); err != nil {
		return d, bad("base64: %v", err).At("/base64")
	}
	if strings.ContainsAny(text, "\r\n") { // the decoder skips these, and other readers do not
		return d, bad("base64 with a line end").At("/base64")
	}
	return d, nil
}

func bad(format string, args ...any) *tga.Error {
	return tga.Errorf(tga.SchemaViolation, format, args...)
}
