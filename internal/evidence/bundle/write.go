package bundle

import (
	"io"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/internal/ndjson"
	"github.com/tgad/tgad/schemas/tga"
)

// about is what the file says to a person who opens it.
var about = []string{
	"This file is evidence from a tgad store: what calls of tools happened, with proofs.",
	"Check it with:  tgad evidence verify FILE --key KEY   (or verify.py, or verify.html, which come with tgad)",
	"KEY is the store's public key. Take it from the operator by a way of your own, not from this file.",
	"Each leaf is one append to the store. Its proof leads to the checkpoint, which the key signed.",
	"Behind the leaves stand the traces: entries, artifacts, documents and notes, chained by SHA-256.",
}

// Proofs gives the proofs of a store's tree.
type Proofs interface {
	Prove(index uint64, size int64) (tlog.RecordProof, error)
	ProvePrefix(old, size int64) (tlog.TreeProof, error)
}

// Content is the content of a bundle.
type Content struct {
	Key        string   // public key that signed first
	HandOvers  [][]byte // signed notes, oldest first
	Checkpoint []byte   // signed
	Against    *checkpoint.Checkpoint
	From, To   uint64      // the range whose leaves are all there; 0, 0 = chosen traces
	Leaves     []tree.Leaf // of the traces, or of the range, in order
	// Traces writes the traces, as lines of an export without its end, in the order of the
	// first leaf of each.
	Traces func(w io.Writer, ids []tga.ID) error
}

// Write writes a bundle. A leaf that the checkpoint does not cover is VALIDATION_ERROR. A leaf whose
// proof does not hold is STATE_CHECKSUM_MISMATCH, because it would not verify.
func Write(w io.Writer, c Content, proofs Proofs) error {
	at, err := checkpoint.Unverified(c.Checkpoint)
	if err != nil {
		return err
	}
	var ids []tga.ID
	seen := map[tga.ID]bool{}
	for i := range c.Leaves {
		if id := c.Leaves[i].TraceID; !seen[id] && c.Leaves[i].OfTrace() {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	line := func(v any) error {
		b, err := encode(v)
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "write evidence: %w", err)
		}
		return nil
	}
	err = line(header{"evidence", tga.EvidenceBundleVersion, about, at.Origin, c.Key, c.From, c.To, len(c.Leaves), len(ids)})
	for _, raw := range c.HandOvers {
		if err == nil {
			err = line(noteLine{"hand_over", string(raw)})
		}
	}
	if err == nil {
		err = line(noteLine{"checkpoint", string(c.Checkpoint)})
	}
	if err == nil && c.Against != nil {
		var proof tlog.TreeProof
		if proof, err = proofs.ProvePrefix(c.Against.Size, at.Size); err == nil {
			err = line(prefixLine{"prefix", c.Against.Size, c.Against.Head, hashes(proof)})
		}
	}
	var raw []byte
	for i := range c.Leaves {
		if err != nil {
			return err
		}
		l := &c.Leaves[i]
		if l.Index > uint64(at.Size) {
			return tga.Errorf(tga.ValidationError, "leaf %d is not covered by the checkpoint of %d", l.Index, at.Size)
		}
		var proof tlog.RecordProof
		proof, err = proofs.Prove(l.Index, at.Size)
		if err == nil && tlog.CheckRecord(proof, at.Size, at.Head, int64(l.Index)-1, l.Hash()) != nil {
			err = tga.Errorf(tga.StateChecksumMismatch, "leaf %d is not the one that the checkpoint of %d covers, or the tree is damaged", l.Index, at.Size)
		}
		if err == nil {
			raw = l.Append(raw[:0])
			err = line(leafLine{"leaf", l.Index, raw, hashes(proof)})
		}
	}
	if err == nil {
		err = c.Traces(w, ids)
	}
	if err == nil {
		err = ndjson.End(w, len(ids))
	}
	return err
}

// hashes is a proof that is never null in JSON.
func hashes(proof []tlog.Hash) []tlog.Hash { return append([]tlog.Hash{}, slices.Clip(proof)...) }
