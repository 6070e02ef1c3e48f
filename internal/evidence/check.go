package evidence

import (
	"bytes"
	"context"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/tgad/tgad/internal/evidence/checkpoint"
	"github.com/tgad/tgad/internal/evidence/tree"
	"github.com/tgad/tgad/schemas/tga"
)

// CheckTables reads the whole order of a store, makes its tree, and compares that with the evidence in the tables: each
// note must be signed by the kept key or by one that it was handed over to, each checkpoint must have the head of the tree
// at its size, and each tile must have the hashes of the tree. It calls found with each disagreement that no person has
// accepted. An error means that the check could not continue.
func CheckTables(ctx context.Context, t Tables, found func(error)) error {
	c := &tablesCheck{t: t, found: found, at: map[int64][]signedHead{}}
	if err := c.read(ctx); err != nil || c.notes == 0 {
		return err
	}
	if err := c.walk(ctx); err != nil {
		return err
	}
	for size, list := range c.at {
		for _, h := range list {
			c.wrong("checkpoint %d in tgad.signed_notes was signed of %d appends with head %v, and the order has %d: the store was rolled back", h.number, size, h.head, c.tree.Size())
		}
	}
	return nil
}

type tablesCheck struct {
	t     Tables
	found func(error)
	notes int64
	at    map[int64][]signedHead // checkpoints by their size, until the tree has that size
	most  int64                  // appends that the largest checkpoint covers
	tree  *tree.Tiled
	whole []int64 // tiles of each level that are kept without a gap
}

type signedHead struct {
	number int64
	head   tlog.Hash
}

func (c *tablesCheck) wrong(format string, args ...any) {
	c.found(tga.Errorf(tga.StateChecksumMismatch, "evidence: "+format, args...))
}

// notesPage is how many notes are read at once.
const notesPage = 1000

// read reads the notes, and checks who signed them.
func (c *tablesCheck) read(ctx context.Context) error {
	st, err := c.t.Standing(ctx)
	if err != nil {
		return err
	}
	var keys *checkpoint.Keys
	var accepted []checkpoint.Acceptance
	var numbers []int64 // of the notes in accepted
	heads := map[int64]checkpoint.Checkpoint{}
	for from := int64(1); ; {
		list, err := c.t.Notes(ctx, from, notesPage)
		if err != nil {
			return err
		}
		for _, n := range list {
			if c.notes++; n.Number != c.notes {
				c.wrong("note %d in tgad.signed_notes follows %d", n.Number, c.notes-1)
				c.notes = n.Number
			}
			if keys == nil {
				if keys = c.trust(st); keys == nil {
					return nil
				}
			}
			var a checkpoint.Acceptance
			var p checkpoint.Checkpoint
			switch {
			case checkpoint.IsHandOver(n.Text):
				_, err = keys.Follow(n.Text)
			case checkpoint.IsAcceptance(n.Text):
				if a, err = keys.OpenAcceptance(n.Text); err == nil {
					accepted, numbers = append(accepted, a), append(numbers, n.Number)
				}
			default:
				if p, _, err = keys.Open(n.Text); err == nil {
					heads[n.Number] = p
				}
			}
			if err != nil {
				c.wrong("note %d in tgad.signed_notes: %v", n.Number, err)
			}
			if kindOf(n.Text) != n.Kind {
				c.wrong("note %d in tgad.signed_notes is no note of kind %d", n.Number, n.Kind)
			}
		}
		if len(list) < notesPage {
			break
		}
		from = list[len(list)-1].Number + 1
	}
	for number, p := range heads {
		known := false
		for i, a := range accepted {
			known = known || a.Seen.Size == p.Size && a.Seen.Head == p.Head || number < numbers[i] && p.Size > a.Size
		}
		if !known {
			c.at[p.Size] = append(c.at[p.Size], signedHead{number, p.Head})
			c.most = max(c.most, p.Size)
		}
	}
	return nil
}

// trust returns the trust in the kept key; nil if what is kept is no key.
func (c *tablesCheck) trust(st Standing) *checkpoint.Keys {
	v, err := note.NewVerifier(st.Key)
	if err == nil {
		origin := v.Name()
		if p, err := checkpoint.Unverified(st.Newest.Text); err == nil {
			origin = p.Origin
		}
		var keys *checkpoint.Keys
		if keys, err = checkpoint.TrustKeys(origin, st.Key); err == nil {
			return keys
		}
	}
	c.wrong("notes are kept, and no public key that signed them: %v", err)
	return nil
}

// walk makes the tree, and compares heads and tiles as it grows.
func (c *tablesCheck) walk(ctx context.Context) (err error) {
	if c.whole, err = c.t.Whole(ctx); err != nil {
		return err
	}
	c.tree = tree.NewTiled(nil)
	c.heads()
	for {
		page, err := c.t.Leaves(ctx, uint64(c.tree.Size()), leavesPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		for _, l := range page {
			leaf := tree.Leaf(l)
			if err := c.tree.Append(&leaf); err != nil {
				return err
			}
			c.heads()
		}
		if err := c.tiles(ctx); err != nil {
			return err
		}
	}
}

// heads compares the tree with the checkpoints of its current size.
func (c *tablesCheck) heads() {
	size := c.tree.Size()
	list := c.at[size]
	if len(list) == 0 {
		return
	}
	delete(c.at, size)
	head, err := c.tree.Head(size)
	for _, h := range list {
		if err != nil || head != h.head {
			c.wrong("checkpoint %d in tgad.signed_notes says that the first %d appends have head %v, and they have %v: what happened was rewritten (%v)", h.number, size, h.head, head, err)
		}
	}
}

// tiles compares the kept tiles with those that have become full.
func (c *tablesCheck) tiles(ctx context.Context) error {
	fresh := c.tree.Fresh()
	for _, f := range fresh {
		got, err := c.t.Tiles(ctx, f.Level, f.Number, 1)
		if err != nil {
			return err
		}
		switch {
		case len(got) == 0 && (f.Number < c.whole[f.Level] || (f.Number+1)<<(tree.TileHeight*(f.Level+1)) <= c.most):
			c.wrong("tile %d of level %d is not in tgad.tiles any more", f.Number, f.Level)
		case len(got) == 1 && !bytes.Equal(got[0], f.Hashes):
			c.wrong("tile %d of level %d in tgad.tiles has other hashes than its appends", f.Number, f.Level)
		}
	}
	c.tree.Kept(len(fresh))
	return nil
}
