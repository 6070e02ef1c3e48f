package evidence

import (
	"context"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// Receipt has the leaves of a trace in the tree, with proofs of those that a checkpoint covers.
type Receipt struct {
	TraceID    tga.ID
	Key        string   // public key that signed first
	HandOvers  [][]byte // from that key to the one that signed the checkpoint
	Checkpoint []byte   // as it was signed; nil if none covers a leaf of the trace
	Leaves     []Proved // in order, at least one
}

// Proved is a leaf with its proof.
type Proved struct {
	tree.Leaf
	Proof []tlog.Hash // nil if the checkpoint does not cover the leaf yet
}

// Pending returns how many leaves of the receipt no checkpoint covers yet.
func (r *Receipt) Pending() (n int) {
	for i := range r.Leaves {
		if r.Leaves[i].Proof == nil {
			n++
		}
	}
	return n
}

// Plain returns the receipt in its public form.
func (r *Receipt) Plain() runtime.Receipt {
	m := runtime.Receipt{TraceID: r.TraceID, Key: r.Key, Checkpoint: string(r.Checkpoint), Pending: r.Pending()}
	for _, raw := range r.HandOvers {
		m.HandOvers = append(m.HandOvers, string(raw))
	}
	for i := range r.Leaves {
		p := &r.Leaves[i]
		leaf := runtime.ReceiptLeaf{Index: int64(p.Index), Leaf: p.Append(nil)}
		if p.Proof != nil {
			leaf.Proof = make([][]byte, 0, len(p.Proof))
			for j := range p.Proof {
				leaf.Proof = append(leaf.Proof, p.Proof[j][:])
			}
		}
		m.Leaves = append(m.Leaves, leaf)
	}
	return m
}

// Receipt returns the receipt of a trace. NOT_FOUND: there is no such trace.
func (k *Keeper) Receipt(ctx context.Context, id tga.ID) (*Receipt, error) {
	leaves, err := k.leavesOf(ctx, id)
	if err != nil {
		return nil, err
	}
	r := &Receipt{TraceID: id}
	r.Key, r.HandOvers = k.Keys()
	raw, _ := k.Newest()
	var c checkpoint.Checkpoint
	if raw != nil {
		if c, err = checkpoint.Unverified(raw); err != nil {
			return nil, err
		}
	}
	for _, l := range leaves {
		p := Proved{Leaf: l}
		if l.Index <= uint64(c.Size) {
			if p.Proof, err = k.prove(&l, c); err != nil {
				return nil, err
			}
			r.Checkpoint = raw
		}
		r.Leaves = append(r.Leaves, p)
	}
	return r, nil
}

// prove returns the proof of a leaf, and verifies it before.
func (k *Keeper) prove(l *tree.Leaf, c checkpoint.Checkpoint) ([]tlog.Hash, error) {
	proof, err := k.tree.Prove(l.Index, c.Size)
	if err != nil {
		return nil, err
	}
	if tlog.CheckRecord(proof, c.Size, c.Head, int64(l.Index)-1, l.Hash()) != nil {
		return nil, tga.Errorf(tga.StateChecksumMismatch, "leaf %d is not the one that the checkpoint of %d covers, or the tree is damaged", l.Index, c.Size).In(l.TraceID)
	}
	return append([]tlog.Hash{}, proof...), nil // not nil: in a tree of one leaf the proof is empty
}

// leavesOf returns the leaves of a trace. The store has no index for them, so leavesOf finds them by
// time. Leaf.Committed is the newest commit time so far. The leaf of an entry is the first leaf whose
// Committed has reached the entry's commit time, or one soon after it. The same holds for a note,
// with its ts and Leaf.NewestTS.
func (k *Keeper) leavesOf(ctx context.Context, id tga.ID) ([]tree.Leaf, error) {
	t, err := k.store.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	var commits []tga.Millis // of the entries
	for e, err := range k.store.Entries(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		if len(commits) == len(t.Entries) {
			break // appended since the trace was loaded, perhaps with notes that t does not have
		}
		commits = append(commits, e.Committed)
	}
	var out []tree.Leaf
	entries, notes := 0, 0 // whose leaves were found
	after := uint64(0)
	for entries < len(commits) || notes < len(t.Notes) {
		// The next leaf comes after the one found last. It has the next entry or the next note,
		// whichever is earlier.
		from := uint64(0)
		if entries < len(commits) {
			committed := commits[entries]
			at, err := k.search(ctx, after, func(l *tree.Leaf) bool { return l.Committed >= committed })
			if err != nil {
				return nil, err
			}
			from = at
		}
		if notes < len(t.Notes) {
			ts := t.Notes[notes].TS
			at, err := k.search(ctx, after, func(l *tree.Leaf) bool { return l.NewestTS >= ts })
			if err != nil {
				return nil, err
			}
			if from == 0 || at < from {
				from = at
			}
		}
		l, err := k.nextOf(ctx, t.ID, from)
		if err != nil {
			return nil, err
		}
		if l.Entries > 0 && l.FirstSeq != uint64(entries)+1 || l.Notes > 0 && l.FirstNote != uint32(notes)+1 {
			return nil, tga.Errorf(tga.StateSequenceGap, "leaf %d begins with entry %d and note %d, want %d and %d", l.Index, l.FirstSeq, l.FirstNote, entries+1, notes+1).In(t.ID)
		}
		entries, notes, after = entries+int(l.Entries), notes+int(l.Notes), l.Index
		out = append(out, l)
	}
	return out, nil
}

// search returns the index of the first leaf after an index for which reached is true. reached must
// then be true for every later leaf too. If it is true for none, search returns the last leaf.
func (k *Keeper) search(ctx context.Context, after uint64, reached func(*tree.Leaf) bool) (uint64, error) {
	low, high := after, max(k.end(), after+1) // reached is assumed to be true for high
	for low+1 < high {
		middle := low + (high-low)/2
		l, err := k.leaf(ctx, middle)
		if err != nil {
			return 0, err
		}
		if reached(&l) {
			high = middle
		} else {
			low = middle
		}
	}
	return high, nil
}

// nextOf returns the first leaf of a trace, from an index on. It waits a while for one: an append can be read from its trace
// a moment before the order ends with it.
func (k *Keeper) nextOf(ctx context.Context, id tga.ID, from uint64) (tree.Leaf, error) {
	if k.shared != nil {
		return k.shared.nextOf(ctx, id, from)
	}
	wait, cancel := context.WithTimeout(ctx, numberTime)
	defer cancel()
	for l, err := range k.store.Follow(wait, max(from, 1)-1) {
		if err != nil && wait.Err() != nil && ctx.Err() == nil {
			break
		}
		if leaf := tree.Leaf(l); err != nil || l.TraceID == id && leaf.OfTrace() {
			return leaf, err
		}
	}
	return tree.Leaf{}, tga.Errorf(tga.StateSequenceGap, "the order has no leaf of the trace from %d on", from).In(id)
}
