package tga

// name returns the contract's name of a derived state. In a derived state an empty trace is
// PENDING, with last_sequence_number 0; no entry says so.
func (s State) name() string {
	if s == None {
		return Pending.String()
	}
	return s.String()
}

// Seal sets Digest.
func (s *ExecutionState) Seal() {
	var buf [512]byte
	s.Digest = Sum(s.append(buf[:0], false))
}

// AppendCanonical appends the whole canonical execution_state.
func (s *ExecutionState) AppendCanonical(dst []byte) []byte { return s.append(dst, true) }

func (s *ExecutionState) append(dst []byte, whole bool) []byte {
	o := newObject(dst)
	o.str("current_state", s.Current.name())
	o.digest("last_entry_digest", s.LastDigest)
	o.uint("last_sequence_number", s.LastSeq)
	o.id("plan_id", s.PlanID)
	o.str("schema_id", stateSchemaID)
	o.str("schema_version", ContractVersion)
	if whole {
		o.digest("state_digest", s.Digest)
	}
	o.id("trace_id", s.TraceID)
	return o.end()
}

var stateFields = fields([]field[ExecutionState]{
	{"schema_id", required, constant[ExecutionState](stateSchemaID)},
	{"schema_version", required, constant[ExecutionState](ContractVersion)},
	{"trace_id", required, idAt(func(s *ExecutionState) *ID { return &s.TraceID })},
	{"plan_id", required, idAt(func(s *ExecutionState) *ID { return &s.PlanID })},
	{"current_state", required, stateAt(func(s *ExecutionState) *State { return &s.Current })},
	{"last_sequence_number", required, uintAt(func(s *ExecutionState) *uint64 { return &s.LastSeq }, 0, MaxSafeInteger)},
	{"last_entry_digest", required, digestAt(func(s *ExecutionState) *Digest { return &s.LastDigest })},
	{"state_digest", required, digestAt(func(s *ExecutionState) *Digest { return &s.Digest })},
})

// checkEmpty refuses a state that has some but not all values of an empty trace.
func checkEmpty(current State, seq uint64, digest Digest) *Error {
	if seq == 0 && (current != Pending || !digest.IsZero()) {
		return violation("an empty trace is PENDING with a digest of zeros").under("last_sequence_number")
	}
	if seq > 0 && digest.IsZero() {
		return violation("entry %d has a digest of zeros", seq).under("last_entry_digest")
	}
	return nil
}

// DecodeExecutionState reads an execution_state; its state_digest is recomputed.
// Errors are those of [DecodeLogEntry].
func DecodeExecutionState(raw []byte) (*ExecutionState, error) {
	_, d, err := open(raw, Limits{})
	if err != nil {
		return nil, err
	}
	defer d.doc.free()
	s := new(ExecutionState)
	if err := decodeObject(d, 0, stateFields, s); err != nil {
		return nil, err
	}
	if err := checkEmpty(s.Current, s.LastSeq, s.LastDigest); err != nil {
		return nil, err
	}
	given := s.Digest
	if s.Seal(); s.Digest != given {
		return nil, mismatch("state digest", s.Digest, given, "given").In(s.TraceID).under("state_digest")
	}
	return s, nil
}

// Seal sets Digest, which covers State and nothing else (Talos 9.3 I4).
func (c *Checkpoint) Seal() {
	var buf [512]byte
	c.Digest = Sum(c.State.append(buf[:0]))
}

// AppendCanonical appends the whole canonical execution_checkpoint.
func (c *Checkpoint) AppendCanonical(dst []byte) []byte {
	o := newObject(dst)
	o.digest("checkpoint_digest", c.Digest)
	o.uint("checkpoint_sequence_number", c.Seq)
	o.name("checkpoint_state")
	o.b = c.State.append(o.b)
	o.str("schema_id", checkpointSchemaID)
	o.str("schema_version", ContractVersion)
	o.id("trace_id", c.TraceID)
	o.ts("ts", c.TS)
	return o.end()
}

func (s *CheckpointState) append(dst []byte) []byte {
	o := newObject(dst)
	o.str("current_state", s.Current.name())
	o.digest("last_entry_digest", s.LastDigest)
	o.uint("last_sequence_number", s.LastSeq)
	o.id("plan_id", s.PlanID)
	o.id("trace_id", s.TraceID)
	return o.end()
}

var checkpointStateFields = fields([]field[CheckpointState]{
	{"trace_id", required, idAt(func(s *CheckpointState) *ID { return &s.TraceID })},
	{"plan_id", required, idAt(func(s *CheckpointState) *ID { return &s.PlanID })},
	{"current_state", required, stateAt(func(s *CheckpointState) *State { return &s.Current })},
	{"last_sequence_number", required, uintAt(func(s *CheckpointState) *uint64 { return &s.LastSeq }, 0, MaxSafeInteger)},
	{"last_entry_digest", required, digestAt(func(s *CheckpointState) *Digest { return &s.LastDigest })},
})

var checkpointFields = fields([]field[Checkpoint]{
	{"schema_id", required, constant[Checkpoint](checkpointSchemaID)},
	{"schema_version", required, constant[Checkpoint](ContractVersion)},
	{"trace_id", required, idAt(func(c *Checkpoint) *ID { return &c.TraceID })},
	{"checkpoint_sequence_number", required, uintAt(func(c *Checkpoint) *uint64 { return &c.Seq }, 0, MaxSafeInteger)},
	{"checkpoint_state", required, objectAt(func(c *Checkpoint) *CheckpointState { return &c.State }, checkpointStateFields)},
	{"checkpoint_digest", required, digestAt(func(c *Checkpoint) *Digest { return &c.Digest })},
	{"ts", required, tsAt(func(c *Checkpoint) *Millis { return &c.TS })},
})

// DecodeCheckpoint reads an execution_checkpoint; its checkpoint_digest is recomputed
// and its trace and sequence must be those of the state it seals. Errors are those of
// [DecodeLogEntry].
func DecodeCheckpoint(raw []byte) (*Checkpoint, error) {
	_, d, err := open(raw, Limits{})
	if err != nil {
		return nil, err
	}
	defer d.doc.free()
	c := new(Checkpoint)
	if err := decodeObject(d, 0, checkpointFields, c); err != nil {
		return nil, err
	}
	if err := checkEmpty(c.State.Current, c.State.LastSeq, c.State.LastDigest); err != nil {
		return nil, err.under("checkpoint_state")
	}
	if c.Seq != c.State.LastSeq {
		return nil, violation("sequence %d, but the state is that of %d", c.Seq, c.State.LastSeq).under("checkpoint_sequence_number")
	}
	if c.TraceID != c.State.TraceID {
		return nil, violation("trace %v, but the state is that of %v", c.TraceID, c.State.TraceID).under("trace_id")
	}
	given := c.Digest
	if c.Seal(); c.Digest != given {
		return nil, mismatch("checkpoint digest", c.Digest, given, "given").In(c.TraceID).under("checkpoint_digest")
	}
	return c, nil
}
