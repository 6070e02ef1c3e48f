package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// Rebuilt says what [RebuildIndex] did.
type Rebuilt struct {
	Records uint64 // records of the log that were read: one for each committed group of appends
	Appends uint64 // appends in these records
	Rows    uint64 // rows of the new index, counted by reading its tables
	Elapsed time.Duration
}

// Rebuilding has the progress of [RebuildIndex]. It may be read while the index is built.
type Rebuilding struct{ records, of atomic.Uint64 }

// Progress returns how many records are indexed, and how many the log has. Both are 0 until the
// log was inspected.
func (r *Rebuilding) Progress() (records, of uint64) { return r.records.Load(), r.of.Load() }

// remake is a request to build a new index, with its context and its progress.
type remake struct {
	ctx context.Context
	far *Rebuilding
}

// RebuildIndex removes the index of a store that no process has open, builds a new one from the
// log, and reads it back. It writes to the log only what every open writes. far may be nil.
//
// STATE_CHECKSUM_MISMATCH: acknowledged records are missing from the log. Then the index stays,
// because it may be the proof of that. NOT_FOUND: there is no store. STATE_LOCK_ACQUIRE_FAILED: a
// process has the store open. The end of ctx ends the work; the next open continues after the
// rows that were flushed.
func RebuildIndex(ctx context.Context, dir string, opts Options, far *Rebuilding) (done Rebuilt, err error) {
	began := time.Now()
	opts = opts.withDefaults()
	p, _, err := placeOf(opts.FS, dir)
	if err != nil {
		return done, err
	}
	if p != placeStore {
		return done, tga.Errorf(tga.NotFound, "rebuild the index of %s: there is no store", dir)
	}
	if far == nil {
		far = &Rebuilding{}
	}
	db, err := open(dir, opts, openMode{remake: &remake{ctx, far}})
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.health.awaited(db.index.p.Flush); err != nil {
		return done, tga.Errorf(tga.StoreUnavailable, "rebuild the index of %s: %w", dir, err)
	}
	_, done.Records = far.Progress()
	done.Appends = db.order.durable()
	err = db.index.scanRows([]byte{0}, nil, func(_, _ []byte) error {
		if done.Rows++; ctx.Err() != nil {
			return errPageFull
		}
		return nil
	})
	if errors.Is(err, errPageFull) {
		err = ctx.Err()
	}
	done.Elapsed = time.Since(began)
	return done, err
}

// again makes an open build a new index, whatever index it has found.
func (r *remake) again(f *found) error {
	if r == nil {
		return nil
	}
	if f.doubt != nil {
		return tga.Errorf(tga.StateChecksumMismatch, "the index stays as it is: %w", error(f.doubt))
	}
	f.indexed = false
	r.far.of.Store(f.tail.At.Group)
	return r.ctx.Err()
}

// at records the newest record that the index has.
func (r *remake) at(p wal.Position) error {
	if r == nil {
		return nil
	}
	r.far.records.Store(p.Group)
	return r.ctx.Err()
}
