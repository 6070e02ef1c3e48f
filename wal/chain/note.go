package chain

import (
	"github.com/tgad/tgad/schemas/tga"
)

// LinkNote makes and seals the note that would append n behind the trace's last note. It does
// not advance the trace. It brings the body into canonical form, and refuses a body that has
// none with VALIDATION_ERROR or LIMIT_EXCEEDED. A trace without an entry is NOT_FOUND.
func (t *Trace) LinkNote(n NewNote, ts tga.Millis) (tga.Note, error) {
	if t.Head.Seq == 0 {
		return tga.Note{}, tga.Errorf(tga.NotFound, "note %s on trace %s: it has no entry", n.Kind, t.ID).In(t.ID)
	}
	body, err := tga.Canonicalize(n.Body, tga.Limits{})
	if err != nil {
		return tga.Note{}, err
	}
	note := tga.Note{
		TraceID: t.ID, Number: t.NoteHead.Number + 1, Prev: t.NoteHead.Digest, HeadDigest: t.Head.Digest,
		TS: ts, Kind: n.Kind, Who: n.Who, Body: body,
	}
	note.Seal()
	return note, nil
}

// ApplyNote checks n against the trace and advances the trace. It checks number, chain and
// digest, and the entry that n names as head: that must be an entry of the trace, and not an
// earlier one than the head of the note before. The codes are those of [Trace.Apply]. On error
// the trace is unchanged.
func (t *Trace) ApplyNote(n *tga.Note) error {
	want := t.NoteHead.Number + 1
	if n.Number != want {
		err := t.noteFault(tga.StateSequenceGap, want, "append note %d: last is %d, want %d", n.Number, t.NoteHead.Number, want)
		err.ExpectedSeq, err.ActualSeq = uint64(want), uint64(n.Number)
		return err
	}
	if n.Prev != t.NoteHead.Digest {
		return t.noteMismatch(n.Number, "prev_note_digest", t.NoteHead.Digest, n.Prev)
	}
	if sum := tga.Sum(n.AppendPreimage(make([]byte, 0, preimageRoom))); sum != n.Digest {
		return t.noteMismatch(n.Number, "note_digest", sum, n.Digest)
	}
	if n.TraceID != t.ID {
		return t.noteFault(tga.SchemaViolation, n.Number, "append note %d: note of trace %s", n.Number, n.TraceID).At("/trace_id")
	}
	head := t.seqOf(n.HeadDigest)
	if head == 0 {
		return t.noteMismatch(n.Number, "head_entry_digest", t.Head.Digest, n.HeadDigest)
	}
	if head < t.noteSeq {
		return t.noteFault(tga.StateSequenceGap, n.Number, "append note %d: its head is entry %d, that of the note before is entry %d",
			n.Number, head, t.noteSeq)
	}
	t.Notes = append(t.Notes, *n)
	t.NoteHead, t.noteSeq = NoteHead{Number: n.Number, Digest: n.Digest}, head
	return nil
}

// seqOf returns the number of the entry with a digest, 0 where the trace has none.
func (t *Trace) seqOf(digest tga.Digest) uint64 {
	for i := range t.Entries {
		if t.Entries[i].Digest == digest {
			return t.Entries[i].Seq
		}
	}
	return 0
}

func (t *Trace) noteFault(code tga.Code, number uint32, format string, args ...any) *tga.Error {
	err := t.fault(code, 0, format, args...)
	err.Note = number
	return err
}

func (t *Trace) noteMismatch(number uint32, what string, want, got tga.Digest) *tga.Error {
	err := t.noteFault(tga.StateChecksumMismatch, number, "append note %d: %s is %s, want %s", number, what, got, want)
	err.WantDigest, err.GotDigest = want, got
	return err
}
