package evidence

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
)

// Append implements [notes].
func (s *shared) Append(raw []byte) error {
	ctx, cancel := context.WithTimeout(s.tiles.ctx, placeTime)
	defer cancel()
	s.k.following.Lock()
	defer s.k.following.Unlock()
	t := s.k.tree.(*swapped).at.Load()
	n := Keeping{Epoch: s.epoch.Load(), After: s.last.Number, Kind: kindOf(raw), Size: t.Size(), Note: raw}
	if c, err := checkpoint.Unverified(raw); n.Kind == KindCheckpoint && err == nil {
		n.Size = c.Size
	}
	if n.After == 0 {
		n.Key = s.k.opts.Signer.Public
	}
	if n.Size > 0 {
		page, err := s.tables.Leaves(ctx, uint64(n.Size)-1, 1)
		if err == nil && len(page) == 1 {
			n.Leaf = tree.Leaf(page[0])
			// The tree was made from the order as it was before. At least its last leaf must still be the same.
			if have, err := t.ReadHashes([]int64{tlog.StoredHashIndex(0, n.Size-1)}); err != nil || have[0] != n.Leaf.Hash() {
				return errors.Join(ErrOtherOrder, err)
			}
		} else if err == nil {
			err = ErrOtherOrder
		}
		if err != nil {
			return err
		}
	}
	fresh := 0
	if n.Kind != KindAcceptance {
		for _, f := range t.Fresh() {
			if (f.Number+1)<<(tree.TileHeight*(f.Level+1)) > n.Size {
				break
			}
			n.Tiles = append(n.Tiles, f)
		}
		fresh = len(n.Tiles)
	}
	if err := s.tables.Keep(ctx, n); err != nil {
		s.unsure = true
		return err
	}
	t.Kept(fresh)
	s.last = Note{Number: n.After + 1, Kind: n.Kind, Text: bytes.Clone(raw)}
	if n.Kind == KindCheckpoint {
		s.newest = s.last.Text
	} else {
		s.others = append(s.others, s.last.Text)
	}
	return nil
}

func kindOf(raw []byte) int {
	switch {
	case checkpoint.IsHandOver(raw):
		return KindHandOver
	case checkpoint.IsAcceptance(raw):
		return KindAcceptance
	}
	return KindCheckpoint
}

// All implements [notes].
func (s *shared) All() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, raw := range s.others {
			if !yield(raw, nil) {
				return
			}
		}
	}
}

// Newest implements [notes].
func (s *shared) Newest() []byte { return s.newest }

// Close implements [notes].
func (s *shared) Close() error { return nil }

// tilesOf has the tiles and leaves of the tables, for a [tree.Tiled].
type tilesOf struct {
	ctx    context.Context
	s      *shared
	tables Tables
}

// Whole implements [tree.Tiles].
func (t tilesOf) Whole() ([]int64, error) { return t.tables.Whole(t.ctx) }

// Tiles implements [tree.Tiles].
func (t tilesOf) Tiles(level int, first int64, most int) ([][]byte, error) {
	return t.tables.Tiles(t.ctx, level, first, most)
}

// Leaf implements [tree.Tiles]. For a leaf that the order does not have it returns zero, which is the hash of no leaf.
func (t tilesOf) Leaf(number int64) (tlog.Hash, error) {
	got, err := t.Leaves(number, 1)
	if err != nil || len(got) == 0 {
		return tlog.Hash{}, err
	}
	return got[0], nil
}

// Leaves implements [tree.Tiles].
func (t tilesOf) Leaves(first int64, most int) (out []tlog.Hash, err error) {
	for l, err := range t.s.leaves(t.ctx, uint64(first), uint64(first)+uint64(most)) {
		if err != nil {
			return nil, err
		}
		out = append(out, l.Hash())
	}
	return out, nil
}

// swapped is a tree that [shared.load] can replace by a new one.
type swapped struct{ at atomic.Pointer[tree.Tiled] }

func (t *swapped) Size() int64 {
	if now := t.at.Load(); now != nil {
		return now.Size()
	}
	return 0
}
func (t *swapped) Append(l *tree.Leaf) error          { return t.at.Load().Append(l) }
func (t *swapped) Mark() error                        { return nil }
func (t *swapped) Close() error                       { return nil }
func (t *swapped) Head(size int64) (tlog.Hash, error) { return t.at.Load().Head(size) }
func (t *swapped) Prove(index uint64, size int64) (tlog.RecordProof, error) {
	return t.at.Load().Prove(index, size)
}
func (t *swapped) ProvePrefix(old, size int64) (tlog.TreeProof, error) {
	return t.at.Load().ProvePrefix(old, size)
}
func (t *swapped) Tile(tile tlog.Tile) ([]byte, error) { return t.at.Load().Tile(tile) }
