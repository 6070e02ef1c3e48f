package engine

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
	"github.com/tgad/tgad/wal/chain"
)

// indexer puts the rows of the log's records into the index. Each batch ends with the
// position row. A flush of Pebble takes a prefix of its batches, so after a crash the index
// has the rows of a prefix of the log, and the position row says which prefix.
type indexer struct {
	b    *pebble.Batch
	rows gathered // of the records since the last batch
	keys uint64   // number of ledger keys in the index
	sum  uint64   // sum of these keys, see [keySum]
	row  []byte
	key  [keyspace.MaxLen]byte
}

// op gathers the row of an operation.
func (x *indexer) op(op *wal.Op) error {
	switch op.Kind {
	case wal.Put, wal.Insert:
		if op.Kind == wal.Insert {
			x.keys++
			x.sum += keySum(op.Key)
		}
		x.row = appendRow(x.row[:0], op)
		x.rows.put(op.Key, x.row)
	case wal.Delete:
		x.rows.put(op.Key, nil)
	}
	return nil // a [wal.Order] has no row: landmarks find the place of an append in the global order
}

// landmark gathers the row that leads to the record at at and to the records after it. The key
// of the row is the index of the record's first append, or of the next append if the record has
// none. Most records have no such row.
func (x *indexer) landmark(first uint64, at wal.Position) {
	if at.Landmark() {
		x.row = appendPlace(append(x.row[:0], rowValue, tga.StoreValueVersion), at)
		x.rows.put(keyspace.AppendGlobal(x.key[:0], first), x.row)
	}
}

// commit ends the batch with the position row and makes its rows visible.
func (x *indexer) commit(p position) error {
	if err := x.rows.into(x.b); err != nil {
		return err
	}
	p.keys, p.sum = x.keys, x.sum
	x.row = p.appendValue(append(x.row[:0], rowValue))
	if err := x.b.Set(keyspace.AppendMeta(x.key[:0], metaPosition), x.row, nil); err != nil {
		return err
	}
	if err := x.b.Commit(pebble.NoSync); err != nil {
		return err
	}
	x.b.Reset()
	return nil
}

// index is the Pebble database of an open store.
type index struct {
	reading // reads the current rows
	p       *pebble.DB
	dir     indexDir
}

func newIndex(p *pebble.DB, dir indexDir, log *wal.Log, health *health, keys chain.Keys) *index {
	x := &index{reading: reading{from: p, log: log, health: health, archive: newArchive(keys), keys: keys}, p: p, dir: dir}
	return x
}

// at returns a reading of another view of the same index. A caller that reads bodies through it
// must hold a pin of the log that it took before the view was made, as [view] does.
func (x *index) at(from reader) reading {
	r := x.reading
	r.from = from
	return r
}

// reading reads an index: its rows, and the bodies in the log that the rows name. It has no
// locks of its own. Everything in the index is durable. Only the holder of the lock of a trace or
// of a key knows whether later changes to it are queued.
type reading struct {
	from    reader
	log     *wal.Log   // has the bodies
	health  *health    // guards the calls of Pebble
	archive *archive   // caches parts of archive segments; these do not change, so every view can share it
	keys    chain.Keys // open sealed values; nil if there is no ring
}

// reader is a source of reads: the index, or a view of it.
type reader interface {
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// kv is a key and a value, copied out.
type kv struct{ key, value []byte }

// get returns the value of a key, nil if there is none. Most keys are looked up before they
// exist. An iterator asks the filters of the last level, where nearly all keys lie; Pebble's
// own Get does not.
func (r *reading) get(key []byte) ([]byte, error) {
	defer r.log.Pin()()
	row, err := r.row(key)
	if err != nil || row == nil {
		return nil, err
	}
	return r.content(key, row)
}

// row returns the row of a key, nil if there is none.
func (r *reading) row(key []byte) (row []byte, err error) {
	err = r.health.guarded(func() error {
		it, err := r.from.NewIter(&filtered)
		if err != nil {
			return err
		}
		if it.SeekPrefixGE(key) && string(it.Key()) == string(key) {
			v, verr := it.ValueAndErr()
			row, err = append(make([]byte, 0, len(v)), v...), verr
		}
		return errors.Join(err, it.Error(), it.Close())
	})
	return row, readError(err)
}

// filtered asks the filters of every level; Pebble copies it.
var filtered = pebble.IterOptions{UseL6Filters: true}

// scanRows calls f for each row of a range in order. The arguments of f are valid only until f
// returns. f must not call code of the store's user.
func (r *reading) scanRows(lower, upper []byte, f func(key, row []byte) error) error {
	return readError(r.health.guarded(func() error {
		it, err := r.from.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return err
		}
		for ok := it.First(); ok && err == nil; ok = it.Next() {
			v, verr := it.ValueAndErr()
			if err = verr; err == nil {
				err = f(it.Key(), v)
			}
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
		return errors.Join(it.Error(), it.Close())
	}))
}

// scan is scanRows with the values that the rows name or hold.
func (r *reading) scan(lower, upper []byte, f func(key, value []byte) error) error {
	defer r.log.Pin()()
	return r.scanRows(lower, upper, func(key, row []byte) error {
		value, err := r.content(key, row)
		if err != nil {
			return err
		}
		return f(key, value)
	})
}

// page returns copies of the first limit keys of a range and their values. If limit is 0, it
// returns all of them.
func (r *reading) page(lower, upper []byte, limit int) ([]kv, error) {
	var out []kv
	err := r.scan(lower, upper, func(key, value []byte) error {
		out = append(out, kv{slices.Clone(key), slices.Clone(value)})
		if len(out) == limit {
			return errPageFull
		}
		return nil
	})
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return out, err
}

// first returns a copy of the first key of a range, nil if there is none.
func (r *reading) first(lower, upper []byte) (key []byte, err error) {
	err = r.scanRows(lower, upper, func(k, _ []byte) error {
		key = slices.Clone(k)
		return errPageFull
	})
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return key, err
}
