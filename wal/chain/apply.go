package chain

import (
	"bytes"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// Link makes and seals the entry that would append a behind the trace's head. It does
// not advance the trace: [Trace.Apply] does that, and checks what Link made like any
// other entry. Link refuses an artifact that the machine has no edge for with
// STATE_INVALID_TRANSITION.
func (t *Trace) Link(a *tga.Artifact, ts tga.Millis) (tga.LogEntry, error) {
	e, err := t.following(a, ts)
	if err == nil {
		e.Seal()
	}
	return e, err
}

// following makes the entry of [Trace.Link], not yet sealed.
func (t *Trace) following(a *tga.Artifact, ts tga.Millis) (tga.LogEntry, error) {
	to, ok := tga.Next(t.Head.State, a.Type, a.Verdict())
	if !ok {
		return tga.LogEntry{}, t.noEdge(t.Head.Seq+1, a.Type, a.Verdict())
	}
	from := t.Head.State
	if from == tga.None {
		from = tga.Pending // genesis is written PENDING → PENDING
	}
	return tga.LogEntry{
		TraceID: t.ID, Seq: t.Head.Seq + 1, Prev: t.Head.Digest, TS: ts,
		From: from, To: to,
		Type: a.Type, ArtifactID: a.ID, ArtifactDigest: a.Digest,
		ToolCallID: toolCallID(a), IdempotencyKey: t.entryKey(a),
	}, nil
}

// Extend makes the entry for e's artifact as [Trace.Link] does, puts it into e and advances
// the trace. It makes every check of [Trace.Apply] except that of the entry's own digest,
// which Extend has just computed. It reuses the capacity of e.Preimage for the preimage.
func (t *Trace) Extend(e *Entry, ts tga.Millis) error {
	made, err := t.following(e.Artifact, ts)
	if err != nil {
		return err
	}
	e.LogEntry, e.Preimage = made, made.AppendPreimage(slices.Grow(e.Preimage[:0], preimageRoom))
	e.Digest = tga.Sum(e.Preimage)
	return t.apply(e, (*Trace).checkArtifact)
}

// Apply checks e against the trace and advances it. On error the trace is unchanged.
// It sets e.Preimage where that is nil.
//
// The checks are made in this order (docs/SEMANTICS.md), and the first that fails
// names the code:
//
//	sequence           number = head + 1                               STATE_SEQUENCE_GAP
//	digests            prev = head's digest; entry and artifact        STATE_CHECKSUM_MISMATCH
//	                   digest recomputed; artifact_digest = artifact's
//	machine            from_state = current state, edge legal          STATE_INVALID_TRANSITION
//	tool_call_id       present on tool_call and tool_effect            MISSING_TOOL_CALL_ID
//	members            entry and artifact agree on trace, type, id,    SCHEMA_VIOLATION
//	                   tool_call_id and idempotency_key
//	links              see links.go                                    SCHEMA_VIOLATION, for a digest
//	documents          present, bound, of the size bound               STATE_CHECKSUM_MISMATCH
//
// An entry without artifact is one whose artifact was erased. Then the chain is checked,
// and what needs the artifact's members is not. An append never has such an entry.
func (t *Trace) Apply(e *Entry) error { return t.apply(e, (*Trace).checkDigests) }

func (t *Trace) apply(e *Entry, digests func(*Trace, *Entry) error) error {
	for _, check := range [...]func(*Trace, *Entry) error{
		(*Trace).checkSequence, (*Trace).checkPrev, digests, (*Trace).checkMachine,
		(*Trace).checkToolCallID, (*Trace).checkMembers, (*Trace).checkLinks,
		func(_ *Trace, e *Entry) error { return checkDocuments(e) },
	} {
		if err := check(t, e); err != nil {
			return err
		}
	}
	return t.advance(e)
}

// applyRead is [Trace.Apply] for an entry that was read. If [DecodeFrame] has verified these
// very values, applyRead does not compare bytes with their own digests again. It makes every
// check against the trace.
func (t *Trace) applyRead(e *Entry) error {
	if !e.proven() {
		return t.Apply(e)
	}
	for _, check := range [...]func(*Trace, *Entry) error{
		(*Trace).checkSequence, (*Trace).checkPrev, (*Trace).checkMachine,
		(*Trace).checkToolCallID, (*Trace).checkMembers, (*Trace).checkLinks,
	} {
		if err := check(t, e); err != nil {
			return err
		}
	}
	return t.advance(e)
}

func (t *Trace) checkSequence(e *Entry) error {
	if want := t.Head.Seq + 1; e.Seq != want {
		err := t.fault(tga.StateSequenceGap, want, "append seq %d: head is %d, want seq %d", e.Seq, t.Head.Seq, want)
		err.ExpectedSeq, err.ActualSeq = want, e.Seq
		return err
	}
	return nil
}

func (t *Trace) checkPrev(e *Entry) error {
	if e.Prev != t.Head.Digest {
		return t.mismatch(e.Seq, "prev_entry_digest", t.Head.Digest, e.Prev)
	}
	return nil
}

func (t *Trace) checkDigests(e *Entry) error {
	preimage := e.AppendPreimage(make([]byte, 0, preimageRoom))
	if e.Preimage != nil && !bytes.Equal(e.Preimage, preimage) {
		// The bytes hashed are the bytes stored: members read from other bytes prove
		// nothing about these.
		return t.mismatch(e.Seq, "entry's canonical bytes", tga.Sum(preimage), tga.Sum(e.Preimage))
	}
	if sum := tga.Sum(preimage); sum != e.Digest {
		return t.mismatch(e.Seq, "entry_digest", sum, e.Digest)
	}
	e.Preimage = preimage
	return t.checkArtifact(e)
}

func (t *Trace) checkArtifact(e *Entry) error {
	if e.Artifact == nil {
		return nil
	}
	sum, ok := artifactDigest(e.Artifact.Canonical)
	if !ok || sum != e.Artifact.Digest {
		return t.mismatch(e.Seq, "artifact's _digest", sum, e.Artifact.Digest)
	}
	if e.Artifact.Digest != e.ArtifactDigest {
		return t.mismatch(e.Seq, "artifact_digest", e.Artifact.Digest, e.ArtifactDigest)
	}
	return nil
}

// preimageRoom holds the canonical entry with an idempotency key of usual length.
const preimageRoom = 1024

func (t *Trace) checkMachine(e *Entry) error {
	genesis := t.Head.State == tga.None
	switch {
	case genesis && e.From != tga.Pending, !genesis && e.From != t.Head.State:
		return t.fault(tga.StateInvalidTransition, e.Seq, "append seq %d %s: from_state %s, current state is %s",
			e.Seq, e.Type, e.From, stateName(t.Head.State))
	case genesis != (e.Type == tga.RequestType), !tga.LegalPair(e.From, e.To, e.Type):
		// Genesis needs a check of its place: without it, its pair PENDING → PENDING
		// would be legal in every PENDING trace.
		return t.fault(tga.StateInvalidTransition, e.Seq, "append seq %d: no edge from %s to %s by %s",
			e.Seq, stateName(t.Head.State), e.To, e.Type)
	}
	if e.Artifact == nil {
		return nil
	}
	if to, ok := tga.Next(t.Head.State, e.Type, verdict(e)); !ok || to != e.To {
		return t.noEdge(e.Seq, e.Type, verdict(e))
	}
	return nil
}

// verdict returns the artifact's verdict, "" where the artifact is of another type
// than the entry says.
func verdict(e *Entry) string {
	if e.Artifact.Type != e.Type {
		return ""
	}
	return e.Artifact.Verdict()
}

func (t *Trace) checkToolCallID(e *Entry) error {
	if (e.Type == tga.CallType || e.Type == tga.EffectType) && e.ToolCallID.IsZero() {
		return t.fault(tga.MissingToolCallID, e.Seq, "append seq %d: %s entry without tool_call_id", e.Seq, e.Type)
	}
	return nil
}

// advance folds a checked entry into the trace.
func (t *Trace) advance(e *Entry) error {
	if a := e.Artifact; a != nil {
		switch e.Type {
		case tga.RequestType:
			namespace, deadline, err := t.requestMeta(a)
			if err != nil {
				return err
			}
			t.Request, t.Namespace, t.Deadline = a, namespace, deadline
		case tga.DecisionType:
			t.Decision = a
		case tga.CallType:
			t.Call = a
		case tga.EffectType:
			t.Effect = a
		}
		t.PlanID = a.PlanID
	}
	if e.Type == tga.EffectType {
		t.Documents = e.Documents
	}
	if e.Key != 0 {
		t.Key = e.Key
	}
	if t.Entries == nil {
		t.Entries = make([]tga.LogEntry, 0, mostEntries)
	}
	t.Entries = append(t.Entries, e.LogEntry)
	t.Head = Head{Seq: e.Seq, Digest: e.Digest, State: e.To}
	return nil
}

// mostEntries is how many entries the machine lets a trace have: one of each artifact.
const mostEntries = 4

// requestMeta reads the members of a request's meta that affect the trace: namespace and
// deadline. It refuses a value that it cannot read. If it ignored an unreadable deadline, a
// call could be sent days after its caller gave up.
func (t *Trace) requestMeta(a *tga.Artifact) (namespace string, deadline tga.Millis, err error) {
	namespace = tga.DefaultNamespace
	if v, ok := a.Meta[tga.MetaNamespace]; ok {
		if namespace, ok = v.(string); !ok || namespace == "" {
			return "", 0, t.fault(tga.SchemaViolation, 1, "append seq 1: meta.namespace is no string with characters").
				At("/meta/" + tga.MetaNamespace)
		}
	}
	if v, ok := a.Meta[tga.MetaDeadline]; ok {
		text, _ := v.(string)
		if deadline, err = tga.ParseMillis(text); err != nil {
			return "", 0, t.fault(tga.SchemaViolation, 1, "append seq 1: meta.deadline: %w", err).
				At("/meta/" + tga.MetaDeadline)
		}
	}
	return namespace, deadline, nil
}

func stateName(s tga.State) string {
	if s == tga.None {
		return "no entry"
	}
	return s.String()
}

func (t *Trace) noEdge(seq uint64, at tga.ArtifactType, verdict string) error {
	if verdict != "" {
		verdict = " " + verdict
	}
	return t.fault(tga.StateInvalidTransition, seq, "append seq %d: no edge from %s by %s%s",
		seq, stateName(t.Head.State), at, verdict)
}
