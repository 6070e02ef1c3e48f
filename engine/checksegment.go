package engine

import (
	"bytes"
	"errors"

	"github.com/tgad/tgad/internal/segment"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// segments verifies each segment and compares its traces with their tombstones.
func (c *checker) segments() error {
	lower, upper := keyspace.SegmentBounds()
	stones := 0
	if err := c.scan(lower, upper, func(key, value []byte) error {
		c.Segments++
		n, err := keyspace.ParseSegment(key)
		if err != nil {
			return nil // reported as a key
		}
		return errors.Join(c.ctx.Err(), c.segment(n, value, &stones))
	}); err != nil {
		return err
	}
	lower, upper = keyspace.TombstoneBounds()
	return c.v.scanRows(lower, upper, func(key, _ []byte) error {
		if stones--; stones < 0 {
			return c.problemf(tga.ID(key[1:17]), "tombstone of trace %s, which is in no segment", tga.ID(key[1:17]))
		}
		return nil
	})
}

// segment reads a segment once, without the caches of single reads. It also compares the traces
// that come before a damaged part.
func (c *checker) segment(n uint64, value []byte, stones *int) error {
	var stop error
	c.tried.settle()
	_, err := segment.Walk(bytes.NewReader(value), int64(len(value)), c.v.keys, func(t *segment.Trace, folded *chain.Trace) error {
		stop = c.archivedTrace(n, t, folded, stones)
		return stop
	})
	if stop != nil {
		return stop
	}
	if err != nil {
		c.unreadable = true
	}
	return c.problem(tga.ID{}, err)
}

func (c *checker) archivedTrace(n uint64, t *segment.Trace, folded *chain.Trace, stones *int) error {
	missing := c.tried.missing > c.tried.counted
	defer c.tried.settle() // the next trace is counted from here
	raw, err := c.v.get(keyspace.AppendTombstone(nil, t.ID))
	if err := c.problem(t.ID, err); err != nil {
		return err
	}
	stone, err := decodeTombstone(raw)
	last := t.Entries[len(t.Entries)-1]
	if want := (tombstone{First: 1, Last: last.Seq, Head: last.Digest, Segment: n}); err != nil || stone != want {
		if err := c.problemf(t.ID, "trace %s in segment %d: its tombstone disagrees", t.ID, n); err != nil {
			return err
		}
	}
	*stones++
	c.Archived++
	own, err := c.v.row(keyspace.AppendEntry(nil, t.ID, 1))
	if err != nil || own != nil {
		return err // its entries are not removed yet: traceOf has compared it
	}
	c.count(t)
	if missing {
		c.Unread++
	}
	return c.record(t, folded)
}
