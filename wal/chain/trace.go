package chain

import (
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// NoteHead is the last note of a trace. The zero NoteHead is that of a trace
// without notes.
type NoteHead struct {
	Number uint32
	Digest tga.Digest
}

// Trace is the fold of a trace's entries and notes. The next append is checked against it, and
// the runtime acts on it. It must not be used by several goroutines at once.
type Trace struct {
	ID, PlanID tga.ID
	// Namespace is meta.namespace of the request, or tga.DefaultNamespace if that is absent.
	// It is "" while there is no request and when the request is erased. No tenant has the
	// namespace "", so none reaches the call of another.
	Namespace string
	Deadline  tga.Millis // meta.deadline of the request, 0 = none
	Key       KeyID      // key under which the last appended content is sealed, 0 = none
	Head      Head
	Entries   []tga.LogEntry // at most four

	// Request, Decision, Call and Effect are nil until they are appended, and when erased.
	// Entries still has the id and digest of an erased artifact.
	Request, Decision, Call, Effect *tga.Artifact
	Documents                       []Document // of the effect

	NoteHead NoteHead
	Notes    []tga.Note

	noteSeq uint64 // sequence number of the entry that the last note names as head
}

// NewTrace returns the empty trace of an id.
func NewTrace(id tga.ID) *Trace { return &Trace{ID: id} }

// Clone returns a copy that can be advanced on its own. Artifacts and documents are
// shared: they are never modified.
func (t *Trace) Clone() *Trace {
	c := *t
	// Clip: an append to the copy must not write into the spare capacity of the original.
	c.Entries, c.Notes = slices.Clip(t.Entries), slices.Clip(t.Notes)
	return &c
}

// Successor returns a copy that is advanced instead of t. It may write into the spare capacity
// of t's entries, which t and its clones never read. So if several successors of one trace are
// advanced, only the last may be used: discard a successor whose append was refused, and make
// another.
func (t *Trace) Successor() *Trace {
	c := *t
	c.Notes = slices.Clip(t.Notes)
	return &c
}

// State returns the sealed execution state of the trace. A trace without entries is
// tga.Pending, because the contract has no name for that state.
func (t *Trace) State() tga.ExecutionState {
	cs := t.checkpointState()
	s := tga.ExecutionState{
		TraceID: cs.TraceID, PlanID: cs.PlanID, Current: cs.Current,
		LastSeq: cs.LastSeq, LastDigest: cs.LastDigest,
	}
	s.Seal()
	return s
}

// Checkpoint returns the sealed checkpoint of the trace's head.
func (t *Trace) Checkpoint(ts tga.Millis) tga.Checkpoint {
	c := tga.Checkpoint{TraceID: t.ID, Seq: t.Head.Seq, State: t.checkpointState(), TS: ts}
	c.Seal()
	return c
}

func (t *Trace) checkpointState() tga.CheckpointState {
	current := t.Head.State
	if current == tga.None {
		current = tga.Pending
	}
	return tga.CheckpointState{
		TraceID: t.ID, PlanID: t.PlanID, Current: current,
		LastSeq: t.Head.Seq, LastDigest: t.Head.Digest,
	}
}

// entry returns the entry that carries an artifact of type at, nil if there is none. A trace
// has at most one of each.
func (t *Trace) entry(at tga.ArtifactType) *tga.LogEntry {
	for i := range t.Entries {
		if t.Entries[i].Type == at {
			return &t.Entries[i]
		}
	}
	return nil
}
