package engine

import (
	"context"
	"log/slog"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// commitment is operations on their way to disk: queued in a group, then committed with
// the others of it.
type commitment struct {
	ops   *wal.Ops
	steps steps    // what becomes visible with them; none for the store's own
	few   [2]*step // room for them
	group *group   // set by [committer.add]

	fresh   bool // its record begins a segment of the log
	entered bool // it has room of its own, see [committer.enter]
}

// group is what one record of the log and one sync make durable.
type group struct {
	members []*commitment
	few     [4]*commitment // room for the first of them
	bytes   int
	done    chan struct{} // closed once the group is durable, or never will be
	err     error         // set before done is closed
}

// committer takes groups to disk, one after the other, in the order in which they were
// handed in. One goroutine does it, for two reasons. What waits while a group is synced
// becomes the next group, with one record, one sync and one mark for all of it. And the
// disk may block without end: then this goroutine does, and the callers, who wait for a
// channel, can leave.
type committer struct {
	log *wal.Log
	// The store's; a poisoned one gives them up while this goroutine still runs.
	mark  *guard.Watermark
	lock  *dirLock
	files *guard.Fenced

	health *health
	logger *slog.Logger
	times  *times
	order  *order
	stats  *counters
	full   func() // told when a segment of the log is full

	index   *index
	traces  *traces // these two show what is durable
	records *records

	rows  indexer
	line  tga.ID // timeline of the log
	queue []*group
	mu    sync.Mutex
	work  sync.Cond // there is a queue, or it is closed
	shut  bool
	ended chan struct{}

	record  wal.Group       // the one on its way
	slow    *time.Timer     // runs while it is
	segment uint64          // of the newest one
	flushed <-chan struct{} // closed when the index has flushed what it had at the last rotation

	synced func(time.Duration) // [Options].Synced

	coming atomic.Int32  // calls that are about to add, or to be refused
	room   chan struct{} // holds one for each of them and for each append on its way
}

// maxQueued is how many appends of one store may be on their way at once; the next waits.
// Without a bound, one goroutine that submits faster than the disk syncs would fill
// memory.
const maxQueued = 1024

// maxGroup bounds the bytes of a group of more than one, and no append has more, see
// [wal.MaxInline]. Eight answers of 256 KiB share a sync; what comes meanwhile waits for some
// milliseconds of writing and not for more.
const maxGroup = 2 << 20

// start begins to take groups to disk behind a position of the log and its index.
func (c *committer) start(at position) {
	c.rows = indexer{b: c.index.p.NewBatch(), keys: at.keys, sum: at.sum}
	c.line, c.segment = c.log.Timeline(), at.at.Segment
	c.ended, c.room = make(chan struct{}), make(chan struct{}, maxQueued)
	c.work.L = &c.mu
	c.slow = time.AfterFunc(slowSync, c.slowSync)
	c.slow.Stop()
	go c.run()
}

// enter waits for room for one more append, until ctx ends or the store stops.
func (c *committer) enter(ctx context.Context, id tga.ID) error {
	select {
	case c.room <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return c.health.waitFailed("wait while "+strconv.Itoa(maxQueued)+" appends are on their way", id, ctx.Err())
	case <-c.health.poisoned:
		return c.health.sick()
	}
}

// leave gives the room back.
func (c *committer) leave() { <-c.room }

// add queues x. Those of one trace are added under its lock, so they reach the log in
// the order of its entries: where the later one is durable, so is the earlier.
func (c *committer) add(x *commitment) {
	c.mu.Lock()
	c.place(x)
	size := x.ops.Len()
	n := len(c.queue)
	if n == 0 || c.queue[n-1].bytes+size > maxGroup {
		g := &group{done: make(chan struct{})}
		g.members = g.few[:0]
		c.queue = append(c.queue, g)
		n++
	}
	g := c.queue[n-1]
	g.members, g.bytes = append(g.members, x), g.bytes+size
	x.group = g
	first := n == 1 && len(g.members) == 1
	c.mu.Unlock()
	if first {
		c.work.Signal()
	}
}

// stop ends the goroutine once the queue is empty; ended is closed then.
func (c *committer) stop() {
	c.mu.Lock()
	c.shut = true
	c.mu.Unlock()
	c.work.Signal()
}

func (c *committer) run() {
	defer close(c.ended)
	for {
		g := c.take()
		if g == nil {
			break
		}
		alone := len(g.members) == 1
		err := c.endSegment(g)
		if err == nil {
			err = c.commit(g)
		}
		c.finish(g, err)
		if !alone {
			goruntime.Gosched() // those just woken may have a next append: it goes with the next group
		}
	}
	if c.health.sick() == nil { // else it may be in the log's hands for good
		if err := closeBatch(c.rows.b); err != nil {
			c.health.poison(err)
		}
	}
}

// take waits for work and takes the first group from the queue; nil once the committer
// is stopped and the queue is empty.
func (c *committer) take() *group {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 {
		if c.shut {
			return nil
		}
		c.work.Wait()
	}
	// Those who are about to add theirs come first: a sync costs as much for one as for
	// all of them. A call that is alone waits for nobody.
	for n := 0; len(c.queue) == 1 && n < len(c.queue[0].members) && c.coming.Load() > 0; {
		n = len(c.queue[0].members)
		c.mu.Unlock()
		goruntime.Gosched()
		c.mu.Lock()
	}
	g := c.queue[0]
	c.queue = slices.Delete(c.queue, 0, 1)
	return g
}

// endSegment ends the segment of the log that is written to where the group is to begin one.
func (c *committer) endSegment(g *group) error {
	if c.health.sick() != nil || !slices.ContainsFunc(g.members, func(x *commitment) bool { return x.fresh }) {
		return nil // commit says what is sick
	}
	err := c.log.EndSegment()
	if err != nil {
		c.health.poison(err)
	}
	return err
}

// commit makes a group durable: one write of the log, one sync, the mark, and then the
// rows. So the index has nothing that is not durable, and a caller that is woken finds its
// own. An error poisons the store, for what the disk then has is not known.
func (c *committer) commit(g *group) error {
	began := time.Now()
	if err := c.health.sick(); err != nil {
		return err // nothing is tried again
	}
	c.record.Reset()
	for _, x := range g.members {
		c.record.Add(x.ops, wal.MaxRecord)
	}
	c.record.Times = wal.Times{Committed: tga.Millis(c.times.newest.Load()), TS: tga.Millis(c.times.newestTS.Load())}
	c.slow.Reset(slowSync)
	at, err := c.log.Append(&c.record)
	c.slow.Stop()
	if c.synced != nil && err == nil {
		c.synced(time.Since(began))
	}
	if err == nil {
		// Before anybody is told: what was acknowledged must be missed when it is gone.
		err = c.mark.Advance(at.Group, at.Sum)
	}
	if err == nil {
		err = c.health.guarded(func() error { return c.show(at) })
	}
	if err != nil {
		c.health.poison(err)
	}
	return err
}

// show shows the rows of the group that was just made durable. Where the log has begun
// another segment, the index is flushed, so that no open has to index more than two.
func (c *committer) show(at wal.Position) error {
	if err := c.record.Rows(c.rows.op); err != nil {
		return err
	}
	c.rows.landmark(c.record.First(), at)
	if err := c.rows.commit(position{line: c.line, at: at}); err != nil {
		return err
	}
	if at.Segment == c.segment {
		return nil
	}
	c.segment = at.Segment
	c.full()
	c.lock.check(c.health, c.files)
	if c.flushed != nil {
		select {
		case <-c.flushed:
		case <-c.health.poisoned:
			return c.health.sick()
		}
	}
	var err error
	c.flushed, err = c.index.p.AsyncFlush()
	return err
}

// slowSync is how long a group may take before an operator is told.
const slowSync = 5 * time.Second

func (c *committer) slowSync() {
	c.stats.slowWrites.Add(1)
	c.logger.Warn("slow disk: a group is not durable yet", "after", slowSync)
}

// finish shows what is durable and wakes those who wait for it. What failed is in
// flight for good: its locks stay taken and its traces' tails stay, so nobody is shown
// what may not be on disk.
func (c *committer) finish(g *group, err error) {
	for _, x := range g.members {
		if x.entered {
			c.leave()
		}
		if err != nil {
			continue
		}
		c.stats.commits.Add(1)
		for _, s := range x.steps {
			c.publish(s)
		}
		x.steps.unlockKeys(c.records)
		freeOps(x.ops)
		x.ops = nil
	}
	if err != nil {
		g.err = unknown(err)
	} else {
		c.order.grow(c.record.Next() - 1)
	}
	g.members = nil // a ticket that is kept does not keep the group's other steps
	close(g.done)
}

// await returns once x is durable, or with the store's poisoning: the commit may then
// never end.
func (c *committer) await(x *commitment) error {
	select {
	case <-x.group.done:
		return x.group.err
	case <-c.health.poisoned:
	}
	select {
	case <-x.group.done: // it ended all the same
		return x.group.err
	default:
		return unknown(c.health.sick())
	}
}

// apply makes operations of the store's own durable, and ends the writer.
func (c *committer) apply(w *writer) error { return c.applyIn(w, false) }

// applyIn is apply, with fresh in a segment of the log that begins with it.
func (c *committer) applyIn(w *writer, fresh bool) error {
	x := &commitment{fresh: fresh}
	if err := w.end(x); err != nil {
		return err
	}
	c.add(x)
	return c.await(x)
}

func unknown(err error) error {
	return tga.Errorf(tga.StoreUnavailable, "commit, outcome unknown: %w", err)
}
