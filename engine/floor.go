package engine

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// A store can be restored as it was at an earlier group of its log, see [RestoreAt], if each body
// that it had at that group still exists. The floor is the oldest such group. Before an unneeded
// body is removed from the disk, the floor rises, durably, to the newest group of the log at that
// time. The floor is an ordinary row, so a backup has the floor that fits its files.

// dropping decides which bodies are removed from the disk, and raises the floor before the first one.
type dropping struct {
	index   *index
	commits *committer
	then    *pebble.Snapshot // the rows when the first body was asked about
	group   uint64           // the newest group of the log then: an unneeded body was not needed after it
	raised  bool
}

// keeps reports whether a row names a body, in the snapshot or now. A body that no row names in
// either is not part of the store at the floor or at any later group.
func (d *dropping) keeps(key []byte, named func(placed) bool) (bool, error) {
	if d.then == nil {
		d.then = d.index.p.NewSnapshot()
		d.group = d.index.log.End().Group
	}
	then := d.index.at(d.then)
	for _, r := range []*reading{&then, &d.index.reading} {
		if keep, err := r.names(key, named); keep || err != nil {
			return keep, err
		}
	}
	return false, d.raise()
}

func (d *dropping) raise() error {
	if d.raised {
		return nil
	}
	d.raised = true
	floor, err := d.index.metaNumber(metaFloor)
	if err != nil || floor >= d.group {
		return err
	}
	w := d.commits.newWriter()
	w.setFloor(d.group)
	return d.commits.apply(w)
}

func (w *writer) setFloor(group uint64) {
	w.set(keyspace.AppendMeta(nil, metaFloor), binary.BigEndian.AppendUint64(nil, group))
}

// end closes the snapshot. It is called once, with the error of the rewrite or the sweep.
func (d *dropping) end(err error) error {
	if d.then == nil {
		return err
	}
	if e := d.then.Close(); err == nil && e != nil {
		return tga.Errorf(tga.StoreUnavailable, "close snapshot: %w", e)
	}
	return err
}

// Point is a point in the history of a store: a group of its log, or a time. The zero Point is the
// end of the log.
type Point struct {
	Group uint64     // the newest group of the restored store
	Time  tga.Millis // or: keep every append that was committed at this time or earlier, and none after
}

// cut finds the end of a log that must end at a [Point].
type cut struct {
	Point
	floor  uint64     // oldest group at which the log can end
	raised tga.Millis // when the floor was raised
	found  wal.Tail
}

// see finds the floor. It is called with each record of the whole log.
func (c *cut) see(r *wal.Record) error {
	if c == nil {
		return nil
	}
	key := keyspace.AppendMeta(nil, metaFloor)
	return r.Ops(func(op *wal.Op) (err error) {
		if op.Kind == wal.Put && string(op.Key) == string(key) {
			c.floor, err = number(metaFloor, op.Value)
			c.raised = r.Times.Committed
		}
		return err
	})
}

var errCut = errors.New("the log ends here")

// of finds the end of the log at the point. The log must be complete up to end.
func (c *cut) of(log *wal.Log, end wal.Tail) error {
	if c.Group > end.At.Group {
		return tga.Errorf(tga.ValidationError, "group %d: the log ends with group %d", c.Group, end.At.Group)
	}
	tail, err := log.Scan(wal.Position{}, func(r *wal.Record) error {
		if c.Group > 0 && r.At.Group > c.Group || c.Group == 0 && r.Times.Committed > c.Time {
			return errCut
		}
		return nil
	})
	if err != nil && !errors.Is(err, errCut) {
		return err
	}
	switch {
	case c.Group == 0 && tail.Times.Committed == 0:
		return tga.Errorf(tga.ValidationError, "%s: nothing was committed by then", c.Time)
	case tail.At.Group < c.floor:
		return tga.Errorf(tga.ValidationError, "group %d: what was archived or replaced since then is no longer there. The earliest group is %d, of %s", tail.At.Group, c.floor, c.raised)
	}
	c.found = tail
	return nil
}

// RestoreAt is [Restore] of the store as it was at a point within the backup. The store is checked
// completely before it gets its name. RESTORE_FAILED wraps VALIDATION_ERROR if the point lies after
// the end of the backup, or before its floor, which is the oldest group whose bodies the backup
// still has.
func RestoreAt(ctx context.Context, backup, dir string, at Point, opts Options) error {
	if err := restore(ctx, backup, dir, at, opts.withDefaults()); err != nil {
		return tga.Errorf(tga.RestoreFailed, "restore %s from %s: %w", dir, backup, err)
	}
	return nil
}
