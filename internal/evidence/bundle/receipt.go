package bundle

import (
	"bytes"
	"encoding/json"
	"io"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxReceipt bounds a receipt, in bytes.
const MaxReceipt = 16 << 20

// Receipt says what a receipt proves, and what it does not.
type Receipt struct {
	Signed
	TraceID        tga.ID
	Appends        int        // that the checkpoint covers: the first ones of the trace
	Pending        int        // that came after it
	Entries, Notes uint64     // of the trace, after the last append that is covered
	Head           tga.Digest // of its last entry then

	entries, notes uint64 // after the last append, covered or not
}

// IsReceipt reports whether a file looks like a receipt: a JSON object with leaves.
func IsReceipt(raw []byte) bool {
	var m struct {
		Kind   *string            `json:"kind"`
		Leaves *[]json.RawMessage `json:"leaves"`
	}
	return json.Unmarshal(raw, &m) == nil && m.Kind == nil && m.Leaves != nil
}

// VerifyReceipt checks a receipt, as GET /v1/traces/{id}/receipt answers it: that the key signed the checkpoint, and
// that the checkpoint covers the appends of the trace, from the first on without a gap. Codes as of [Verify];
// [Trust.Old] and [Trust.Append] are not used.
func VerifyReceipt(raw []byte, trust Trust) (*Receipt, error) {
	r := new(Receipt)
	var m runtime.Receipt
	if len(raw) > MaxReceipt {
		return r, tga.Errorf(tga.LimitExceeded, "receipt of %d bytes: at most %d", len(raw), MaxReceipt)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return r, tga.Errorf(tga.SchemaViolation, "receipt: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return r, tga.Errorf(tga.SchemaViolation, "receipt: something follows it")
	}
	if r.TraceID = m.TraceID; len(m.Leaves) == 0 {
		return r, tga.Errorf(tga.SchemaViolation, "receipt without an append")
	}
	if err := r.trust(&trust, "", m.Key); err != nil {
		return r, err
	}
	r.Origin = r.keys.Origin() // a receipt says none: it is the key's name
	for _, note := range m.HandOvers {
		if err := r.handOver([]byte(note)); err != nil {
			return r, err
		}
	}
	if m.Checkpoint != "" {
		if err := r.open([]byte(m.Checkpoint)); err != nil {
			return r, err
		}
	}
	before := tree.Leaf{}
	for i := range m.Leaves {
		l, err := r.leaf(&m.Leaves[i], &before)
		if err != nil {
			return r, err
		}
		before = l
	}
	if r.Pending != m.Pending {
		return r, tga.Errorf(tga.SchemaViolation, "%d appends without a proof, the receipt says %d", r.Pending, m.Pending)
	}
	return r, nil
}

// leaf checks the append that follows another.
func (r *Receipt) leaf(m *runtime.ReceiptLeaf, before *tree.Leaf) (tree.Leaf, error) {
	l, err := tree.ParseLeaf(m.Leaf)
	switch {
	case err != nil:
		return l, err
	case l.TraceID != r.TraceID || !l.OfTrace():
		return l, tga.Errorf(tga.SchemaViolation, "leaf %d is none of trace %s", l.Index, r.TraceID)
	case int64(l.Index) != m.Index || l.Index <= before.Index:
		return l, tga.Errorf(tga.SchemaViolation, "leaf %d stands as that of index %d, behind %d", l.Index, m.Index, before.Index)
	case l.Entries > 0 && l.FirstSeq != r.entries+1, l.Notes > 0 && uint64(l.FirstNote) != r.notes+1,
		l.Entries == 0 && l.HeadDigest != before.HeadDigest, l.Notes == 0 && l.NoteDigest != before.NoteDigest:
		return l, tga.Errorf(tga.StateSequenceGap, "an append of the trace is missing before leaf %d", l.Index)
	case m.Proof == nil:
		r.Pending++
	case r.Pending > 0:
		return l, tga.Errorf(tga.SchemaViolation, "leaf %d has a proof and an earlier one has none", l.Index)
	default:
		proof := make([]tlog.Hash, len(m.Proof))
		for i, hash := range m.Proof {
			if len(m.Proof) > maxProof || len(hash) != len(proof[i]) {
				return l, tga.Errorf(tga.LimitExceeded, "leaf %d: a proof of %d hashes, one of %d bytes", l.Index, len(m.Proof), len(hash))
			}
			proof[i] = tlog.Hash(hash)
		}
		if !r.includes(&l, proof) {
			return l, tga.Errorf(tga.StateChecksumMismatch, "leaf %d is not in the tree of the checkpoint", l.Index)
		}
		r.Appends++
		r.Entries, r.Notes, r.Head = r.entries+uint64(l.Entries), r.notes+uint64(l.Notes), l.HeadDigest
	}
	r.entries += uint64(l.Entries)
	r.notes += uint64(l.Notes)
	return l, nil
}

// Verdict is as that of [Report.Verdict].
func (r *Receipt) Verdict() string {
	switch {
	case r.Appends > 0 && !r.KeyGiven:
		return OwnKey
	case r.Pending > 0:
		return NotCovered
	}
	return Proved
}

// Words says, a sentence each, what was proved and what was not.
func (r *Receipt) Words() (proved, open []string) {
	if r.Appends > 0 {
		proved, open = r.words()
		say(&proved, "The first %d appends of trace %s are in it. After them the trace had %d entries and %d notes, the last entry with digest %s.",
			r.Appends, r.TraceID, r.Entries, r.Notes, r.Head)
	}
	if r.Pending > 0 {
		say(&open, "%d appends of trace %s: no checkpoint covered them when the receipt was given. Ask for it again.", r.Pending, r.TraceID)
	}
	say(&open, "What the entries say, which is in an evidence file, and whether the trace has later appends.")
	return proved, open
}
