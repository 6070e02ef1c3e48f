package evidence

import (
	"context"
	"iter"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// rows are the tables of a store for which another process signs.
type rows struct {
	key    string
	leaves []engine.Leaf
	notes  []Note
	away   bool // leaves cannot be read
}

var errAway = tga.Errorf(tga.StoreUnavailable, "the server is away")

func (r *rows) Lead(context.Context) (int64, error)                      { return 0, nil }
func (r *rows) Resign(context.Context, int64) error                      { return nil }
func (r *rows) Keep(context.Context, Keeping) error                      { return ErrNotSigner }
func (r *rows) Whole(context.Context) ([]int64, error)                   { return nil, nil }
func (r *rows) End(context.Context) (uint64, error)                      { return uint64(len(r.leaves)), nil }
func (r *rows) Tiles(context.Context, int, int64, int) ([][]byte, error) { return nil, nil }

func (r *rows) Standing(context.Context) (Standing, error) {
	st := Standing{Key: r.key}
	for _, n := range r.notes {
		if n.Kind == KindCheckpoint {
			st.Newest = n
		} else {
			st.Others = append(st.Others, n)
		}
	}
	return st, nil
}

func (r *rows) Notes(_ context.Context, from int64, most int) ([]Note, error) {
	list := r.notes[min(max(from, 1)-1, int64(len(r.notes))):]
	return list[:min(most, len(list))], nil
}

func (r *rows) Leaves(_ context.Context, after uint64, most int) ([]engine.Leaf, error) {
	if r.away {
		return nil, errAway
	}
	list := r.leaves[min(after, uint64(len(r.leaves))):]
	return list[:min(most, len(list))], nil
}

func (r *rows) NextOf(context.Context, tga.ID, uint64) (engine.Leaf, bool, error) {
	return engine.Leaf{}, false, nil
}

// sign appends a leaf, and the checkpoint of all leaves.
func (r *rows) sign(t *testing.T, s checkpoint.Signer) {
	t.Helper()
	r.leaves = append(r.leaves, engine.Leaf{Index: uint64(len(r.leaves)) + 1, TraceID: tga.ID{6: 0x70, 8: 0x80}, FirstSeq: 1, Entries: 1})
	grown := tree.NewTiled(nil)
	for _, l := range r.leaves {
		leaf := tree.Leaf(l)
		if err := grown.Append(&leaf); err != nil {
			t.Fatal(err)
		}
	}
	c := checkpoint.Checkpoint{Origin: s.Name(), Size: grown.Size()}
	var err error
	if c.Head, err = grown.Head(c.Size); err != nil {
		t.Fatal(err)
	}
	raw, err := c.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	r.notes = append(r.notes, Note{Number: int64(len(r.notes)) + 1, Kind: KindCheckpoint, Text: raw})
}

// noStore is what a keeper needs of a store that keeps its evidence in tables.
type noStore struct{}

func (noStore) Stats() engine.Stats                                                   { return engine.Stats{} }
func (noStore) Cursor() uint64                                                        { return 0 }
func (noStore) Follow(context.Context, uint64) iter.Seq2[engine.Leaf, error]          { return nil }
func (noStore) Load(context.Context, tga.ID) (*chain.Trace, error)                    { return nil, errAway }
func (noStore) Entries(context.Context, tga.ID, uint64) iter.Seq2[chain.Entry, error] { return nil }
func (noStore) Freeze(string) error                                                   { return nil }

// TestNoteThatCouldNotBeComparedIsTakenLater: if the database is away while a process compares a checkpoint of another one,
// the process takes it the next time. Otherwise it would answer with an older one than a client has seen, which looks like a
// store that was rolled back.
func TestNoteThatCouldNotBeComparedIsTakenLater(t *testing.T) {
	signer, err := checkpoint.NewSigner("payments.example/tgad")
	if err != nil {
		t.Fatal(err)
	}
	r := &rows{key: signer.Public}
	r.sign(t, signer)
	k, err := OpenShared(t.Context(), noStore{}, r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := k.Signed(); n != 1 {
		t.Fatalf("%d appends are signed", n)
	}
	r.sign(t, signer)
	r.away = true
	if err := k.Refresh(t.Context()); err == nil {
		t.Error("it has compared what it cannot read")
	}
	r.away = false
	for range 2 {
		if err := k.Refresh(t.Context()); err != nil || k.Signed() != 2 {
			t.Errorf("%d appends are signed, %v", k.Signed(), err)
		}
	}
	if raw, _ := k.Newest(); string(raw) != string(r.notes[1].Text) {
		t.Errorf("the newest is\n%s", raw)
	}
}
