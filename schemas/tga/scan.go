package tga

import (
	"bytes"
	"slices"
	"strconv"
	"sync"
)

type kind uint8

const (
	kindLiteral kind = iota // true, false, null
	kindNumber
	kindString
	kindArray
	kindObject
)

// node is one value of a parsed text. Nodes are kept in text order, so the children
// of a container follow it and next leads past them.
type node struct {
	kind        kind
	plain       bool  // string or number: spelled as RFC 8785 spells it
	decodedName bool  // the name is in document.names, not in document.text
	folded      bool  // container: its children are not kept; document.children parses them again
	start, end  int32 // of the value; of a string without its quotes
	name        int32 // span of the member's name; 0,0 for an element and the root
	nameEnd     int32
	next        int32
}

// document is a text that passed the gate, as a flat list of its values. It is made
// by one pass over the bytes and is reused through a pool.
//
// A document that folds keeps nodes only for the members of the objects that are still open.
// Otherwise the nodes of a long text would take a multiple of its bytes: twelve times as many
// for [1,1,1]. To get the children of a folded container, its text is parsed again.
type document struct {
	text      []byte
	limits    Limits
	nodes     []node
	names     []byte  // names that were spelled with escapes, decoded
	order     []int32 // scratch: stack of sorted members
	pos       int
	depth     int
	canonical bool
	folds     bool
	writer    *writer // gets the canonical form, if the pass is to make it
	decoder   decoder // of this document; it is here so that the two are pooled together
}

var documents = sync.Pool{New: func() any { return new(document) }}

// mostPooled bounds what a pooled document keeps, in nodes, so that one large text
// does not stay in memory for ever.
const mostPooled = 4096

func (d *document) free() {
	if d.large() {
		return
	}
	*d = document{nodes: d.nodes[:0], names: d.names[:0], order: d.order[:0]}
	documents.Put(d)
}

func (d *document) large() bool {
	return max(cap(d.nodes), cap(d.names), cap(d.order)) > mostPooled
}

// foldOver is the length in bytes above which [parse] folds. For a shorter text, parsing a
// container again costs more than keeping its nodes.
const foldOver = 64 << 10

// parse checks text as [Gate] describes, for callers that read its values. The document
// aliases text until it is freed.
func parse(text []byte, lim Limits) (*document, *Error) {
	return scan(text, lim, len(text) > foldOver, nil)
}

// check is parse for callers that only need to know that the text passes, and whether it is
// canonical. It keeps only the outermost value.
func check(text []byte, lim Limits) (*document, *Error) { return scan(text, lim, true, nil) }

func scan(text []byte, lim Limits, folds bool, w *writer) (*document, *Error) {
	lim = lim.resolve()
	if len(text) > lim.MaxBytes {
		return nil, Errorf(LimitExceeded, "text has %d bytes: the limit is %d", len(text), lim.MaxBytes)
	}
	d := documents.Get().(*document)
	d.text, d.limits, d.canonical, d.folds, d.writer = text, lim, true, folds, w
	err := d.whole()
	if err != nil {
		d.free()
		return nil, err
	}
	return d, nil
}

func (d *document) whole() *Error {
	if bytes.HasPrefix(d.text, []byte("\xef\xbb\xbf")) {
		return d.refuse("a byte order mark")
	}
	d.space()
	if err := d.value(); err != nil {
		return err
	}
	d.space()
	if d.pos < len(d.text) {
		return d.refuse("more text after the value")
	}
	return nil
}

// refuse makes the error for what is at the current position.
func (d *document) refuse(what string) *Error {
	return Errorf(ValidationError, "byte %d: %s", d.pos, what)
}

// peek returns the byte at the current position, 0 at the end: a NUL is legal
// nowhere outside a string.
func (d *document) peek() byte {
	if d.pos < len(d.text) {
		return d.text[d.pos]
	}
	return 0
}

func (d *document) space() {
	for d.pos < len(d.text) {
		switch d.text[d.pos] {
		case ' ', '\t', '\n', '\r':
			d.pos++
			d.canonical = false
		default:
			return
		}
	}
}

func (d *document) add(k kind, plain bool, start, end int) {
	if !plain {
		d.canonical = false
	}
	d.nodes = append(d.nodes, node{kind: k, plain: plain, start: int32(start), end: int32(end), next: int32(len(d.nodes) + 1)})
	if d.writer != nil {
		d.writer.begin(d, &d.nodes[len(d.nodes)-1])
	}
}

func (d *document) value() *Error {
	switch c := d.peek(); {
	case c == '"':
		start, end, plain, _, err := d.quoted()
		if err != nil {
			return err
		}
		d.add(kindString, plain, start, end)
		return nil
	case c == '{':
		return d.object()
	case c == '[':
		return d.array()
	case c == '-' || '0' <= c && c <= '9':
		return d.number()
	case c == 't':
		return d.literal("true")
	case c == 'f':
		return d.literal("false")
	case c == 'n':
		return d.literal("null")
	case d.pos == len(d.text):
		return d.refuse("the text ends where a value is due")
	}
	return d.refuse("no value starts with this byte")
}

func (d *document) literal(word string) *Error {
	if !bytes.HasPrefix(d.text[d.pos:], []byte(word)) {
		return d.refuse("a literal other than true, false and null")
	}
	d.add(kindLiteral, true, d.pos, d.pos+len(word))
	d.pos += len(word)
	return nil
}

// enter adds a container and counts its depth.
func (d *document) enter(k kind) (self int32, err *Error) {
	if d.depth == d.limits.MaxDepth {
		return 0, Errorf(LimitExceeded, "byte %d: nesting deeper than %d", d.pos, d.limits.MaxDepth)
	}
	d.depth++
	self = int32(len(d.nodes))
	d.add(k, true, d.pos, 0)
	d.pos++
	d.space()
	return self, nil
}

func (d *document) leave(self int32, names int) {
	d.depth--
	d.pos++
	v := &d.nodes[self]
	v.end, v.next = int32(d.pos), int32(len(d.nodes))
	if d.folds {
		v.folded, v.next = true, self+1
		d.fold(self+1, names)
	}
	if d.writer != nil {
		d.writer.end(v.kind)
	}
}

// fold drops the nodes from first on, and the names from names on.
func (d *document) fold(first int32, names int) {
	d.nodes, d.names = d.nodes[:first], d.names[:names]
}

// children calls f with each child of the container at n, in the order of the text. The node
// of a child is valid until f returns. The first error of f ends children and is returned.
func (d *document) children(n int32, f func(child int32) *Error) *Error {
	v := d.nodes[n]
	if v.folded {
		return d.unfold(v, f)
	}
	for c := n + 1; c < v.next; c = d.nodes[c].next {
		if err := f(c); err != nil {
			return err
		}
	}
	return nil
}

// unfold parses the text of a folded container again and calls f with one child at a time.
func (d *document) unfold(v node, f func(child int32) *Error) *Error {
	first, names, before := int32(len(d.nodes)), len(d.names), d.pos
	defer func() { d.pos = before }()
	d.pos = int(v.start) + 1
	for d.space(); d.pos < int(v.end)-1; d.space() {
		var err *Error
		if v.kind == kindObject {
			_, err = d.member()
		} else {
			err = d.value()
		}
		if err != nil {
			return err
		}
		at := d.pos
		err = f(first)
		d.fold(first, names)
		if err != nil {
			return err
		}
		d.pos = at
		d.space()
		if d.peek() == ',' {
			d.pos++
		}
	}
	return nil
}

func (d *document) array() *Error {
	self, err := d.enter(kindArray)
	if err != nil {
		return err
	}
	names := len(d.names)
	if d.peek() == ']' {
		d.leave(self, names)
		return nil
	}
	for i := 0; ; i++ {
		if d.writer != nil {
			if err := d.writer.item(i); err != nil {
				return err
			}
		}
		if err := d.value(); err != nil {
			return err.under(strconv.Itoa(i))
		}
		if d.folds {
			d.fold(self+1, names)
		}
		d.space()
		switch d.peek() {
		case ',':
			d.pos++
			d.space()
		case ']':
			d.leave(self, names)
			return nil
		default:
			return d.refuse("want , or ] after an element")
		}
	}
}

func (d *document) object() *Error {
	self, err := d.enter(kindObject)
	if err != nil {
		return err
	}
	names := len(d.names)
	if d.peek() == '}' {
		d.leave(self, names)
		return nil
	}
	start := d.writer.position()
	sorted, before := true, int32(-1)
	for i := 0; ; i++ {
		if d.writer != nil {
			if err := d.writer.item(i); err != nil {
				return err
			}
		}
		member, err := d.member()
		if err != nil {
			return err
		}
		if before >= 0 && compareNames(d.name(before), d.name(member)) >= 0 {
			sorted = false
		}
		before = member
		d.space()
		switch d.peek() {
		case ',':
			d.pos++
			d.space()
			continue
		case '}':
		default:
			return d.refuse("want , or } after a member")
		}
		if !sorted {
			d.canonical = false
			if err := d.sorted(self, start); err != nil {
				return err
			}
		}
		d.leave(self, names)
		return nil
	}
}

// member reads one "name": value and returns its node.
func (d *document) member() (int32, *Error) {
	if d.peek() != '"' {
		return 0, d.refuse("want a member name")
	}
	start, end, plain, escaped, err := d.quoted()
	if err != nil {
		return 0, err
	}
	if !plain {
		d.canonical = false
	}
	if escaped {
		raw := d.text[start:end]
		start = len(d.names)
		d.names = unescape(d.names, raw)
		end = len(d.names)
	}
	d.space()
	if d.peek() != ':' {
		return 0, d.refuse("want : after a member name")
	}
	d.pos++
	d.space()
	n := int32(len(d.nodes))
	from := d.writer.position()
	if d.writer != nil {
		d.writer.name(d, &node{decodedName: escaped, name: int32(start), nameEnd: int32(end)})
	}
	failed := d.value()
	if failed != nil {
		at := node{decodedName: escaped, name: int32(start), nameEnd: int32(end)}
		return 0, failed.under(string(d.nameOf(&at)))
	}
	v := &d.nodes[n]
	v.decodedName, v.name, v.nameEnd = escaped, int32(start), int32(end)
	if d.writer != nil {
		// The member's span in the canonical form, for reordering when the object ends.
		v.start, v.end = int32(from), int32(d.writer.position())
	}
	return n, nil
}

func (d *document) name(n int32) []byte { return d.nameOf(&d.nodes[n]) }

func (d *document) nameOf(v *node) []byte {
	if v.decodedName {
		return d.names[v.name:v.nameEnd]
	}
	return d.text[v.name:v.nameEnd]
}

// sorted is called once all members of an object are read. It refuses an object with two
// members of one name. It makes the writer put the members, which begin at start there, in
// canonical order.
func (d *document) sorted(self int32, start int) *Error {
	base := len(d.order)
	d.sortMembers(self)
	members := d.order[base:]
	d.order = d.order[:base]
	for i := 1; i < len(members); i++ {
		if bytes.Equal(d.name(members[i-1]), d.name(members[i])) {
			return Errorf(ValidationError, "byte %d: the member name is repeated", d.nodes[members[i]].start).
				under(string(d.name(members[i])))
		}
	}
	if d.writer != nil {
		d.writer.reorder(d, members, start)
	}
	return nil
}

// sortMembers pushes the members of an object that is still open onto d.order in canonical
// order. Members of one name keep their text order.
func (d *document) sortMembers(self int32) {
	base := len(d.order)
	for c := self + 1; c < int32(len(d.nodes)); c = d.nodes[c].next {
		d.order = append(d.order, c)
	}
	slices.SortStableFunc(d.order[base:], func(a, b int32) int { return compareNames(d.name(a), d.name(b)) })
}

// compareNames orders names by their UTF-16 code units (RFC 8785 §3.2.3). That is the
// order of their UTF-8 bytes but for one case: characters above U+FFFF are surrogate
// pairs, so they come before U+E000..U+FFFF (UTF-8 lead bytes EE and EF).
func compareNames(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0) {
			x, y = y, x
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
}
