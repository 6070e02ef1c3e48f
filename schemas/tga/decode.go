package tga

import (
	"bytes"
	"strconv"
)

// MaxSafeInteger is the largest integer that the contracts use: every double up to
// it is exact, so no reader in any language rounds it.
const MaxSafeInteger = 1<<53 - 1

// decoder reads contract objects from a canonical text that passed the gate.
type decoder struct {
	doc *document
	// text is a copy that short strings share, "" where the text is long: a decoded
	// name must not keep megabytes alive.
	text string
}

const mostShared = 4096

func newDecoder(doc *document) *decoder {
	d := &doc.decoder
	d.doc = doc
	if len(doc.text) <= mostShared {
		d.text = string(doc.text)
	}
	return d
}

func violation(format string, args ...any) *Error {
	return Errorf(SchemaViolation, format, args...)
}

// decodeObject reads the closed object at obj: one that may have only the members of table.
// Both its members and table are in canonical order, so one walk finds missing and unknown
// members.
func decodeObject[T any](d *decoder, obj int32, table []field[T], v *T) *Error {
	if d.doc.nodes[obj].kind != kindObject {
		return violation("want an object")
	}
	next := 0
	// skip passes over the table's members before the name until, or over all.
	skip := func(until string, all bool) *Error {
		for ; next < len(table) && (all || table[next].name < until); next++ {
			if f := &table[next]; f.need != "" {
				return f.missing()
			}
		}
		return nil
	}
	err := d.doc.children(obj, func(n int32) *Error {
		name := d.doc.name(n)
		if err := skip(string(name), false); err != nil {
			return err
		}
		if next == len(table) || table[next].name != string(name) {
			return violation("unknown member %q (names are case-sensitive)", clip(string(name))).under(string(name))
		}
		if err := table[next].set(d, n, v); err != nil {
			return err.under(table[next].name)
		}
		next++
		return nil
	})
	if err != nil {
		return err
	}
	return skip("", true)
}

// each calls f for the elements of the array at n.
func (d *decoder) each(n int32, f func(element int32) *Error) *Error {
	if d.doc.nodes[n].kind != kindArray {
		return violation("want an array")
	}
	i := -1
	return d.doc.children(n, func(c int32) *Error {
		i++
		if err := f(c); err != nil {
			return err.under(strconv.Itoa(i))
		}
		return nil
	})
}

func (d *decoder) isNull(n int32) bool {
	v := d.doc.nodes[n]
	return v.kind == kindLiteral && d.doc.text[v.start] == 'n'
}

// name returns the name of the member at n.
func (d *decoder) name(n int32) string {
	if v := &d.doc.nodes[n]; d.text != "" && !v.decodedName {
		return d.text[v.name:v.nameEnd]
	}
	return string(d.doc.name(n))
}

// str returns the string at n with its escapes undone.
func (d *decoder) str(n int32) (string, *Error) {
	v := d.doc.nodes[n]
	if v.kind != kindString {
		return "", violation("want a string")
	}
	raw := d.doc.text[v.start:v.end]
	if bytes.IndexByte(raw, '\\') >= 0 {
		return string(unescape(nil, raw)), nil
	}
	if d.text != "" {
		return d.text[v.start:v.end], nil
	}
	return string(raw), nil
}

func (d *decoder) integer(n int32, low, high uint64) (uint64, *Error) {
	v := d.doc.nodes[n]
	if v.kind != kindNumber {
		return 0, violation("want an integer")
	}
	var u uint64
	for _, c := range d.doc.text[v.start:v.end] {
		if c < '0' || c > '9' || u > MaxSafeInteger {
			return 0, violation("want an integer from %d to %d", low, high)
		}
		u = u*10 + uint64(c-'0')
	}
	if u < low || u > high {
		return 0, violation("want an integer from %d to %d", low, high)
	}
	return u, nil
}

func (d *decoder) boolean(n int32) (bool, *Error) {
	v := d.doc.nodes[n]
	if v.kind != kindLiteral || d.isNull(n) {
		return false, violation("want true or false")
	}
	return d.doc.text[v.start] == 't', nil
}

// rawObject returns the canonical text of the object at n. It aliases the document's text.
func (d *decoder) rawObject(n int32) ([]byte, *Error) {
	v := d.doc.nodes[n]
	if v.kind != kindObject {
		return nil, violation("want an object")
	}
	return d.doc.text[v.start:v.end:v.end], nil
}

// open parses raw for decoding. It returns the canonical form, in memory of its own, and a
// decoder over it. The caller frees the decoder's document.
func open(raw []byte, lim Limits) (canonical []byte, d *decoder, err *Error) {
	doc, err := parse(raw, lim)
	if err != nil {
		return nil, nil, err
	}
	if canonical, err = doc.canonicalForm(); err != nil {
		doc.free()
		return nil, nil, err
	}
	if doc.canonical {
		// The copy has the same offsets, so the nodes are valid for it too.
		doc.text = canonical
		return canonical, newDecoder(doc), nil
	}
	doc.free()
	doc, err = openCanonical(canonical)
	if err != nil {
		return nil, nil, err
	}
	return canonical, newDecoder(doc), nil
}

// openCanonical parses bytes that must be canonical already. The document aliases them.
func openCanonical(canonical []byte) (*document, *Error) {
	doc, err := parse(canonical, noLimits)
	if err != nil {
		return nil, err
	}
	if !doc.canonical {
		doc.free()
		return nil, Errorf(ValidationError, "the stored bytes are not in canonical form")
	}
	return doc, nil
}

// mismatch makes the error for a digest that does not match its bytes.
func mismatch(what string, computed, found Digest, where string) *Error {
	err := Errorf(StateChecksumMismatch, "%s: computed %v, found %v", what, computed, found)
	err.WantDigest, err.GotDigest, err.Where = computed, found, where
	return err
}

// stored marks an error as one about our own stored bytes.
func stored(err *Error) *Error {
	err.Where = "stored"
	return err
}
