package tga

import "math"

// AppendPreimage appends the bytes that Digest covers: the canonical note without note_digest.
// Body must be canonical, see [Canonicalize]. A nil Body is {}.
func (n *Note) AppendPreimage(dst []byte) []byte { return n.append(dst, false) }

// AppendCanonical appends the whole canonical note.
func (n *Note) AppendCanonical(dst []byte) []byte { return n.append(dst, true) }

// Seal sets Digest. It does not check the fields; package wal/chain does that.
func (n *Note) Seal() {
	var buf [1024]byte
	n.Digest = Sum(n.AppendPreimage(buf[:0]))
}

func (n *Note) append(dst []byte, whole bool) []byte {
	o := newObject(dst)
	if n.Body == nil {
		o.raw("body", []byte("{}"))
	} else {
		o.raw("body", n.Body)
	}
	o.digest("head_entry_digest", n.HeadDigest)
	o.str("kind", string(n.Kind))
	if whole {
		o.digest("note_digest", n.Digest)
	}
	o.uint("note_number", uint64(n.Number))
	o.digest("prev_note_digest", n.Prev)
	o.str("schema_id", noteSchemaID)
	o.str("schema_version", ContractVersion)
	o.id("trace_id", n.TraceID)
	o.ts("ts", n.TS)
	o.str("who", n.Who)
	return o.end()
}

func isNoteKind(s string) bool { return kindChars.all(s, 1, 64) && s[0] >= 'a' }

func noteMembers() []field[Note] {
	return []field[Note]{
		{"schema_id", required, constant[Note](noteSchemaID)},
		{"schema_version", required, constant[Note](ContractVersion)},
		{"trace_id", required, idAt(func(n *Note) *ID { return &n.TraceID })},
		{"note_number", required, uintAt(func(n *Note) *uint32 { return &n.Number }, 1, math.MaxUint32)},
		{"prev_note_digest", required, digestAt(func(n *Note) *Digest { return &n.Prev })},
		{"head_entry_digest", required, digestAt(func(n *Note) *Digest { return &n.HeadDigest })},
		{"ts", required, tsAt(func(n *Note) *Millis { return &n.TS })},
		{"kind", required, word(func(n *Note) *string { return (*string)(&n.Kind) }, isNoteKind, "a lowercase word of 1 to 64 letters, digits and _")},
		{"who", required, text(func(n *Note) *string { return &n.Who }, 1, maxKey)},
		{"body", required, rawAt(func(n *Note) *[]byte { return &n.Body })},
	}
}

var (
	notePreimageFields = fields(noteMembers())
	noteFields         = fields(noteMembers(), []field[Note]{
		{"note_digest", required, digestAt(func(n *Note) *Digest { return &n.Digest })},
	})
)

// DecodeNote reads a note from JSON, as an export holds it. Errors are those of
// [DecodeLogEntry].
func DecodeNote(raw []byte) (*Note, error) {
	_, d, err := open(raw, noLimits) // a note is never handed in: the store made it, around a body that was checked
	if err != nil {
		return nil, err
	}
	defer d.doc.free()
	n := new(Note)
	if err := decodeObject(d, 0, noteFields, n); err != nil {
		return nil, err
	}
	given := n.Digest
	if n.Seal(); n.Digest != given {
		return nil, mismatch("note digest", n.Digest, given, "given").In(n.TraceID).under("note_digest")
	}
	return n, nil
}

// DecodeNotePreimage reads a note from the bytes that a store kept; see [DecodeEntryPreimage].
// The note keeps the bytes, so the caller must not modify them.
func DecodeNotePreimage(canonical []byte) (*Note, error) {
	doc, err := openCanonical(canonical)
	if err != nil {
		return nil, stored(err)
	}
	defer doc.free()
	n := new(Note)
	if err := decodeObject(newDecoder(doc), 0, notePreimageFields, n); err != nil {
		return nil, stored(err)
	}
	n.Digest = Sum(canonical)
	return n, nil
}
