package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// shrinkAt is the part of a segment's file that must be bodies nobody needs before the segment
// is written anew without them: one byte in so many.
const shrinkAt = 4

// candidate is a segment of the log that can be written anew.
type candidate struct {
	wal.Segment
	wal.Stored
	dead int64 // bytes of its bodies that no row names
}

func (c candidate) wasteful() bool { return c.dead > 0 && c.dead >= c.File/shrinkAt }

// candidates counts, for every segment that nothing is written to any more, the bodies that
// nobody needs. The count is not kept anywhere: it is what the files hold less what the rows
// name, so it is the same after a reopen and after a rebuild, and an attachment that was
// replaced counts as much as a trace that was archived. It costs one pass over the rows that can
// name a body, which is less than the archiving that it follows.
func (db *DB) candidates(ctx context.Context, pace wal.Pace) ([]candidate, error) {
	full := db.wal.Full() // before the rows: none of them can name a later body of these
	live, err := db.index.liveBytes(ctx, pace)
	if err != nil {
		return nil, err
	}
	list := make([]candidate, 0, len(full))
	for _, seg := range full {
		stored, err := db.wal.Stored(ctx, seg.Number, pace)
		if tga.CodeOf(err) == tga.StateChecksumMismatch {
			db.log.Error("a segment of the log cannot be read, and is not made smaller", "segment", seg.Number, "error", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, candidate{seg, stored, stored.Bodies - live[seg.Number]})
	}
	return list, nil
}

// valueKinds are the kinds of keys, in order, of which a store has the most and whose rows never
// name a body.
var valueKinds = []keyspace.Kind{keyspace.Ledger, keyspace.Tombstone}

// liveBytes adds up the bodies that rows name, by the segment that they lie in.
func (r *reading) liveBytes(ctx context.Context, pace wal.Pace) (map[uint64]int64, error) {
	live := map[uint64]int64{}
	from := []byte{0}
	for i := 0; i <= len(valueKinds); i++ {
		var to, next []byte
		if i < len(valueKinds) {
			to, next = keyspace.Bounds(valueKinds[i])
		}
		err := r.scanRows(from, to, func(_, row []byte) error {
			at, err := decodeRow(row)
			if err == nil && at.kind == rowBody {
				live[at.ref.Segment] += int64(at.ref.Length)
			}
			if err == nil && pace != nil {
				err = pace(ctx)
			}
			return cmp.Or(err, ctx.Err())
		})
		if err != nil {
			return nil, err
		}
		from = next
	}
	return live, nil
}

// wasteful lists the segments of which much is nobody's, the one with the most first.
func (db *DB) wasteful(ctx context.Context, pace wal.Pace) ([]candidate, error) {
	list, err := db.candidates(ctx, pace)
	list = slices.DeleteFunc(list, func(c candidate) bool { return !c.wasteful() })
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.dead, a.dead) })
	return list, err
}

// shrink gives back the room of bodies that nobody needs any more. The segment that is written
// to is left for a later time.
func (db *DB) shrink(ctx context.Context) error {
	list, err := db.wasteful(ctx, nil)
	for i := 0; i < len(list) && err == nil; i++ {
		err = db.rewrite(ctx, list[i].Number, nil)
	}
	return err
}

// rewrite makes a segment of the log anew with the bodies that the index still names. The floor
// rises to the newest group where one is left out, see [dropping].
func (db *DB) rewrite(ctx context.Context, n uint64, pace wal.Pace) error {
	d := dropping{db: db}
	err := db.rewriteWith(ctx, n, false, func(op *wal.Op) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err // the store may be gone
		}
		return d.keeps(op.Key, func(at placed) bool { return at.names(op) })
	}, pace)
	return d.end(err)
}

// compress makes a raw segment anew with every body that it has. It asks no row, and the floor
// stays.
func (db *DB) compress(ctx context.Context, n uint64, pace wal.Pace) error {
	return db.rewriteWith(ctx, n, true, func(*wal.Op) (bool, error) { return true, nil }, pace)
}

// rewriteWith rewrites one segment at a time, only where it is raw if raw is true.
func (db *DB) rewriteWith(ctx context.Context, n uint64, raw bool, live func(*wal.Op) (bool, error), pace wal.Pace) error {
	// Who is in the way may be the rewriter, which rests only while nobody waits.
	db.rewrites.waiting.Add(1)
	select {
	case db.rewriting <- struct{}{}:
		db.rewrites.waiting.Add(-1)
		defer func() { <-db.rewriting }()
	case <-ctx.Done():
		db.rewrites.waiting.Add(-1)
		return ctx.Err()
	}
	if raw && !slices.ContainsFunc(db.wal.Full(), func(s wal.Segment) bool { return s.Number == n && s.Generation == 0 }) {
		return nil // somebody was here before
	}
	out, err := db.wal.Rewrite(ctx, n, live, pace)
	if tga.CodeOf(err) == tga.StateChecksumMismatch {
		// Damage is not written away: a check tells what is damaged.
		db.log.Error("a segment of the log is not made smaller", "segment", n, "error", err)
		db.rewrites.damaged.Store(n, true)
		return nil
	}
	if err == nil {
		db.rewrites.count(out)
		db.log.Info("a segment of the log was made smaller", "segment", n, "before", out.Before, "after", out.After)
	}
	return err
}

const (
	// mostIdle is how much room of a segment that a crash ended early is left as it is.
	mostIdle = 1 << 20
	// mostIdleInAll is how much such room may wait for the rewriter, so that a process which
	// is killed again and again before the rewriter comes to it does not fill the disk.
	mostIdleInAll = 128 << 20
)

// mayWait reports whether so much idle room is left to a rewriter of that share.
func mayWait(share int, idle int64) bool { return share >= 0 && idle <= mostIdleInAll }

// afterCrash gives back what a crash left: the rest of the segment that was written to, and
// files of bodies that nothing names. The rest of the segment is the rewriter's to give back,
// for the store opens sooner without it; here it is given back where there is no rewriter, or
// where too much of it waits. A disk that has no room for that keeps it.
func (db *DB) afterCrash(ctx context.Context, segment uint64) error {
	var idle int64
	for _, seg := range db.wal.Full() {
		idle += seg.Idle
		if seg.Number != segment || seg.Idle <= mostIdle || mayWait(db.opts.RewriteShare, idle) {
			continue
		}
		if err := db.roomToRewrite(seg.Records); err != nil {
			db.log.Warn("the rest of the segment that a crash ended stays", "segment", segment, "bytes", seg.Idle, "error", err)
			continue
		}
		if err := db.rewrite(ctx, segment, nil); err != nil {
			return err
		}
	}
	return db.sweep(ctx)
}
