package tga

import (
	"slices"
	"sync"
)

// Limits bounds what [Canonicalize], [Gate] and [DecodeArtifact] accept. A zero
// field means its default.
type Limits struct {
	// MaxBytes bounds the text handed in and its canonical form. Default
	// [DefaultMaxBytes]; at most [MostBytes].
	MaxBytes int
	// MaxDepth bounds how many arrays and objects may be open at once. Default
	// [DefaultMaxDepth]; at most [MostDepth].
	MaxDepth int
}

// Defaults and ceilings of [Limits]. MostDepth is where jcs itself stops.
const (
	DefaultMaxBytes = 8 << 20
	DefaultMaxDepth = 128
	MostBytes       = 1<<31 - 1
	MostDepth       = 10_000
)

// noLimits is for bytes that passed a caller's limits before they were stored.
var noLimits = Limits{MaxBytes: MostBytes, MaxDepth: MostDepth}

func (l Limits) resolve() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = DefaultMaxDepth
	}
	return Limits{MaxBytes: min(l.MaxBytes, MostBytes), MaxDepth: min(l.MaxDepth, MostDepth)}
}

// Gate reports whether raw may be canonicalised without loss. It accepts one JSON
// text (RFC 8259) that is I-JSON in these respects (RFC 7493):
//
//   - valid UTF-8, no byte order mark, no surrogate without its other half, whether
//     escaped or not;
//   - no two members of one object with the same name once escapes are undone;
//   - each number is, as the decimal it is written, equal to the decimal that
//     ECMAScript prints for its double. 1.0, 1e2, 0.1 and -0 pass. 9007199254740993
//     does not: its double prints as 9007199254740992. Nor does 18446744073709551616,
//     which a double holds exactly but which prints as 18446744073709552000, nor 1e400,
//     nor 1e-400.
//
// The number rule is what makes RFC 8785 injective: two texts that pass and differ in
// a value have different canonical forms, so different digests.
//
// A refusal is an [*Error] with VALIDATION_ERROR, or LIMIT_EXCEEDED for size and
// depth. Its Pointer names the innermost value that is at fault; for a repeated name
// that is the member. Name tokens over 128 bytes are cut.
func Gate(raw []byte, lim Limits) error {
	d, err := check(raw, lim)
	if err != nil {
		return err
	}
	d.free()
	return nil
}

// Canonicalize returns the RFC 8785 form of raw, which must pass [Gate]. The result
// does not share memory with raw.
func Canonicalize(raw []byte, lim Limits) ([]byte, error) {
	d, err := check(raw, lim)
	if err != nil {
		return nil, err
	}
	defer d.free()
	out, err := d.canonicalForm()
	if err != nil {
		return nil, err
	}
	return out, nil
}

// canonicalForm returns the canonical text in memory of its own. It copies a text that is
// canonical already, as most texts of our own writers are.
func (d *document) canonicalForm() ([]byte, *Error) {
	if d.canonical {
		assertCanonical(d.text, d.text)
		return append(make([]byte, 0, len(d.text)), d.text...), nil
	}
	w := writers.Get().(*writer)
	defer w.free()
	w.out, w.most = make([]byte, 0, len(d.text)), d.limits.MaxBytes
	again, err := scan(d.text, d.limits, true, w)
	if err == nil {
		again.free()
		err = w.over()
	}
	if err != nil {
		return nil, Errorf(err.Code, "%s", err.Message) // without a pointer: the whole text is at fault
	}
	assertCanonical(d.text, w.out)
	return w.out, nil
}

var writers = sync.Pool{New: func() any { return new(writer) }}

func (w *writer) free() {
	used := w.scratch
	*w = writer{}
	keep(&w.scratch, used)
	writers.Put(w)
}

// writer collects the canonical form while a second pass reads a text that has passed the
// gate. It writes members in the order of the text, and reorders them when their object ends.
// So beside the form it keeps only the places of the members of open objects.
type writer struct {
	out     []byte
	scratch []byte
	most    int // bytes that the form may have
}

// position returns where the next byte goes, and 0 for the nil writer.
func (w *writer) position() int {
	if w == nil {
		return 0
	}
	return len(w.out)
}

// begin writes a scalar, or the beginning of a container.
func (w *writer) begin(d *document, v *node) {
	switch v.kind {
	case kindArray:
		w.out = append(w.out, '[')
		return
	case kindObject:
		w.out = append(w.out, '{')
		return
	}
	switch text := d.text[v.start:v.end]; {
	case v.kind == kindString && v.plain:
		w.out = append(append(append(w.out, '"'), text...), '"')
	case v.kind == kindString:
		w.out = appendString(w.out, unescape(nil, text))
	case v.kind == kindNumber && !v.plain:
		f, _ := parseDouble(text) // the first pass checked it
		w.out = appendDouble(w.out, f)
	default:
		w.out = append(w.out, text...)
	}
}

// item begins element or member i of a container.
func (w *writer) item(i int) *Error {
	if i > 0 {
		w.out = append(w.out, ',')
	}
	return w.over()
}

// over refuses a form that has become too long. The form can be longer than the text: 1e20
// is an example.
func (w *writer) over() *Error {
	if len(w.out) > w.most {
		return Errorf(LimitExceeded, "the canonical form has over %d bytes", w.most)
	}
	return nil
}

func (w *writer) name(d *document, v *node) {
	w.out = append(appendString(w.out, d.nameOf(v)), ':')
}

func (w *writer) end(k kind) {
	if k == kindArray {
		w.out = append(w.out, ']')
		return
	}
	w.out = append(w.out, '}')
}

// reorder puts the members of an object, which were written from start on, in the order
// of members.
func (w *writer) reorder(d *document, members []int32, start int) {
	w.scratch = slices.Grow(w.scratch[:0], len(w.out)-start)
	for i, m := range members {
		if i > 0 {
			w.scratch = append(w.scratch, ',')
		}
		w.scratch = append(w.scratch, w.out[d.nodes[m].start:d.nodes[m].end]...)
	}
	copy(w.out[start:], w.scratch)
}
