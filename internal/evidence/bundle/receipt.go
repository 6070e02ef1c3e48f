package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// MaxReceipt bounds a receipt, in bytes.
const MaxReceipt = 16 << 20

// Receipt says what a receipt proves, and what it does not. An append is covered if its index is not past the size of
// the checkpoint; then its proof must lead there.
type Receipt struct {
	Signed
	TraceID        tga.ID
	Appends        int        // appends of the trace that the checkpoint covers: its first ones
	Pending        int        // appends of the trace that came after the checkpoint
	Entries, Notes uint64     // that the trace had after the last covered append
	Head           tga.Digest // digest of its last entry then

	entries, notes uint64 // after the last append, covered or not
}

// receipt is [runtime.Receipt] with hashes of a fixed length.
type receipt struct {
	TraceID    tga.ID   `json:"trace_id"`
	Key        string   `json:"key"`
	HandOvers  []string `json:"hand_overs,omitempty"`
	Checkpoint string   `json:"checkpoint,omitempty"`
	Leaves     []struct {
		Index int64       `json:"index"`
		Leaf  []byte      `json:"leaf"`
		Proof []tlog.Hash `json:"proof,omitempty"`
	} `json:"leaves"`
	Pending int `json:"pending,omitempty"`
}

// origin is the one that the checkpoint says, or if there is none, the first hand-over. A receipt has no member for it,
// and a store need not be named as its key is. "" is none.
func (m *receipt) origin() string {
	text := m.Checkpoint
	if text == "" && len(m.HandOvers) > 0 {
		_, text, _ = strings.Cut(m.HandOvers[0], "\n")
	}
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// IsReceipt reports whether a file with this beginning is a JSON object and no evidence file.
func IsReceipt(head []byte) bool {
	return kindOf(head) == "" && bytes.HasPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte("{"))
}

// decodeReceipt reads a receipt. Spaces and the order of members are free, because programs that keep a receipt may
// write it again in their own way. Its canonical form must be that of the value that was read, so no member is
// repeated, unknown, empty or misspelt.
func decodeReceipt(raw []byte) (m receipt, err error) {
	var said, again []byte
	if said, err = tga.Canonicalize(raw, tga.Limits{MaxBytes: MaxReceipt}); err == nil {
		err = json.Unmarshal(said, &m)
	}
	if err == nil {
		again, err = json.Marshal(m)
	}
	if err == nil {
		again, err = tga.Canonicalize(again, tga.Limits{MaxBytes: MaxReceipt})
	}
	if err == nil && !bytes.Equal(again, said) {
		err = errors.New("a member is unknown, missing, empty, or not in its one spelling")
	}
	if err != nil {
		return m, tga.Errorf(tga.SchemaViolation, "receipt: %w", err)
	}
	return m, nil
}

// VerifyReceipt checks a receipt, as GET /v1/traces/{id}/receipt answers it: that the key signed the checkpoint, and
// that the checkpoint covers the appends of the trace, from the first on without a gap. Codes as of [Verify];
// VALIDATION_ERROR with [Trust.Old], to which no receipt leads. [Trust.Append] is not used.
func VerifyReceipt(raw []byte, trust Trust) (*Receipt, error) {
	r := new(Receipt)
	if len(raw) > MaxReceipt {
		return r, tga.Errorf(tga.LimitExceeded, "receipt of over %d bytes", MaxReceipt)
	}
	m, err := decodeReceipt(raw)
	if err != nil {
		return r, err
	}
	if trust.Old != nil {
		return r, unanswered{tga.Errorf(tga.ValidationError, "a receipt does not say what its store grew from: export an evidence file with the old checkpoint")}
	}
	if r.TraceID = m.TraceID; len(m.Leaves) == 0 {
		return r, tga.Errorf(tga.SchemaViolation, "receipt without an append")
	}
	if err := r.trust(&trust, m.origin(), m.Key); err != nil {
		return r, err
	}
	r.Origin = r.keys.Origin()
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
	for _, l := range m.Leaves {
		leaf, err := tree.ParseLeaf(l.Leaf)
		if err == nil {
			err = r.leaf(&leaf, l.Index, l.Proof, &before)
		}
		if err != nil {
			return r, err
		}
		before = leaf
	}
	if r.Pending != m.Pending {
		return r, tga.Errorf(tga.SchemaViolation, "%d appends came after the checkpoint, the receipt says %d", r.Pending, m.Pending)
	}
	return r, nil
}

// leaf checks the next append of the trace against the one before it.
func (r *Receipt) leaf(l *tree.Leaf, index int64, proof []tlog.Hash, before *tree.Leaf) error {
	switch {
	case l.TraceID != r.TraceID || !l.OfTrace():
		return tga.Errorf(tga.SchemaViolation, "leaf %d is none of trace %s", l.Index, r.TraceID)
	case int64(l.Index) != index || l.Index <= before.Index:
		return tga.Errorf(tga.SchemaViolation, "leaf %d stands as that of index %d, behind %d", l.Index, index, before.Index)
	case l.Entries > 0 && l.FirstSeq != r.entries+1, l.Notes > 0 && uint64(l.FirstNote) != r.notes+1,
		l.Entries == 0 && l.HeadDigest != before.HeadDigest, l.Notes == 0 && l.NoteDigest != before.NoteDigest:
		return tga.Errorf(tga.StateSequenceGap, "an append of the trace is missing before leaf %d", l.Index)
	case len(proof) > maxProof:
		return tga.Errorf(tga.LimitExceeded, "proof of %d hashes: at most %d", len(proof), maxProof)
	}
	r.entries += uint64(l.Entries)
	r.notes += uint64(l.Notes)
	if l.Index > uint64(r.Checkpoint.Size) {
		if r.Pending++; len(proof) > 0 {
			return tga.Errorf(tga.SchemaViolation, "leaf %d has a proof, and came after the checkpoint of %d", l.Index, r.Checkpoint.Size)
		}
		return nil
	}
	if !r.includes(l, proof) { // in a tree of one leaf the proof is empty
		return tga.Errorf(tga.StateChecksumMismatch, "leaf %d is not in the tree of the checkpoint", l.Index)
	}
	r.Appends++
	r.Entries, r.Notes, r.Head = r.entries, r.notes, l.HeadDigest
	return nil
}

// Verdict is the verdict on the receipt, with the same words as [Report.Verdict].
func (r *Receipt) Verdict() string {
	switch {
	case r.Appends > 0 && !r.KeyGiven:
		return OwnKey
	case r.Pending > 0:
		return NotCovered
	}
	return Proved
}

// Words returns sentences that say what was proved and what was not.
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
