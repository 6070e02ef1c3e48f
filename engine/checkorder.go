package engine

import (
	"errors"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// group checks the appends of a record of the log against the global order, and its landmark.
func (c *checker) group(r *wal.Record) error {
	if r.First != c.nextLeaf {
		if err := c.problemf(tga.ID{}, "order: group %d begins with index %d, want %d", r.At.Group, r.First, c.nextLeaf); err != nil {
			return err
		}
		c.nextLeaf = r.First
	}
	if r.At.Landmark() {
		if r.First != c.landmark.first {
			if err := c.landmarkRow(); err != nil {
				return err
			}
		}
		c.landmark.first, c.landmark.at = r.First, r.At // if two landmarks have the same index, the later one has the row
	}
	return eachLeaf(r, func(l Leaf) error {
		c.Leaves++
		c.nextLeaf = l.Index + 1
		return errors.Join(c.ctx.Err(), c.leaf(l))
	})
}

// landmarkRow compares the row of the newest landmark with the log.
func (c *checker) landmarkRow() error {
	want := c.landmark
	if want.first == 0 {
		return nil
	}
	c.landmarks++
	row, err := c.v.row(keyspace.AppendGlobal(nil, want.first))
	if err != nil {
		return c.problem(tga.ID{}, err)
	}
	at, err := decodeLandmark(row)
	if err == nil && at != want.at {
		err = damaged("order: the landmark of index %d is group %d, want %d", want.first, at.Group, want.at.Group)
	}
	return c.problem(tga.ID{}, err)
}

// order checks that the check has seen every append of the view, that the appends together name
// every entry and note, and that there are no other landmarks.
func (c *checker) order(prefix uint64) error {
	if c.nextLeaf <= prefix {
		return c.problemf(tga.ID{}, "order: the last append is %d, %d was durable", c.nextLeaf-1, prefix)
	}
	if !c.unreadable && (c.leafEntries != c.Entries || c.leafNotes != c.Notes) {
		return c.problemf(tga.ID{}, "order: the appends name %d entries and %d notes, the store has %d and %d", c.leafEntries, c.leafNotes, c.Entries, c.Notes)
	}
	if err := c.landmarkRow(); err != nil {
		return err
	}
	lower, upper := keyspace.GlobalBounds()
	rows := 0
	if err := c.v.scanRows(lower, upper, func(_, _ []byte) error { rows++; return nil }); err != nil {
		return c.problem(tga.ID{}, err)
	}
	if rows != c.landmarks {
		return c.problemf(tga.ID{}, "order: %d landmarks, the log has %d", rows, c.landmarks)
	}
	return nil
}

// leaf compares a leaf with the entries and notes that it names, and its times with the times of
// earlier leaves.
func (c *checker) leaf(l Leaf) error {
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
	f, ok := c.folds.get(l.TraceID)
	if !ok {
		var err error
		if f, err = c.v.replay(l.TraceID); err != nil {
			if tga.CodeOf(err) == tga.StoreUnavailable {
				return err
			}
			// The damage is reported with the trace. Cache the failure, because a damaged block
			// takes long to read.
			c.folds.put(l.TraceID, fold{}, 1)
		} else {
			c.folds.put(l.TraceID, f, foldSize(f.Trace))
		}
	}
	if f.Trace == nil {
		c.newestTS = max(c.newestTS, l.NewestTS)
		return nil
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
		return c.problemf(l.TraceID, "order: leaf %d names %d entries from %d and %d notes from %d of trace %s, which are missing or different", l.Index, l.Entries, l.FirstSeq, l.Notes, l.FirstNote, l.TraceID)
	}
	return times(newest)
}
