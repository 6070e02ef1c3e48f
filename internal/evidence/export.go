package evidence

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/tgad/tgad/internal/evidence/bundle"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// Wanted says what a bundle is to hold: chosen traces, or every append from a time on.
type Wanted struct {
	Traces []tga.ID
	Since  tga.Millis // where Traces is empty; 0 is everything
	// After and Most choose appends by their index instead: at most Most of those after index After.
	// If both are 0, Since counts. If only Most is 0, there is no limit.
	After, Most uint64
	// Old is a signed checkpoint that the reader of the bundle has. The bundle then proves that the
	// tree grew from it. nil is none.
	Old []byte
}

// Export writes a bundle with the newest checkpoint. write writes the traces as an export without
// its end. VALIDATION_ERROR: no checkpoint covers what is wanted yet.
func (k *Keeper) Export(ctx context.Context, w io.Writer, want Wanted, write func(w io.Writer, ids []tga.ID) error) error {
	raw, _ := k.Newest()
	if raw == nil {
		return tga.Errorf(tga.ValidationError, "there is no checkpoint yet: the first is made when something was appended")
	}
	c, err := checkpoint.Unverified(raw)
	if err != nil {
		return err
	}
	content := bundle.Content{Checkpoint: raw, Traces: write}
	content.Key, content.HandOvers = k.Keys()
	if want.Old != nil {
		old, _, err := k.trusted().Open(want.Old)
		if err != nil {
			return err
		}
		if why, err := k.compare(ctx, old); err != nil || why != "" {
			return cmp.Or(err, error(tga.Errorf(tga.StateChecksumMismatch, "the old checkpoint: %s", why)))
		}
		if old.Size > c.Size {
			return tga.Errorf(tga.ValidationError, "the old checkpoint has %d appends, the newest one %d: ask again after the next one", old.Size, c.Size)
		}
		if old.Size > 0 {
			content.Against = &old
		}
	}
	switch end := uint64(c.Size); {
	case len(want.Traces) > 0:
		content.Leaves, err = k.chosen(ctx, want.Traces, end)
	case want.After > 0 || want.Most > 0:
		if want.Most > 0 && end > want.After {
			end = want.After + min(want.Most, end-want.After)
		}
		content.Leaves, err = k.behind(ctx, want.After, end)
	default:
		content.Leaves, err = k.since(ctx, want.Since, end)
	}
	if n := len(content.Leaves); err == nil && n > 0 && len(want.Traces) == 0 {
		content.From, content.To = content.Leaves[0].Index, content.Leaves[n-1].Index
		content.Leaves, err = k.completed(ctx, content.Leaves)
	}
	if err != nil {
		return err
	}
	if len(content.Leaves) == 0 {
		return tga.Errorf(tga.ValidationError, "the newest checkpoint, of %d appends, covers nothing that is wanted", c.Size)
	}
	return bundle.Write(w, content, k.tree)
}

// chosen returns the leaves of traces that a checkpoint covers, in order.
func (k *Keeper) chosen(ctx context.Context, ids []tga.ID, end uint64) ([]tree.Leaf, error) {
	var out []tree.Leaf
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b tga.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range slices.Compact(ids) {
		leaves, err := k.leavesOf(ctx, id)
		if err != nil {
			return nil, err
		}
		if leaves[0].Index > end {
			return nil, tga.Errorf(tga.ValidationError, "the newest checkpoint, of %d appends, does not cover trace %s yet: its first append is number %d", end, id, leaves[0].Index).In(id)
		}
		for _, l := range leaves {
			if l.Index <= end {
				out = append(out, l)
			}
		}
	}
	slices.SortFunc(out, func(a, b tree.Leaf) int { return cmp.Compare(a.Index, b.Index) })
	return out, nil
}

// behind returns the leaves behind an index, up to end.
func (k *Keeper) behind(ctx context.Context, after, end uint64) ([]tree.Leaf, error) {
	var out []tree.Leaf
	for l, err := range k.leaves(ctx, after, end) {
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// since returns every leaf of a checkpoint that was committed at a time or later.
func (k *Keeper) since(ctx context.Context, t tga.Millis, end uint64) ([]tree.Leaf, error) {
	from, err := k.search(ctx, 0, func(l *tree.Leaf) bool { return l.Committed >= t })
	if err != nil || from == 0 || from > end {
		return nil, err
	}
	all, err := k.behind(ctx, from-1, end)
	if err == nil && len(all) > 0 && all[0].Committed < t {
		all = all[1:] // search assumes that the last leaf is a match; this one is not
	}
	return all, err
}

// completed adds to a range the earlier leaves of traces that began before it: a bundle has each of its
// traces from the first entry on.
func (k *Keeper) completed(ctx context.Context, in []tree.Leaf) ([]tree.Leaf, error) {
	var before []tree.Leaf
	seen := map[tga.ID]bool{}
	for i := range in {
		l := &in[i]
		if seen[l.TraceID] || !l.OfTrace() {
			continue
		}
		seen[l.TraceID] = true
		if l.Entries > 0 && l.FirstSeq == 1 {
			continue
		}
		all, err := k.leavesOf(ctx, l.TraceID)
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			if a.Index < in[0].Index {
				before = append(before, a)
			}
		}
	}
	slices.SortFunc(before, func(a, b tree.Leaf) int { return cmp.Compare(a.Index, b.Index) })
	return append(before, in...), nil
}
