package tga

const (
	entrySchemaID      = "talos.tga.execution_log_entry"
	stateSchemaID      = "talos.tga.execution_state"
	checkpointSchemaID = "talos.tga.execution_checkpoint"
	noteSchemaID       = "tgad.note"
)

// AppendPreimage appends the bytes that Digest covers: the canonical entry without
// entry_digest, with absent optional members as null. A store keeps the same bytes.
func (e *LogEntry) AppendPreimage(dst []byte) []byte { return e.append(dst, false) }

// AppendCanonical appends the whole canonical entry.
func (e *LogEntry) AppendCanonical(dst []byte) []byte { return e.append(dst, true) }

// Seal sets Digest. It does not check the fields; package wal/chain does that.
func (e *LogEntry) Seal() {
	buf := buffers.Get().(*[]byte)
	*buf = e.AppendPreimage((*buf)[:0])
	e.Digest = Sum(*buf)
	buffers.Put(buf)
}

func (e *LogEntry) append(dst []byte, whole bool) []byte {
	o := newObject(dst)
	o.digest("artifact_digest", e.ArtifactDigest)
	o.id("artifact_id", e.ArtifactID)
	o.str("artifact_type", e.Type.String())
	if whole {
		o.digest("entry_digest", e.Digest)
	}
	o.str("from_state", e.From.String())
	o.orNull("idempotency_key", e.IdempotencyKey)
	o.digest("prev_entry_digest", e.Prev)
	o.str("schema_id", entrySchemaID)
	o.str("schema_version", ContractVersion)
	o.uint("sequence_number", e.Seq)
	o.str("to_state", e.To.String())
	if e.ToolCallID.IsZero() {
		o.orNull("tool_call_id", "")
	} else {
		o.id("tool_call_id", e.ToolCallID)
	}
	o.id("trace_id", e.TraceID)
	o.ts("ts", e.TS)
	return o.end()
}

// nullable makes null mean "absent".
func nullable[T any](r rule[T]) rule[T] {
	return rule[T]{set: func(d *decoder, n int32, v *T) *Error {
		if d.isNull(n) {
			return nil
		}
		return r.set(d, n, v)
	}}
}

// entryMembers returns the entry's table. optional is the error code for a missing optional
// member: "" for what a caller writes, which may leave it out. Our own preimages always have
// both optional members.
func entryMembers(optional Code) []field[LogEntry] {
	return []field[LogEntry]{
		{"schema_id", required, constant[LogEntry](entrySchemaID)},
		{"schema_version", required, constant[LogEntry](ContractVersion)},
		{"trace_id", required, idAt(func(e *LogEntry) *ID { return &e.TraceID })},
		{"sequence_number", required, uintAt(func(e *LogEntry) *uint64 { return &e.Seq }, 1, MaxSafeInteger)},
		{"prev_entry_digest", required, digestAt(func(e *LogEntry) *Digest { return &e.Prev })},
		{"ts", required, tsAt(func(e *LogEntry) *Millis { return &e.TS })},
		{"from_state", required, stateAt(func(e *LogEntry) *State { return &e.From })},
		{"to_state", required, stateAt(func(e *LogEntry) *State { return &e.To })},
		{"artifact_type", required, scalar(ParseArtifactType, func(e *LogEntry) *ArtifactType { return &e.Type })},
		{"artifact_id", required, idAt(func(e *LogEntry) *ID { return &e.ArtifactID })},
		{"artifact_digest", required, digestAt(func(e *LogEntry) *Digest { return &e.ArtifactDigest })},
		{"tool_call_id", optional, nullable(idAt(func(e *LogEntry) *ID { return &e.ToolCallID }))},
		{"idempotency_key", optional, nullable(text(func(e *LogEntry) *string { return &e.IdempotencyKey }, 1, maxKey))},
	}
}

var (
	entryPreimageFields = fields(entryMembers(SchemaViolation))
	entryFields         = fields(entryMembers(""), []field[LogEntry]{
		{"entry_digest", required, digestAt(func(e *LogEntry) *Digest { return &e.Digest })},
	})
)

func decodeEntry(d *decoder, table []field[LogEntry]) (*LogEntry, *Error) {
	e := new(LogEntry)
	if err := decodeObject(d, 0, table, e); err != nil {
		return nil, err
	}
	if e.ToolCallID.IsZero() && (e.Type == CallType || e.Type == EffectType) {
		return nil, Errorf(MissingToolCallID, "entry %d carries a %s without tool_call_id", e.Seq, e.Type).
			In(e.TraceID).under("tool_call_id")
	}
	return e, nil
}

// DecodeLogEntry reads an entry that a caller hands in. Its errors are those of [Gate];
// SCHEMA_VIOLATION for an entry that breaks the contract; MISSING_TOOL_CALL_ID for a
// tool_call or tool_effect without that id; and STATE_CHECKSUM_MISMATCH, Where "given", for
// a wrong entry_digest. Package wal/chain checks whether the entry fits its trace.
func DecodeLogEntry(raw []byte) (*LogEntry, error) {
	_, d, err := open(raw, Limits{})
	if err != nil {
		return nil, err
	}
	defer d.doc.free()
	e, err := decodeEntry(d, entryFields)
	if err != nil {
		return nil, err
	}
	given := e.Digest
	if e.Seal(); e.Digest != given {
		return nil, mismatch("entry digest", e.Digest, given, "given").In(e.TraceID).under("entry_digest")
	}
	return e, nil
}

// DecodeEntryPreimage reads an entry from the bytes that a store kept; see
// [LogEntry.AppendPreimage]. It sets Digest to the digest of exactly these bytes: compare that
// with the digest that was stored. Every error has Where "stored".
func DecodeEntryPreimage(canonical []byte) (*LogEntry, error) {
	doc, err := openCanonical(canonical)
	if err != nil {
		return nil, stored(err)
	}
	defer doc.free()
	e, err := decodeEntry(newDecoder(doc), entryPreimageFields)
	if err != nil {
		return nil, stored(err)
	}
	e.Digest = Sum(canonical)
	return e, nil
}
