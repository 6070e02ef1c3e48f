package chain

import "github.com/tgad/tgad/schemas/tga"

// VerifyCheckpoint decodes a stored checkpoint of the trace, and checks it against its own digest
// and against the entry that it names. STATE_CHECKSUM_MISMATCH, Where "stored": it does not decode,
// or it disagrees with its digest or with the entry.
func (t *Trace) VerifyCheckpoint(stored []byte) (*tga.Checkpoint, error) {
	fault := func(format string, args ...any) *tga.Error {
		err := tga.Errorf(tga.StateChecksumMismatch, format, args...).In(t.ID)
		err.Where = "stored"
		return err
	}
	cp, err := tga.DecodeCheckpoint(stored)
	if err != nil {
		return nil, fault("checkpoint of trace %s: %w", t.ID, err)
	}
	s := cp.State
	switch {
	case cp.TraceID != t.ID || s.TraceID != t.ID || s.LastSeq != cp.Seq:
		return nil, fault("checkpoint of trace %s at seq %d lies under the key of trace %s", cp.TraceID, cp.Seq, t.ID)
	case cp.Seq == 0 || cp.Seq > uint64(len(t.Entries)):
		return nil, fault("checkpoint of trace %s at seq %d: the head is %d", t.ID, cp.Seq, t.Head.Seq)
	}
	e := t.Entries[cp.Seq-1]
	if e.Digest != s.LastDigest || e.To != s.Current || !t.PlanID.IsZero() && s.PlanID != t.PlanID {
		err := fault("checkpoint of trace %s at seq %d: %s with digest %s, the entry leads to %s with digest %s", t.ID, cp.Seq, s.Current, s.LastDigest, e.To, e.Digest)
		err.WantDigest, err.GotDigest = e.Digest, s.LastDigest
		return nil, err
	}
	return cp, nil
}
