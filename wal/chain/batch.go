package chain

import (
	"errors"
	"slices"

	"github.com/tgad/tgad/schemas/tga"
)

// MaxBatch bounds what one append may commit, in bytes.
const MaxBatch = 512 << 20

// Check refuses what is no batch with VALIDATION_ERROR, and one that the frame codec has
// no room for with LIMIT_EXCEEDED.
func (b Batch) Check(trace tga.ID) error {
	if len(b.Artifacts) == 0 && len(b.Notes) == 0 && len(b.Attachments) == 0 {
		return tga.Errorf(tga.ValidationError, "append of nothing").In(trace)
	}
	for _, a := range b.Artifacts {
		if a.Artifact == nil {
			return tga.Errorf(tga.ValidationError, "append of no artifact").In(trace)
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

// Replayed answers a batch whose artifacts the trace already has, one after the other
// and where the caller says they are. A caller that lost the answer to an append asks
// again and must not be told that its own entry is in the way.
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

// Expect checks what a caller believes of the trace's head; nil believes nothing. A wrong
// number is STATE_SEQUENCE_GAP, a wrong digest STATE_CHECKSUM_MISMATCH.
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

// ApplyGiven is [Trace.Apply] for an entry that its caller made, at the time now of the
// store. The entry is read back as well: bytes that no reader takes would end the trace
// for good.
func (t *Trace) ApplyGiven(e *Entry, now tga.Millis) error {
	if e.TS > now+maxAhead {
		// The newest ts is what tells a clock that went back. One far ahead would take
		// every dedupe_key licence away until that time.
		return tga.Errorf(tga.ValidationError, "append seq %d: ts %s is over a minute ahead of the store's clock, %s", e.Seq, e.TS, now).In(t.ID).At("/ts")
	}
	if err := t.Apply(e); err != nil {
		return err
	}
	_, err := tga.DecodeEntryPreimage(e.Preimage)
	return given(t.ID, err)
}

// AppendNote makes the note by which n follows the trace's last note, reads it back, and
// advances the trace.
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

// given marks an error of a decoder of stored bytes as one about a caller's.
func given(id tga.ID, err error) error {
	var e *tga.Error
	if errors.As(err, &e) {
		e.Where = "given"
		return e.In(id)
	}
	return err
}
