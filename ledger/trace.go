package ledger

import "github.com/tgad/tgad/schemas/tga"

// FromTrace returns the record that follows from the trace's own log: the fold of its
// tool_call (entry callSeq, appended under epoch at callTS, see [Reserve]), its notes in order
// and its tool_effect, which is nil if there is none.
//
// touches is false if the trace never held its key: it has no tool_call, or one marked
// [tga.AttemptNone]. The ledger record of a key equals FromTrace of the trace that reserved the
// key last. A store in which it does not is corrupt.
func FromTrace(call *tga.Artifact, callSeq uint64, epoch uint64, callTS tga.Millis, effect *tga.Artifact, effectSeq uint64, notes []tga.Note) (rec Record, touches bool, err error) {
	if call == nil || NeverSent(call) {
		return Record{}, false, nil
	}
	rec, err = Reserve(call, callSeq, epoch, callTS)
	if err != nil {
		return Record{}, false, err
	}
	// A trace takes attempts only before it is terminal and confirmations only after, so the
	// kind of a note tells whether it comes before or after the effect.
	apply := func(after bool) error {
		for i := range notes {
			if changes, afterEffect := ChangesRecord(notes[i].Kind); !changes || afterEffect != after {
				continue
			}
			if rec, err = rec.ApplyNote(&notes[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := apply(false); err != nil {
		return Record{}, false, err
	}
	if effect != nil {
		if rec, err = rec.Settle(effect, effectSeq); err != nil {
			return Record{}, false, err
		}
	}
	if err := apply(true); err != nil {
		return Record{}, false, err
	}
	return rec, true, nil
}

// Check compares the stored record of a key (nil for none) with want, the record that follows from
// the log of one of the key's traces. STATE_CHECKSUM_MISMATCH, Where "stored": they disagree. The
// stored record may belong to another trace, but only if this one settled as not sent or as
// definitely not executed.
func (want Record) Check(key string, stored *Record) error {
	id := want.TraceID
	disagree := func(format string, args ...any) error {
		err := tga.Errorf(tga.StateChecksumMismatch, format, args...).In(id)
		err.Where = "stored"
		return err
	}
	switch {
	case stored == nil:
		return disagree("trace %s reserved key %q, and there is no record of it", id, key)
	case stored.Status == Expired:
		if shrunk, err := want.Expire(); err != nil || *stored != shrunk {
			return disagree("the expired record of key %q is not that of trace %s", key, id)
		}
	case stored.TraceID == id:
		if *stored != want {
			return disagree("the record of key %q is %+v, the log of trace %s says %+v", key, *stored, id, want)
		}
	case want.Status != Settled || !want.Class.Releases():
		return disagree("the record of key %q names trace %s, and trace %s never gave it up", key, stored.TraceID, id)
	}
	return nil
}
