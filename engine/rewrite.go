package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// shrinkAt is the part of a segment's file that must be bodies nobody needs before the segment
// is written anew without them: one byte in so many.
const shrinkAt = 4

// rewriting makes full segments of the log smaller: it leaves out what nobody needs, or compresses
// what is there.
//
// One segment at a time is written anew: who does it has the turn. Appends go on meanwhile, for
// nothing is written to a full segment any more, and the log keeps the old file for readers that
// hold a pin. What becomes nobody's while a segment is written anew may stay in it until the next
// time.
type rewriting struct {
	*rewrites
	log     *wal.Log
	index   *index
	commits *committer // makes a new floor durable
	space   *space
	logger  *slog.Logger
	share   int           // of the processors, in percent; negative: nothing is done in the background
	turn    chan struct{} // has one while a segment is written anew
}

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
func (w *rewriting) candidates(ctx context.Context, pace wal.Pace) ([]candidate, error) {
	full := w.log.Full() // before the rows: none of them can name a later body of these
	live, err := w.index.liveBytes(ctx, pace)
	if err != nil {
		return nil, err
	}
	list := make([]candidate, 0, len(full))
	for _, seg := range full {
		stored, err := w.log.Stored(ctx, seg.Number, pace)
		if tga.CodeOf(err) == tga.StateChecksumMismatch {
			w.logger.Error("a segment of the log cannot be read, and is not made smaller", "segment", seg.Number, "error", err)
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
func (w *rewriting) wasteful(ctx context.Context, pace wal.Pace) ([]candidate, error) {
	list, err := w.candidates(ctx, pace)
	list = slices.DeleteFunc(list, func(c candidate) bool { return !c.wasteful() })
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.dead, a.dead) })
	return list, err
}

// shrink gives back the room of bodies that nobody needs any more. The segment that is written
// to is left for a later time.
func (w *rewriting) shrink(ctx context.Context) error {
	list, err := w.wasteful(ctx, nil)
	for i := 0; i < len(list) && err == nil; i++ {
		err = w.rewrite(ctx, list[i].Number, nil)
	}
	return err
}

// rewrite makes a segment of the log anew with the bodies that the index still names. The floor
// rises to the newest group where one is left out, see [dropping].
func (w *rewriting) rewrite(ctx context.Context, n uint64, pace wal.Pace) error {
	d := dropping{index: w.index, commits: w.commits}
	err := w.rewriteWith(ctx, n, false, func(op *wal.Op) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err // the store may be gone
		}
		return d.keeps(op.Key, func(at placed) bool { return at.names(op) })
	}, pace)
	return d.end(err)
}

// compress makes a raw segment anew with every body that it has. It asks no row, and the floor
// stays.
func (w *rewriting) compress(ctx context.Context, n uint64, pace wal.Pace) error {
	return w.rewriteWith(ctx, n, true, func(*wal.Op) (bool, error) { return true, nil }, pace)
}

// rewriteWith rewrites one segment at a time, only where it is raw if raw is true.
func (w *rewriting) rewriteWith(ctx context.Context, n uint64, raw bool, live func(*wal.Op) (bool, error), pace wal.Pace) error {
	// Who is in the way may be the rewriter, which rests only while nobody waits.
	w.waiting.Add(1)
	select {
	case w.turn <- struct{}{}:
		w.waiting.Add(-1)
		defer func() { <-w.turn }()
	case <-ctx.Done():
		w.waiting.Add(-1)
		return ctx.Err()
	}
	if raw && !slices.ContainsFunc(w.log.Full(), func(s wal.Segment) bool { return s.Number == n && s.Generation == 0 }) {
		return nil // somebody was here before
	}
	out, err := w.log.Rewrite(ctx, n, live, pace)
	if tga.CodeOf(err) == tga.StateChecksumMismatch {
		// Damage is not written away: a check tells what is damaged.
		w.logger.Error("a segment of the log is not made smaller", "segment", n, "error", err)
		w.damaged.Store(n, true)
		return nil
	}
	if err == nil {
		w.count(out)
		w.logger.Info("a segment of the log was made smaller", "segment", n, "before", out.Before, "after", out.After)
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
func (w *rewriting) afterCrash(ctx context.Context, segment uint64) error {
	var idle int64
	for _, seg := range w.log.Full() {
		idle += seg.Idle
		if seg.Number != segment || seg.Idle <= mostIdle || mayWait(w.share, idle) {
			continue
		}
		if err := w.roomToRewrite(seg.Records); err != nil {
			w.logger.Warn("the rest of the segment that a crash ended stays", "segment", segment, "bytes", seg.Idle, "error", err)
			continue
		}
		if err := w.rewrite(ctx, segment, nil); err != nil {
			return err
		}
	}
	return w.sweep(ctx)
}

// sweep removes the files of bodies that are nobody's.
func (w *rewriting) sweep(ctx context.Context) error {
	d := dropping{index: w.index, commits: w.commits}
	n, err := w.log.Sweep(ctx, func(key []byte, f wal.File) (bool, error) {
		return d.keeps(key, func(at placed) bool { return at.kind == rowFile && at.file == f })
	})
	err = d.end(err)
	if n > 0 {
		w.logger.Info("removed files of bodies that nothing names", "files", n)
	}
	return err
}
