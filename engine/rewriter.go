package engine

import (
	"context"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// The rewriter makes full segments of the log smaller, one after the other, beside the calls.
// First those of which much is nobody's: they are written anew without it. Then every raw one:
// its bodies are compressed, and all of them stay.
//
// It gives way: it takes a share of the processors, begins a segment when no append was made for
// a moment, and rests for such a moment after each slice of work while appends are made. Where
// much waits it takes its whole share, and while somebody waits for the segment in its hands it
// does not rest (see [DB.Rewrite]). It begins no segment for which the disk may have no room above the low-water
// mark. What fails is tried again later; it never stops the store.

const (
	// minRewrite is how many bytes of records a raw segment has that is worth being compressed.
	minRewrite = 1 << 20
	// mostRaw is how many bytes of raw segments may wait for moments without appends, and of
	// what is free on the disk at most the part rawPart: there they are soon missed.
	mostRaw = 1 << 30
	rawPart = 8
	// calm is a moment without appends, and patience for how many of those a segment waits.
	calm     = 100 * time.Millisecond
	patience = 100
	// rewriteRetry is when what failed, or had no room, is tried again.
	rewriteRetry = 30 * time.Second
)

// rewrites is what a store knows of the rewriting of its segments.
type rewrites struct {
	woken   chan struct{}
	counted atomic.Bool  // the dead bytes since the last change of many rows
	damaged sync.Map     // segments that cannot be rewritten, by number
	waiting atomic.Int32 // who waits for a segment that is being rewritten

	segments, before, after atomic.Uint64 // done since Open; bytes
}

func (r *rewrites) init() { r.woken = make(chan struct{}, 1) }

// wake says that there may be something to do.
func (r *rewrites) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// recount says that many bodies became nobody's.
func (r *rewrites) recount() {
	r.counted.Store(false)
	r.wake()
}

func (r *rewrites) count(out wal.Rewritten) {
	r.segments.Add(1)
	r.before.Add(uint64(out.Before))
	r.after.Add(uint64(out.After))
}

// raw lists the segments of at least so many bytes, or with so much idle room, that wait to be
// compressed, the oldest first, and how many bytes they take.
func (w *rewriting) raw(least int64) (list []wal.Segment, bytes int64) {
	for _, seg := range w.log.Full() {
		if _, damaged := w.damaged.Load(seg.Number); !damaged && isRaw(seg, least) {
			list = append(list, seg)
			bytes += seg.Records + seg.Idle
		}
	}
	return list, bytes
}

func isRaw(seg wal.Segment, least int64) bool {
	return seg.Generation == 0 && (seg.Records >= least || seg.Idle > mostIdle)
}

// rewriter is the goroutine that does it.
type rewriter struct {
	*rewriting
	health *health
	stats  *counters
	stop   context.CancelFunc
	ended  chan struct{}
	pacer  *pacer
	// seen is how many appends there were at the last rest.
	seen uint64
	todo []candidate // segments of which much is nobody's
}

// start begins to rewrite in the background; nil where that is not to be done.
func (w *rewriting) start(h *health, stats *counters) *rewriter {
	if w.share < 0 {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &rewriter{rewriting: w, health: h, stats: stats, stop: stop, ended: make(chan struct{}), pacer: newPacer()}
	r.pacer.rest = restOf(w.share, goruntime.GOMAXPROCS(0))
	w.recount()
	go r.run(ctx)
	return r
}

// restOf is how long one goroutine rests for each unit of work that takes at most that share, in
// percent, of so many processors.
func restOf(percent, processors int) float64 {
	return max(0, 100/float64(percent*processors)-1)
}

// halt waits until the rewriter has ended. Of a store that was poisoned it may stand in a
// write that never returns: errStuck.
func (r *rewriter) halt() error {
	if r == nil {
		return nil
	}
	r.stop()
	select {
	case <-r.ended:
		return nil
	case <-r.health.poisoned:
	}
	select {
	case <-r.ended:
		return nil
	case <-time.After(5 * time.Second):
		return errStuck
	}
}

func (r *rewriter) run(ctx context.Context) {
	defer close(r.ended)
	for {
		did, err := r.step(ctx)
		if ctx.Err() != nil || r.health.sick() != nil {
			return
		}
		if did && err == nil {
			continue
		}
		var again <-chan time.Time
		if err != nil {
			r.logger.Warn("no segment of the log is made smaller now", "error", err, "again", rewriteRetry)
			again = time.After(rewriteRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.health.poisoned:
			return
		case <-r.woken:
			if err != nil && !r.rest(ctx) {
				return
			}
		case <-again:
		}
	}
}

// rest waits for the time at which what failed is tried again.
func (r *rewriter) rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
	case <-r.health.poisoned:
	case <-time.After(rewriteRetry):
		return true
	}
	return false
}

// step makes the segment smaller that comes next; false where there is none.
func (r *rewriter) step(ctx context.Context) (bool, error) {
	if r.health.writable() != nil {
		return false, nil
	}
	if len(r.log.Full()) > 0 && !r.counted.Swap(true) {
		todo, err := r.wasteful(ctx, r.pace)
		if err != nil {
			r.counted.Store(false)
			return false, err
		}
		r.todo = todo
	}
	if len(r.todo) > 0 {
		c := r.todo[0]
		if err := r.begin(ctx, c.File); err != nil {
			return false, err
		}
		r.todo = r.todo[1:]
		return true, r.rewrite(ctx, c.Number, r.pace)
	}
	list, _ := r.raw(minRewrite)
	if len(list) == 0 {
		return false, nil
	}
	if err := r.begin(ctx, list[0].Records); err != nil {
		return false, err
	}
	return true, r.compress(ctx, list[0].Number, r.pace)
}

// begin waits for a moment without appends, and asks whether the disk has room for what is made
// of so many bytes.
func (r *rewriter) begin(ctx context.Context, bytes int64) error {
	for range patience {
		if r.urgent() || ctx.Err() != nil {
			break
		}
		before := r.stats.commits.Load()
		r.pacer.sleep(ctx, calm)
		if r.stats.commits.Load() == before {
			break
		}
	}
	return r.roomToRewrite(bytes)
}

// urgent reports whether so much waits that the rewriter takes its share from those who append.
func (r *rewriter) urgent() bool {
	most := uint64(mostRaw)
	if free, known, err := r.space.measure(); err == nil && known {
		most = min(most, free/rawPart)
	}
	_, bytes := r.raw(minRewrite)
	return uint64(bytes) > most
}

// roomToRewrite returns STORE_UNAVAILABLE where the disk may not hold what is made of so many
// bytes above the low-water mark. What does not compress is longer by its tables: at most a
// quarter, where every body has one byte.
func (w *rewriting) roomToRewrite(bytes int64) error {
	free, known, err := w.space.measure()
	if need := uint64(bytes + bytes/4); err == nil && known && free < w.space.lowWater+need {
		return tga.Errorf(tga.StoreUnavailable, "%d bytes are free and the low-water mark is %d: there may be no room for %d", free, w.space.lowWater, need)
	}
	return err
}

// pace rests between small parts, longer where appends were made since the last rest, and not
// while a call of Rewrite waits for the segment to be done. It ends the work of a store that stops.
func (r *rewriter) pace(ctx context.Context) error {
	if r.waiting.Load() > 0 {
		return r.health.sick()
	}
	if r.pacer.step(ctx) {
		commits := r.stats.commits.Load()
		if commits != r.seen && !r.urgent() {
			r.pacer.sleep(ctx, calm)
			r.pacer.began = r.pacer.now()
		}
		r.seen = commits
	}
	return r.health.sick()
}

// Rewrite does at once what is done in the background otherwise: every full segment of the log is
// written anew, without what nobody needs where that is much of it, and compressed. It returns how
// many were. VALIDATION_ERROR, STORE_UNAVAILABLE: as for an append.
func (db *DB) Rewrite(ctx context.Context) (segments int, err error) {
	if err := db.health.enter(); err != nil {
		return 0, err
	}
	defer db.health.leave()
	if err := db.health.writable(); err != nil {
		return 0, err
	}
	return db.rewriting.all(ctx)
}

// all makes every segment smaller that can be.
func (w *rewriting) all(ctx context.Context) (segments int, err error) {
	list, err := w.wasteful(ctx, nil)
	if err != nil {
		return 0, err
	}
	for _, c := range list {
		if err := w.roomToRewrite(c.File); err != nil {
			return segments, err
		}
		if err := w.rewrite(ctx, c.Number, nil); err != nil {
			return segments, err
		}
		segments++
	}
	raw, _ := w.raw(0)
	for _, seg := range raw {
		if err := w.roomToRewrite(seg.Records); err != nil {
			return segments, err
		}
		if err := w.compress(ctx, seg.Number, nil); err != nil {
			return segments, err
		}
		segments++
	}
	return segments, nil
}
