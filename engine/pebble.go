package engine

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/schemas/tga"
)

// reader is what reads are made from: the store, a read view, or a store opened
// read-only.
type reader interface {
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// kv is a key and a value, copied out of Pebble.
type kv struct{ key, value []byte }

// get returns the value of a key, nil where there is none. Most keys are looked for
// before they exist, and Pebble's own Get does not ask the filters of the last level,
// where nearly all keys lie; an iterator does.
func (db *DB) get(r reader, key []byte) (value []byte, err error) {
	err = db.guarded(func() error {
		it, err := r.NewIter(&filtered)
		if err != nil {
			return err
		}
		if it.SeekPrefixGE(key) && string(it.Key()) == string(key) {
			v, verr := it.ValueAndErr()
			value, err = append(make([]byte, 0, len(v)), v...), verr
		}
		return errors.Join(err, it.Error(), it.Close())
	})
	return value, readError(err)
}

// filtered asks the filters of every level; Pebble copies it.
var filtered = pebble.IterOptions{UseL6Filters: true}

// scan calls f for each key of a range in order. What f is given is valid until it
// returns; f must not call the store's user.
func (db *DB) scan(r reader, lower, upper []byte, f func(key, value []byte) error) error {
	return readError(db.guarded(func() error {
		it, err := r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
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

// page returns copies of the first limit keys of a range, all where limit is 0.
func (db *DB) page(r reader, lower, upper []byte, limit int) ([]kv, error) {
	var out []kv
	err := db.scan(r, lower, upper, func(key, value []byte) error {
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

var errPageFull = errors.New("page full")

// readError gives an error of Pebble its code.
func readError(err error) error {
	switch {
	case err == nil || tga.CodeOf(err) != "" || errors.Is(err, errPageFull):
		return err
	case pebble.IsCorruptionError(err):
		out := tga.Errorf(tga.StateChecksumMismatch, "read: %w", err)
		out.Where = "stored"
		return out
	}
	return tga.Errorf(tga.StoreUnavailable, "read: %w", err)
}

// closeBatch closes a batch that came to nothing.
func closeBatch(b *pebble.Batch) error {
	if err := b.Close(); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "close batch: %w", err)
	}
	return nil
}

// closeView closes a view and keeps the earlier error.
func closeView(v view, err error) error {
	if e := v.Close(); err == nil && e != nil {
		return tga.Errorf(tga.StoreUnavailable, "close view: %w", e)
	}
	return err
}

// upperOf returns the upper of two bounds.
func upperOf(_, upper []byte) []byte { return upper }
