package tga

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
	d, err := parse(raw, lim)
	if err != nil {
		return err
	}
	d.free()
	return nil
}

// Canonicalize returns the RFC 8785 form of raw, which must pass [Gate]. The result
// does not share memory with raw.
func Canonicalize(raw []byte, lim Limits) ([]byte, error) {
	d, err := parse(raw, lim)
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

// canonicalForm returns the canonical text in memory of its own. A text that is
// canonical already, as most are that come from our own writers, is copied.
func (d *document) canonicalForm() ([]byte, *Error) {
	if d.canonical {
		assertCanonical(d.text, d.text)
		return append(make([]byte, 0, len(d.text)), d.text...), nil
	}
	out := d.appendCanonical(make([]byte, 0, len(d.text)), 0)
	if len(out) > d.limits.MaxBytes { // 1e20 is longer in canonical form
		return nil, Errorf(LimitExceeded, "canonical form has %d bytes: the limit is %d", len(out), d.limits.MaxBytes)
	}
	assertCanonical(d.text, out)
	return out, nil
}

// appendCanonical appends the canonical text of node n.
func (d *document) appendCanonical(dst []byte, n int32) []byte {
	v := d.nodes[n]
	switch v.kind {
	case kindString:
		if v.plain {
			return append(append(append(dst, '"'), d.text[v.start:v.end]...), '"')
		}
		return appendString(dst, unescape(nil, d.text[v.start:v.end]))
	case kindNumber:
		if v.plain {
			return append(dst, d.text[v.start:v.end]...)
		}
		f, _ := parseDouble(d.text[v.start:v.end]) // parse checked it
		return appendDouble(dst, f)
	case kindArray:
		dst = append(dst, '[')
		for c := n + 1; c < v.next; c = d.nodes[c].next {
			if c > n+1 {
				dst = append(dst, ',')
			}
			dst = d.appendCanonical(dst, c)
		}
		return append(dst, ']')
	case kindObject:
		dst = append(dst, '{')
		base := len(d.order)
		count := d.sortMembers(n)
		for i := range count {
			c := d.order[base+i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, d.name(c))
			dst = append(dst, ':')
			dst = d.appendCanonical(dst, c)
		}
		d.order = d.order[:base]
		return append(dst, '}')
	default:
		return append(dst, d.text[v.start:v.end]...)
	}
}
