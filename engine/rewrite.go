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

// shrinkAt says when a segment of the log is rewritten: when at least one byte in shrinkAt of its
// file belongs to bodies that are no longer needed.
const shrinkAt = 4

// rewriting makes full segments of the log smaller: it leaves out bodies that are no longer needed,
// or compresses the bodies.
//
// Only one segment is rewritten at a time, by the holder of turn. Appends go on meanwhile, because
// a full segment gets no more writes, and the log keeps the old file for readers that hold a pin. A
// body that becomes unneeded while its segment is rewritten may stay in it until the next rewrite.
type rewriting struct {
	*rewrites
	log     *wal.Log
	index   *index
	commits *committer // makes a new floor durable
	space   *space
	logger  *slog.Logger
	share   int           // of the processors, in percent; negative: no background work
	turn    chan struct{} // full while a segment is rewritten
}

// candidate is a segment of the log that can be rewritten.
type candidate struct {
	wal.Segment
	wal.Stored
	dead int64 // bytes of its bodies that no row names
}

func (c candidate) wasteful() bool { return c.dead > 0 && c.dead >= c.File/shrinkAt }

// candidates counts, for every full segment, the bytes of bodies that no row names. The counts
// are not stored. Each is the bytes of the file's bodies less the bytes that rows name. So it is
// the same after a reopen and after a rebuild, and a replaced attachment counts as much as an
// archived trace. It costs one pass over the rows that can name a body, which is less than the
// archiving that precedes it.
func (w *rewriting) candidates(ctx context.Context, pace wal.Pace) ([]candidate, error) {
	full := w.log.Full() // list them before the rows are read: they get no later body
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

// valueKinds are the most frequent kinds of keys whose rows never name a body, in order.
var valueKinds = []keyspace.Kind{keyspace.Ledger, keyspace.Tombstone}

// liveBytes adds up the bytes of the bodies that rows name, for each segment.
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

// wasteful lists the segments with many unneeded bytes, the one with the most first.
func (w *rewriting) wasteful(ctx context.Context, pace wal.Pace) ([]candidate, error) {
	list, err := w.candidates(ctx, pace)
	list = slices.DeleteFunc(list, func(c candidate) bool { return !c.wasteful() })
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.dead, a.dead) })
	return list, err
}

// shrink frees the space of bodies that are no longer needed. It leaves the segment that is being
// written to for a later time.
func (w *rewriting) shrink(ctx context.Context) error {
	list, err := w.wasteful(ctx, nil)
	for i := 0; i < len(list) && err == nil; i++ {
		err = w.rewrite(ctx, list[i].Number, nil)
	}
	return err
}

// rewrite rewrites a segment of the log with the bodies that the index still names. If it leaves
// one out, the floor rises to the newest group, see [dropping].
func (w *rewriting) rewrite(ctx context.Context, n uint64, pace wal.Pace) error {
	d := dropping{index: w.index, commits: w.commits}
	err := w.rewriteWith(ctx, n, false, func(op *wal.Op) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err // the store may be closing
		}
		return d.keeps(op.Key, func(at placed) bool { return at.names(op) })
	}, pace)
	return d.end(err)
}

// compress rewrites a raw segment with all its bodies, compressed. It reads no row, and the floor
// does not rise.
func (w *rewriting) compress(ctx context.Context, n uint64, pace wal.Pace) error {
	return w.rewriteWith(ctx, n, true, func(*wal.Op) (bool, error) { return true, nil }, pace)
}

// rewriteWith rewrites a segment once it has turn. With raw it does so only if the segment is raw.
func (w *rewriting) rewriteWith(ctx context.Context, n uint64, raw bool, live func(*wal.Op) (bool, error), pace wal.Pace) error {
	// The rewriter may hold turn. It does not rest while waiting is above zero.
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
		return nil // another caller has compressed it meanwhile
	}
	out, err := w.log.Rewrite(ctx, n, live, pace)
	if tga.CodeOf(err) == tga.StateChecksumMismatch {
		// A damaged segment is kept as it is, so that a check can still find the damage.
		w.logger.Error("a segment of the log is not made smaller", "segment", n, "error", err)
		w.damaged.Store(n, true)
		return nil
	}
	if err == nil {
		w.damaged.Delete(n) // the disk gave again what it had not given before
		w.count(out)
		w.logger.Info("a segment of the log was made smaller", "segment", n, "before", out.Before, "after", out.After)
	}
	return err
}

const (
	// mostIdle is how many unused bytes of a segment that a crash ended early are left as they are.
	mostIdle = 1 << 20
	// mostIdleInAll is how many such bytes may wait for the rewriter. Without it a process that
	// is killed again and again, before the rewriter frees them, would fill the disk.
	mostIdleInAll = 128 << 20
)

// mayWait reports whether that many idle bytes are left to a rewriter with that share.
func mayWait(share int, idle int64) bool { return share >= 0 && idle <= mostIdleInAll }

// afterCrash frees what a crash left: the unused rest of the segment that was being written, and
// files of bodies that no row names. It normally leaves the rest of the segment to the rewriter, so
// that the store opens sooner. It frees the rest itself if there is no rewriter, or if too many
// bytes wait for it. If the disk has no room for the rewrite, the rest stays.
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
	return w.sweep(ctx, nil)
}

// sweep removes the files of bodies that no row names, but for those that the disk cannot read. It calls pace, if that is
// not nil, before each file that it looks at.
func (w *rewriting) sweep(ctx context.Context, pace wal.Pace) error {
	_, err := w.sweepAll(ctx, pace)
	return err
}

// sweepAll is sweep that returns how many files the disk cannot read.
func (w *rewriting) sweepAll(ctx context.Context, pace wal.Pace) (unread int, err error) {
	d := dropping{index: w.index, commits: w.commits}
	shown := false
	n, unread, err := w.log.Sweep(ctx, func(key []byte, f wal.File) (bool, error) {
		if pace != nil {
			if err := pace(ctx); err != nil {
				return false, err
			}
		}
		named := func(at placed) bool { return at.kind == rowFile && at.file == f }
		if !shown {
			if keep, err := w.index.names(key, named); keep || err != nil {
				return keep, err
			}
			// The record that names the file may be durable, and its rows not yet in the index.
			if err := w.commits.barrier(); err != nil {
				return false, err
			}
			shown = true
		}
		return d.keeps(key, named)
	})
	err = d.end(err)
	if n > 0 {
		w.logger.Info("removed files of bodies that nothing names", "files", n)
	}
	return unread, err
}
