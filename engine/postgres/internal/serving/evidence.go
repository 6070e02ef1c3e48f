package serving

import (
	"context"
	"errors"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

var _ daemon.Proving = served{}

// Keep implements [daemon.Proving].
func (s served) Keep(ctx context.Context, o evidence.Options) (*evidence.Keeper, error) {
	return evidence.OpenShared(ctx, s, tables{s.Fleet.Evidence()}, o)
}

// tables presents the evidence of a store to package evidence.
type tables struct{ postgres.Evidence }

// Keep implements [evidence.Tables].
func (t tables) Keep(ctx context.Context, k evidence.Keeping) error {
	x := postgres.Keeping{Epoch: k.Epoch, After: k.After, Key: k.Key, Kind: k.Kind, Size: k.Size, Leaf: chain.Leaf(k.Leaf), Note: k.Note}
	for _, f := range k.Tiles {
		x.Tiles = append(x.Tiles, postgres.Tile(f))
	}
	err := t.Evidence.Keep(ctx, x)
	for _, same := range []struct{ is, told error }{
		{postgres.ErrNotSigner, evidence.ErrNotSigner}, {postgres.ErrOtherNote, evidence.ErrOtherNote}, {postgres.ErrOtherOrder, evidence.ErrOtherOrder},
	} {
		if errors.Is(err, same.is) {
			return same.told
		}
	}
	return err
}

// Standing implements [evidence.Tables].
func (t tables) Standing(ctx context.Context) (st evidence.Standing, err error) {
	newest, others, key, err := t.Evidence.Standing(ctx)
	st.Newest, st.Key = evidence.Note(newest), key
	for _, n := range others {
		st.Others = append(st.Others, evidence.Note(n))
	}
	return st, err
}

// Notes implements [evidence.Tables].
func (t tables) Notes(ctx context.Context, from int64, most int) (list []evidence.Note, err error) {
	got, err := t.Evidence.Notes(ctx, from, most)
	for _, n := range got {
		list = append(list, evidence.Note(n))
	}
	return list, err
}

// Leaves implements [evidence.Tables].
func (t tables) Leaves(ctx context.Context, after uint64, most int) ([]engine.Leaf, error) {
	got, err := t.Evidence.Leaves(ctx, after, most)
	list := make([]engine.Leaf, 0, len(got))
	for _, l := range got {
		list = append(list, engine.Leaf(l))
	}
	return list, err
}

// NextOf implements [evidence.Tables].
func (t tables) NextOf(ctx context.Context, trace tga.ID, from uint64) (engine.Leaf, bool, error) {
	l, ok, err := t.Evidence.NextOf(ctx, trace, from)
	return engine.Leaf(l), ok, err
}
