package engine

import (
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// order checks that the leaves have no hole up to the durable prefix, that each names
// what is there, and that together they name every entry and note.
func (c *checker) order(prefix uint64) error {
	lower, upper := keyspace.GlobalBounds()
	next := uint64(1)
	traces := lru[tga.ID, fold]{}
	traces.init(1024, 64<<20)
	if err := c.scan(lower, upper, func(key, value []byte) error {
		c.Leaves++
		index, err := keyspace.ParseGlobal(key)
		if err != nil {
			return nil // reported as a key
		}
		if index != next && next <= prefix {
			if err := c.problemf(tga.ID{}, "order: leaf %d follows %d", index, next-1); err != nil {
				return err
			}
		}
		l, err := decodeLeaf(index, value)
		if err != nil {
			next = index + 1
			return c.problem(tga.ID{}, err)
		}
		if index != next {
			c.newestTS = max(c.newestTS, l.NewestTS) // of the appends that are missing
		}
		next = index + 1
		return errors.Join(c.ctx.Err(), c.leaf(l, &traces))
	}); err != nil {
		return err
	}
	if next <= prefix {
		return c.problemf(tga.ID{}, "order: the last leaf is %d, %d was durable", next-1, prefix)
	}
	if !c.unreadable && (c.leafEntries != c.Entries || c.leafNotes != c.Notes) {
		return c.problemf(tga.ID{}, "order: the leaves name %d entries and %d notes, the store has %d and %d", c.leafEntries, c.leafNotes, c.Entries, c.Notes)
	}
	return nil
}

// leaf compares a leaf with what it names, and its times with those of the leaves
// before it.
func (c *checker) leaf(l Leaf, traces *lru[tga.ID, fold]) error {
	c.leafEntries += int(l.Entries)
	c.leafNotes += int(l.Notes)
	times := func(newest tga.Millis) error {
		c.newestTS = max(c.newestTS, newest)
		if l.NewestTS != c.newestTS || l.Committed < c.committed {
			return c.problemf(l.TraceID, "order: leaf %d has newest ts %s and commit time %s, want %s and at least %s", l.Index, l.NewestTS, l.Committed, c.newestTS, c.committed)
		}
		c.committed = l.Committed
		return nil
	}
	if l.Entries == 0 && l.Notes == 0 {
		return times(0)
	}
	f, ok := traces.get(l.TraceID)
	if !ok {
		var err error
		if f, err = c.db.replay(c.v, l.TraceID); err != nil {
			if tga.CodeOf(err) == tga.StoreUnavailable {
				return err
			}
			c.newestTS = max(c.newestTS, l.NewestTS)
			return nil // reported as a trace
		}
		traces.put(l.TraceID, f, foldSize(f.Trace))
	}
	want := Leaf{FirstSeq: l.FirstSeq, FirstNote: l.FirstNote}
	var newest tga.Millis
	for _, e := range f.Entries {
		if e.Seq >= l.FirstSeq && e.Seq < l.FirstSeq+uint64(l.Entries) {
			want.Entries++
			want.HeadDigest = e.Digest
			newest = max(newest, e.TS)
		}
	}
	for _, n := range f.Notes {
		switch {
		case n.Number >= l.FirstNote && n.Number < l.FirstNote+uint32(l.Notes):
			want.Notes++
			want.HeadDigest, want.NoteDigest = n.HeadDigest, n.Digest
			newest = max(newest, n.TS)
		case l.Notes == 0 && n.Digest == l.NoteDigest:
			want.NoteDigest = n.Digest
		}
	}
	if want.Entries != l.Entries || want.Notes != l.Notes || want.HeadDigest != l.HeadDigest || want.NoteDigest != l.NoteDigest ||
		(l.FirstSeq == 0) != (l.Entries == 0) || (l.FirstNote == 0) != (l.Notes == 0) {
		return c.problemf(l.TraceID, "order: leaf %d names %d entries from %d and %d notes from %d of trace %s, which are not there or others", l.Index, l.Entries, l.FirstSeq, l.Notes, l.FirstNote, l.TraceID)
	}
	return times(newest)
}
