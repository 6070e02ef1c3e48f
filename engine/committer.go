package engine

import (
	"context"
	"errors"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
)

// commitment is a batch on its way to disk: queued in a group, then committed with the
// others of it.
type commitment struct {
	batch *pebble.Batch
	steps []*step // what becomes visible with it; none for a batch of the store's own
	group *group  // set by [committer.add]

	entered bool // it has room of its own, see [committer.enter]
	unlocks bool // the lock of its step's ledger key ends with it
}

// group is the batches that one log record and one sync make durable.
type group struct {
	members []*commitment
	bytes   int
	done    chan struct{} // closed once the group is durable, or never will be
	err     error         // set before done is closed
}

// committer takes batches to disk, one group after the other, in the order in which
// they were handed in. One goroutine does it, for two reasons. What waits while a group
// is synced becomes the next group, with one log record, one sync and one mark for all
// of it. And Pebble may block without end (on a full disk, say): then this goroutine
// does, and the callers, who wait for a channel, can leave.
type committer struct {
	db    *DB
	mark  *guard.Watermark // the store's, which may give it up before this goroutine ends
	all   *pebble.Batch    // empty between groups, in which one is gathered
	mu    sync.Mutex
	work  sync.Cond // there is a queue, or it is closed
	queue []*group  // only the last of them still grows
	shut  bool
	ended chan struct{}

	coming atomic.Int32  // calls that are about to add, or to be refused
	room   chan struct{} // holds one for each of them and for each append on its way
}

// maxQueued is how many appends of one store may be on their way at once; the next waits.
// Without a bound, one goroutine that submits faster than the disk syncs would fill
// memory.
const maxQueued = 1024

// maxGroup bounds the bytes of a group of more than one. It is the size of Pebble's
// first memtable, so a group makes no memtable larger than its batches would.
const maxGroup = 256 << 10

func startCommitter(db *DB, p *pebble.DB) *committer {
	c := &committer{db: db, mark: db.mark, all: p.NewBatchWithSize(maxGroup), ended: make(chan struct{}), room: make(chan struct{}, maxQueued)}
	c.work.L = &c.mu
	go c.run()
	return c
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
		return c.db.waitFailed("wait while "+strconv.Itoa(maxQueued)+" appends are on their way", id, ctx.Err())
	case <-c.db.health.poisoned:
		return c.db.health.sick()
	}
}

// leave gives the room back.
func (c *committer) leave() { <-c.room }

// add queues x. Batches of one trace are added under its lock, so they reach the log in
// the order of its entries: where the later one is durable, so is the earlier.
func (c *committer) add(x *commitment) {
	size := x.batch.Len()
	c.mu.Lock()
	n := len(c.queue)
	if n == 0 || c.queue[n-1].bytes+size > maxGroup {
		c.queue = append(c.queue, &group{done: make(chan struct{})})
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
		c.finish(g, c.db.commitGroup(g, c.all, c.mark))
		if !alone {
			goruntime.Gosched() // those just woken may have a next append: it goes with the next group
		}
	}
	if c.db.health.sick() == nil { // else it may be in the log's hands for good
		if err := closeBatch(c.all); err != nil {
			c.db.health.poison(c.db.log, err)
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

// commitGroup commits the batches of a group as one and returns once it is durable and
// in the watermark. all is an empty batch, to gather them in. An error poisons the store,
// for what the disk then has is not known.
func (db *DB) commitGroup(g *group, all *pebble.Batch, mark *guard.Watermark) error {
	if err := db.health.sick(); err != nil {
		return err // nothing is tried again
	}
	if len(g.members) == 1 {
		all = g.members[0].batch
	}
	err := db.guarded(func() error {
		if len(g.members) > 1 {
			for _, c := range g.members {
				if err := all.Apply(c.batch, nil); err != nil {
					return err
				}
			}
		}
		return all.Commit(pebble.Sync)
	})
	if err == nil {
		// Before anybody is told: what was acknowledged must be missed when it is gone.
		err = mark.Advance(uint64(all.SeqNum()) + uint64(all.Count()) - 1)
		if len(g.members) > 1 {
			all.Reset()
		}
	}
	if err != nil {
		db.health.poison(db.log, err)
	}
	return err
}

// finish shows what is durable and wakes those who wait for it. What failed is in
// flight for good: its locks stay taken and its traces' tails stay, so nobody is shown
// what may be in Pebble and not on disk.
func (c *committer) finish(g *group, err error) {
	db := c.db
	for _, x := range g.members {
		if x.entered {
			c.leave()
		}
		if err != nil {
			continue
		}
		db.stats.commits.Add(1)
		for _, s := range x.steps {
			db.publish(s)
		}
		if x.unlocks {
			db.keys.unlock(x.steps[0].hash)
		}
		g.err = errors.Join(g.err, closeBatch(x.batch))
	}
	if err != nil {
		g.err = unknown(err)
	}
	g.members = nil // a ticket that is kept does not keep the group's other steps
	close(g.done)
}

// await returns once c is durable, or with the store's poisoning: the commit may then
// never end.
func (db *DB) await(c *commitment) error {
	select {
	case <-c.group.done:
		return c.group.err
	case <-db.health.poisoned:
	}
	select {
	case <-c.group.done: // it ended all the same
		return c.group.err
	default:
		return unknown(db.health.sick())
	}
}

// apply makes a batch of the store's own durable.
func (db *DB) apply(b *pebble.Batch) error {
	c := &commitment{batch: b}
	db.commits.add(c)
	return db.await(c)
}

func unknown(err error) error {
	return tga.Errorf(tga.StoreUnavailable, "commit, outcome unknown: %w", err)
}
