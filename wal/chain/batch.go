package chain

import (
	"errors"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// MaxBatch bounds what one append may commit, in bytes.
const MaxBatch = 512 << 20

// Check refuses an empty batch, and one with a nil artifact or one without the members of its type,
// with VALIDATION_ERROR, and a batch that the frame codec has no room for with LIMIT_EXCEEDED.
func (b Batch) Check(trace tga.ID) error {
	if len(b.Artifacts) == 0 && len(b.Notes) == 0 && len(b.Attachments) == 0 {
		return tga.Errorf(tga.ValidationError, "the append is empty: it has no artifact, note or attachment").In(trace)
	}
	for _, a := range b.Artifacts {
		if a.Artifact == nil {
			return tga.Errorf(tga.ValidationError, "the append has an element without an artifact").In(trace)
		}
		if !hasBody(a.Artifact) {
			return tga.Errorf(tga.ValidationError, "the append has a %s without its members", a.Artifact.Type).In(trace)
		}
		size := len(a.Artifact.Canonical)
		for _, d := range a.Documents {
			size += len(d.Data)
			if len(d.Pointer) > 255 {
				return tga.Errorf(tga.LimitExceeded, "document pointer of %d bytes: at most 255", len(d.Pointer)).In(trace)
			}
		}
		if size > MaxBatch {
			return tga.Errorf(tga.LimitExceeded, "%s with its documents has %d bytes: at most %d", a.Artifact.Type, size, MaxBatch).In(trace)
		}
		if len(a.Documents) > 16 {
			return tga.Errorf(tga.LimitExceeded, "%s with %d documents: at most 16", a.Artifact.Type, len(a.Documents)).In(trace)
		}
	}
	return nil
}

// hasBody reports whether the members of an artifact's type are set, which every check reads.
func hasBody(a *tga.Artifact) bool {
	switch a.Type {
	case tga.RequestType:
		return a.Request != nil
	case tga.DecisionType:
		return a.Decision != nil
	case tga.CallType:
		return a.Call != nil
	case tga.EffectType:
		return a.Effect != nil
	}
	return false
}

// Replayed answers a batch whose artifacts the trace already has, one after the other, at the
// place that the caller expects. A caller that lost the answer to an append repeats it, and
// must get that answer, not an error about its own earlier entry.
func Replayed(t *Trace, b Batch) (Appended, bool) {
	n := len(b.Artifacts)
	if n == 0 || n > len(t.Entries) {
		return Appended{}, false
	}
	at := len(t.Entries)
	for i := range t.Entries {
		if t.Entries[i].ArtifactDigest == b.Artifacts[0].Artifact.Digest {
			at = i
		}
	}
	if at+n > len(t.Entries) || b.Expect != nil && b.Expect.Seq != uint64(at) {
		return Appended{}, false
	}
	stored := t.Entries[at : at+n]
	for i, a := range b.Artifacts {
		if stored[i].ArtifactDigest != a.Artifact.Digest || a.Entry != nil && a.Entry.Digest != stored[i].Digest {
			return Appended{}, false
		}
	}
	last := stored[n-1]
	return Appended{
		Head:     Head{Seq: last.Seq, Digest: last.Digest, State: last.To},
		Entries:  slices.Clone(stored), // of the shared fold
		Replayed: true,
		Trace:    t,
	}, true
}

// Expect compares the trace's head with the one that a caller expects; nil is no expectation.
// A wrong number is STATE_SEQUENCE_GAP, a wrong digest STATE_CHECKSUM_MISMATCH.
func (t *Trace) Expect(want *Head) error {
	switch {
	case want == nil:
		return nil
	case want.Seq != t.Head.Seq:
		err := tga.Errorf(tga.StateSequenceGap, "append after seq %d: head is %d", want.Seq, t.Head.Seq).In(t.ID)
		err.ExpectedSeq, err.ActualSeq = t.Head.Seq+1, want.Seq+1
		return err
	case want.Digest != t.Head.Digest:
		err := tga.Errorf(tga.StateChecksumMismatch, "append after seq %d: head digest is %s, expected %s", want.Seq, t.Head.Digest, want.Digest).In(t.ID)
		err.WantDigest, err.GotDigest, err.Where = t.Head.Digest, want.Digest, "given"
		return err
	}
	return nil
}

// maxAhead is how far a caller's own entry may be ahead of the store's clock, in
// milliseconds.
const maxAhead = 60_000

// ApplyGiven is [Trace.Apply] for an entry that its caller made; now is the store's time. It
// also decodes the entry's bytes: if no reader accepted them, nobody could ever read or
// continue the trace.
func (t *Trace) ApplyGiven(e *Entry, now tga.Millis) error {
	if e.TS > now+maxAhead {
		// A clock that went back is detected by the newest ts in the store. A ts far ahead
		// would make every dedupe_key licence void until that time.
		return tga.Errorf(tga.ValidationError, "append seq %d: ts %s is over a minute ahead of the store's clock, %s", e.Seq, e.TS, now).In(t.ID).At("/ts")
	}
	if err := t.Apply(e); err != nil {
		return err
	}
	_, err := tga.DecodeEntryPreimage(e.Preimage)
	return given(t.ID, err)
}

// AppendNote makes the note that appends n behind the trace's last note, decodes its bytes as
// a check, and advances the trace.
func (t *Trace) AppendNote(n NewNote, ts tga.Millis) (tga.Note, error) {
	note, err := t.LinkNote(n, ts)
	if err != nil {
		return tga.Note{}, err
	}
	if _, err := tga.DecodeNotePreimage(note.AppendPreimage(nil)); err != nil {
		return tga.Note{}, given(t.ID, err)
	}
	return note, t.ApplyNote(&note)
}

// given marks an error of a decoder of stored bytes as one about a caller's bytes.
func given(id tga.ID, err error) error {
	var e *tga.Error
	if errors.As(err, &e) {
		e.Where = "given"
		return e.In(id)
	}
	return err
}
