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
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// commitment is a set of operations on its way to disk. It is queued in a group, and all
// commitments of a group are committed together.
type commitment struct {
	ops   *wal.Ops
	steps steps    // become visible with the operations; none for the store's own operations
	few   [2]*step // room for them
	group *group   // set by [committer.add]

	fresh   bool // its record begins a segment of the log
	entered bool // it holds one place of the queue's room, see [committer.enter]
}

// group is the commitments that one record of the log and one sync make durable.
type group struct {
	members []*commitment
	few     [4]*commitment // room for the first of them
	bytes   int
	done    chan struct{} // closed once the group is durable or has failed
	err     error         // set before done is closed
}

// committer writes groups to disk, one after the other, in the order in which they were
// queued. One goroutine does this, for two reasons. First, the appends that arrive while a
// group is synced become the next group, with one record, one sync and one mark for all of
// them. Second, a disk may block forever: then only this goroutine blocks, and the callers,
// which wait on a channel, can leave.
type committer struct {
	log *wal.Log
	// These belong to the store. A poisoned store releases them while this goroutine still runs.
	mark  *guard.Watermark
	lock  *dirLock
	files *guard.Fenced

	health *health
	logger *slog.Logger
	times  *times
	order  *order
	stats  *counters
	full   func() // called when a segment of the log is full

	index   *index
	traces  *traces // traces and records are told of each durable step
	records *records

	rows  indexer
	line  tga.ID // timeline of the log
	queue []*group
	mu    sync.Mutex
	work  sync.Cond // signalled when the queue is no longer empty, and when shut is set
	shut  bool
	ended chan struct{}

	record  wal.Group       // the record that is being written
	slow    *time.Timer     // runs while the record is being written
	segment uint64          // the segment of the newest record
	flushed <-chan struct{} // closed when the index has flushed what it had at the last rotation

	synced func(time.Duration) // [Options].Synced

	coming atomic.Int32  // calls that are about to add, or to be refused
	room   chan struct{} // bounds the calls in coming and the queued appends, see maxQueued
}

// maxQueued is the number of appends of one store that may be under way at once; the next
// append waits. Without a bound, one goroutine that submits faster than the disk syncs would
// fill the memory.
const maxQueued = 1024

// maxGroup bounds the bytes of a group that has several members; no single append has more,
// see [wal.MaxInline]. Eight answers of 256 KiB fit into one group. The bound keeps the writing
// of a group to some milliseconds, which is how long later appends wait for it.
const maxGroup = 2 << 20

// start starts the goroutine that writes groups to disk, after the given position.
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

// add queues x. The commitments of one trace are added under the lock of that trace, so they
// reach the log in the order of its entries: if a later one is durable, so is each earlier one.
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
			goruntime.Gosched() // let the woken callers submit their next append, so that it joins the next group
		}
	}
	if c.health.sick() == nil { // a failed log may keep using the batch forever
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
	// Let the calls that are about to add an append do so first: one sync costs as much for
	// one append as for all of them. If no other call is coming, the group does not wait.
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

// endSegment ends the current segment of the log if the group must begin a new segment.
func (c *committer) endSegment(g *group) error {
	if c.health.sick() != nil || !slices.ContainsFunc(g.members, func(x *commitment) bool { return x.fresh }) {
		return nil // commit returns the reason if the store is poisoned
	}
	err := c.log.EndSegment()
	if err != nil {
		c.health.poison(err)
	}
	return err
}

// commit makes a group durable: one write of the log, one sync, the mark, and then the
// rows. So the index has only rows that are durable, and a caller that is woken finds the
// rows of its own append. An error poisons the store, because it is unknown what is on disk.
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
		// Advance the mark before any caller is answered. Otherwise the next open would not
		// notice that an acknowledged record is missing.
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

// show writes the rows of the group that was just made durable to the index. If the log has
// begun another segment, show flushes the index, so that no open has to index more than two
// segments.
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

// finish publishes the steps of a durable group and wakes the callers that wait for it. The
// steps of a failed group stay in flight: finish does not release their key locks and does
// not remove them from the tails. So no reader sees an append that may not be on disk.
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

// await returns once x is durable, or with an error once the store is poisoned, because the
// commit may then never end.
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

// apply makes operations durable that belong to no append, and ends the writer.
func (c *committer) apply(w *writer) error { return c.applyIn(w, false) }

// applyIn is apply; with fresh, the operations begin a new segment of the log.
func (c *committer) applyIn(w *writer, fresh bool) error {
	x := &commitment{fresh: fresh}
	if err := w.end(x); err != nil {
		return err
	}
	c.add(x)
	return c.await(x)
}

// barrier returns once everything that was queued, or was being committed, is durable and in the index.
func (c *committer) barrier() error {
	w := c.newWriter()
	w.delete(keyspace.AppendMeta(nil, metaBarrier))
	return c.apply(w)
}

func unknown(err error) error {
	return tga.Errorf(tga.StoreUnavailable, "commit, outcome unknown: %w", err)
}
