package ledger

import "github.com/tgad/tgad/schemas/tga"

// FromTrace returns the record as the trace's own log says it: the fold of its
// tool_call (entry callSeq, appended under epoch at callTS, see [Reserve]), its
// notes in order and its tool_effect, nil where there is none.
//
// touches is false where the trace never held its key: it has no tool_call, or one
// marked [tga.AttemptNone]. The ledger record of a key equals FromTrace of the trace
// that reserved it last; a store that disagrees is corrupt.
func FromTrace(call *tga.Artifact, callSeq uint64, epoch uint64, callTS tga.Millis, effect *tga.Artifact, effectSeq uint64, notes []tga.Note) (rec Record, touches bool, err error) {
	if call == nil || NeverSent(call) {
		return Record{}, false, nil
	}
	rec, err = Reserve(call, callSeq, epoch, callTS)
	if err != nil {
		return Record{}, false, err
	}
	// A trace takes no attempt once it is terminal and no confirmation before, so the
	// kind of a note says on which side of the effect it stands.
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
