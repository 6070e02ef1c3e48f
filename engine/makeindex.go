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

// openIndex opens the index and brings it up to the end of the log. If the index does not belong
// to this log, openIndex builds a new one. For a store that is open for reading it builds a
// temporary index, unless the index of the store is complete.
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
			o.log.Warn("the index is damaged and is rebuilt", "error", err)
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

// temporary returns a place for the index of a store that must not be written to.
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

// catchUpBatch is the size in bytes of the batches of rows with which catchUp indexes many records.
const catchUpBatch = 4 << 20

// catchUp indexes the log from the position after from to its end.
func (o *opening) catchUp(p *pebble.DB, from position) (position, error) {
	x := &indexer{b: p.NewBatch(), keys: from.keys, sum: from.sum}
	at := position{line: o.wal.Timeline()}
	// A commit waits for flushes while the memtables are full.
	commit := func() error { return o.health.awaited(func() error { return x.commit(at) }) }
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
		if err := commit(); err != nil {
			return err
		}
		return o.progress(r.At)
	})
	if err == nil {
		at.at = tail.At
		err = commit()
	}
	if err == nil {
		err = o.mode.remake.at(at.at)
	}
	if sick := o.health.sick(); sick != nil {
		return at, sick // a commit that does not return keeps the batch
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

// progress reports how far the building of an index has come. An error ends the building.
func (o *opening) progress(at wal.Position) error {
	if now := time.Now(); now.Sub(o.said) >= progressTime {
		o.said = now
		o.log.Info("making the index", "segment", at.Segment, "group", at.Group)
	}
	return o.mode.remake.at(at)
}
