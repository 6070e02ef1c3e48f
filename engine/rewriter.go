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

// The rewriter makes full segments of the log smaller, one after the other, while the store
// serves calls. After an open it first removes the files of bodies that no row names. Then it rewrites
// the segments with many unneeded bodies, without these bodies. Then it compresses every raw segment,
// with all its bodies.
//
// It yields to appends: it takes at most a share of the processors, begins a segment after a
// moment without appends, and rests for such a moment after each slice of work while appends are
// made. If many bytes wait, it takes its whole share. While a caller waits for the segment that is
// being rewritten (see [DB.Rewrite]), it does not rest. It begins no segment for which the disk may
// lack room above the low-water mark. A failure never stops the store: it is logged, and the
// rewriter goes on after rewriteRetry.

const (
	// minRewrite is the least bytes of records of a raw segment that is worth compressing.
	minRewrite = 1 << 20
	// mostRaw is how many bytes of raw segments may wait for moments without appends. On a
	// disk with little free space the limit is lower: one byte in rawPart of the free space.
	mostRaw = 1 << 30
	rawPart = 8
	// calm is the length of a moment without appends. A segment waits at most patience times
	// calm for one.
	calm     = 100 * time.Millisecond
	patience = 100
	// rewriteRetry is the wait after a failure or a lack of room.
	rewriteRetry = 30 * time.Second
)

// rewrites is the state of the rewriting of a store's segments that lasts over a reopen.
type rewrites struct {
	woken   chan struct{}
	counted atomic.Bool  // the dead bytes were counted since many rows last changed
	damaged sync.Map     // segments that cannot be rewritten, by number
	waiting atomic.Int32 // callers that wait for the segment that is being rewritten

	segments, before, after atomic.Uint64 // done since Open; bytes
}

func (r *rewrites) init() { r.woken = make(chan struct{}, 1) }

// wake wakes the rewriter, because there may be work.
func (r *rewrites) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// recount makes the rewriter count again, because many bodies are no longer needed.
func (r *rewrites) recount() {
	r.counted.Store(false)
	r.wake()
}

func (r *rewrites) count(out wal.Rewritten) {
	r.segments.Add(1)
	r.before.Add(uint64(out.Before))
	r.after.Add(uint64(out.After))
}

// raw lists the segments that wait to be compressed, the oldest first, and their total bytes. It
// skips a segment with fewer than least bytes, unless it has many idle bytes.
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

// rewriter is the goroutine that rewrites segments in the background.
type rewriter struct {
	*rewriting
	health *health
	stats  *counters
	stop   context.CancelFunc
	ended  chan struct{}
	pacer  *pacer
	// seen is how many appends there were at the last rest.
	seen uint64
	todo []candidate // segments with many unneeded bytes
	// swept says that the files of bodies that no row names were removed since the open. A seal removes them too.
	swept bool
}

// start begins to rewrite in the background. It returns nil if share forbids that.
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

// restOf returns how long one goroutine must rest for each unit of work, so that it takes at most
// that share, in percent, of that number of processors.
func restOf(percent, processors int) float64 {
	return max(0, 100/float64(percent*processors)-1)
}

// halt stops the rewriter and waits until it has ended. In a poisoned store it may be blocked in a
// write that never returns: then halt returns errStuck.
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

// rest waits after a failure. It returns false if the rewriter must end.
func (r *rewriter) rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
	case <-r.health.poisoned:
	case <-time.After(rewriteRetry):
		return true
	}
	return false
}

// step makes the next segment smaller. It returns false if there is none.
func (r *rewriter) step(ctx context.Context) (bool, error) {
	if r.health.writable() != nil {
		return false, nil
	}
	if !r.swept {
		if err := r.sweep(ctx, r.pace); err != nil {
			return false, err
		}
		r.swept = true
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
		err := r.rewrite(ctx, c.Number, r.pace)
		if err == nil {
			r.todo = r.todo[1:]
		}
		return true, err
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

// begin waits for a moment without appends. Then it checks that the disk has room for the result of
// rewriting that many bytes.
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

// urgent reports whether so many bytes wait that the rewriter no longer yields to appends.
func (r *rewriter) urgent() bool {
	most := uint64(mostRaw)
	if free, known, err := r.space.measure(); err == nil && known {
		most = min(most, free/rawPart)
	}
	_, bytes := r.raw(minRewrite)
	return uint64(bytes) > most
}

// roomToRewrite returns STORE_UNAVAILABLE if the disk may not have room, above the low-water mark,
// for the result of rewriting that many bytes. If the bodies do not compress, the result is longer
// by its tables: by at most a quarter, if every body has one byte.
func (w *rewriting) roomToRewrite(bytes int64) error {
	free, known, err := w.space.measure()
	if need := uint64(bytes + bytes/4); err == nil && known && free < w.space.lowWater+need {
		return tga.Errorf(tga.StoreUnavailable, "%d bytes are free and the low-water mark is %d: there may be no room for %d", free, w.space.lowWater, need)
	}
	return err
}

// pace rests between small parts of the work. It rests longer if appends were made since the last
// rest, and not at all while a caller waits for the segment. Its error ends the work of a store
// that stops.
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

// Rewrite does now the work that the rewriter does in the background: it rewrites every full
// segment with many unneeded bodies without them, compresses every raw segment, and removes the files
// of unneeded bodies. It returns how many segments it rewrote. STORE_UNAVAILABLE: as for an append, or
// there is no room on the disk.
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

// all is [DB.Rewrite] of a writable store.
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
	return segments, w.sweep(ctx, nil)
}
