package chain

import (
	"errors"
	"iter"

	"github.com/tgad/tgad/schemas/tga"
)

// Replay folds a trace's stored entries and then its notes in one pass. It checks each as
// [Trace.Apply] and [Trace.ApplyNote] do, but does not recompute digests that [DecodeFrame]
// has verified. notes may be nil. A trace without entries replays to the empty trace.
//
// The first fault ends Replay. The error has the code of the failed check, Where "stored", the
// trace, and the place of the fault in the log: Seq for an entry, Note for a note. It names the
// place and not the number that a damaged entry claims, which proves nothing. An error of the
// iterator itself gets the same facts and keeps its code.
func Replay(id tga.ID, entries iter.Seq2[Entry, error], notes iter.Seq2[tga.Note, error]) (*Trace, error) {
	t := NewTrace(id)
	for e, err := range entries {
		if err == nil {
			err = t.applyRead(&e)
		}
		if err != nil {
			return nil, t.stored(err, t.Head.Seq+1, 0)
		}
	}
	if notes == nil {
		return t, nil
	}
	for n, err := range notes {
		if err == nil {
			err = t.ApplyNote(&n)
		}
		if err != nil {
			return nil, t.stored(err, 0, t.NoteHead.Number+1)
		}
	}
	return t, nil
}

// stored returns err as one about the trace's stored entry seq or its stored note.
func (t *Trace) stored(err error, seq uint64, note uint32) error {
	cause := &tga.Error{}
	if !errors.As(err, &cause) {
		// An error of the reader: it does not say whether the log is good.
		cause = &tga.Error{Code: tga.StoreUnavailable, Err: err}
	}
	at := *cause
	at.TraceID, at.Seq, at.Note = t.ID, seq, note
	if at.Code != tga.StoreUnavailable {
		at.Where = "stored"
	}
	if note != 0 {
		at.Message = tga.Errorf(cause.Code, "replay trace %s, note %d: %w", t.ID, note, err).Message
	} else {
		at.Message = tga.Errorf(cause.Code, "replay trace %s, entry %d: %w", t.ID, seq, err).Message
	}
	at.Err = err
	return &at
}
