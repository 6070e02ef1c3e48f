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

// A store can be restored as it was at an earlier group of its log, see [RestoreAt], as long as
// each body that it had then is still there. The floor is the oldest such group: before a body
// leaves the disk that nobody needs any more, a group that is as new as the look at who needs it
// becomes the floor, durably. It is a row like any other, so a backup has the floor of its files.

// dropping decides which bodies leave the disk, and raises the floor before the first does.
type dropping struct {
	index   *index
	commits *committer
	then    *pebble.Snapshot // the rows when the first body was asked about
	group   uint64           // the newest of the log then: what is nobody's now was not needed after it
	raised  bool
}

// keeps reports whether a row names a body, then or now. What nobody named then and now is no
// part of the store at the floor, or at any later group.
func (d *dropping) keeps(key []byte, named func(placed) bool) (bool, error) {
	if d.then == nil {
		d.then = d.index.p.NewSnapshot()
		d.group = d.index.log.End().Group
	}
	then := d.index.at(d.then)
	for _, r := range []*reading{&then, &d.index.reading} {
		row, err := r.row(key)
		if err != nil {
			return false, err
		}
		if row == nil {
			continue
		}
		at, err := decodeRow(row)
		if err != nil || named(at) {
			return true, err
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

// end is called once, with the error of what the bodies were dropped for.
func (d *dropping) end(err error) error {
	if d.then == nil {
		return err
	}
	if e := d.then.Close(); err == nil && e != nil {
		return tga.Errorf(tga.StoreUnavailable, "close snapshot: %w", e)
	}
	return err
}

// Point is a moment in the life of a store: a group of its log, or a time. The zero Point is the
// end of the log.
type Point struct {
	Group uint64     // the newest group that is there
	Time  tga.Millis // or: every append that was committed then or earlier, and none after
}

// cut finds the end of a log that is to end early.
type cut struct {
	Point
	floor  uint64     // oldest group at which the log can end
	raised tga.Millis // when that was said
	found  wal.Tail
}

// see looks at a record of the whole log for the floor.
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

// of finds the end of the log at the point, of one that is whole to its end.
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

// RestoreAt is [Restore] of the store as it was at a point that the backup has. The store is
// checked whole before it gets its name. VALIDATION_ERROR within the RESTORE_FAILED: the point
// lies behind the end of the backup, or before its floor, the oldest group at which everything
// that the store had is still in the backup.
func RestoreAt(ctx context.Context, backup, dir string, at Point, opts Options) error {
	if err := restore(ctx, backup, dir, at, opts.withDefaults()); err != nil {
		return tga.Errorf(tga.RestoreFailed, "restore %s from %s: %w", dir, backup, err)
	}
	return nil
}
