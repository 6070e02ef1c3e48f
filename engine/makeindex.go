package engine

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// openIndex opens the index and takes it to the end of the log. One that is not of this log
// is made anew. A store that is open for reading gets a temporary one, unless its own has
// everything.
func (o *opening) openIndex(found found) (at position, err error) {
	fs, dir, readOnly := vfs.FS(o.files), o.path(indexName), false
	switch {
	case o.readOnly && found.indexed && found.index.at == found.tail.At:
		readOnly = true
	case o.readOnly:
		found.indexed = false
		if fs, dir, err = o.temporary(); err != nil {
			return at, err
		}
	case !found.indexed:
		if err := o.indexDir().remove(); err != nil {
			return at, err
		}
	}
	o.health.opening.Store(true)
	o.health.begun.Store(false)
	var p *pebble.DB
	err = o.health.awaited(func() (err error) {
		p, err = pebble.Open(dir, o.listener().options(&o.opts, fs, readOnly))
		return err
	})
	o.health.opening.Store(false)
	if err != nil {
		return at, tga.Errorf(tga.StoreUnavailable, "open %s: %w", dir, err)
	}
	o.index = newIndex(p, o.indexDir(), o.wal, &o.health, o.opts.keys())
	at = position{line: o.wal.Timeline(), at: found.tail.At}
	if !readOnly {
		from := position{}
		if found.indexed {
			from = found.index
		}
		if at, err = o.catchUp(p, from); err != nil {
			return at, err
		}
	}
	if !o.readOnly {
		o.filter = &keyFilter{index: o.index, log: o.log, limit: uint64(o.opts.KeyFilterBytes)}
		err := o.filter.watch(2 * at.keys)
		if unlike(err) && found.indexed {
			o.log.Warn("the index is not what it was, and is made anew", "error", err)
			found.indexed = false
			o.index = nil
			if err := errors.Join(o.health.guarded(p.Close), o.indexDir().remove()); err != nil {
				return at, err
			}
			return o.openIndex(found)
		}
		if err != nil {
			return at, err
		}
	}
	o.times.newest.Store(int64(found.tail.Times.Committed))
	o.times.newestTS.Store(int64(found.tail.Times.TS))
	o.order.init(max(found.tail.Next, 1) - 1)
	return at, nil
}

// temporary returns where the index of a store may be made that is not written to.
func (o *opening) temporary() (fs vfs.FS, dir string, err error) {
	if vfs.Root(o.opts.FS) != vfs.Default {
		return vfs.NewMem(), indexName, nil
	}
	if o.tempIndex, err = makeTempIndex(); err != nil {
		return nil, "", tga.Errorf(tga.StoreUnavailable, "make a temporary index of %s: %w", o.dir, err)
	}
	o.tempIndex.sweep(o.log)
	return o.opts.FS, filepath.Join(o.tempIndex.dir, indexName), nil
}

// catchUpBatch is of how many bytes of rows a batch is made when many records are indexed at once.
const catchUpBatch = 4 << 20

// catchUp indexes the log behind a position, to its end.
func (o *opening) catchUp(p *pebble.DB, from position) (position, error) {
	x := &indexer{b: p.NewBatch(), keys: from.keys, sum: from.sum}
	at := position{line: o.wal.Timeline()}
	var records int
	tail, err := o.wal.Scan(from.at, func(r *wal.Record) error {
		if err := r.Ops(x.op); err != nil {
			return err
		}
		records++
		at.at = r.At
		x.landmark(r.First, r.At)
		if len(x.rows.room) < catchUpBatch {
			return nil
		}
		if err := x.commit(at); err != nil {
			return err
		}
		return o.progress(r.At)
	})
	if err == nil {
		at.at = tail.At
		err = o.health.guarded(func() error { return x.commit(at) })
	}
	if err == nil {
		err = o.mode.remake.at(at.at)
	}
	if err != nil {
		return at, closing(x.b, err)
	}
	if records > 0 {
		o.log.Info("the index took over records of the log", "records", records, "group", tail.At.Group)
	}
	at.keys, at.sum = x.keys, x.sum
	return at, closeBatch(x.b)
}

// progress says how far an index is that is being made. An error ends the making of it.
func (o *opening) progress(at wal.Position) error {
	if now := time.Now(); now.Sub(o.said) >= progressTime {
		o.said = now
		o.log.Info("making the index", "segment", at.Segment, "group", at.Group)
	}
	return o.mode.remake.at(at)
}
