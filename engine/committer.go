package engine

import (
	"context"
	goruntime "runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
)

// commitment is a batch on its way to disk: queued, then committed with the others of
// its group, then durable.
type commitment struct {
	batch *pebble.Batch
	steps []*step    // what becomes visible with it; none for a batch of the store's own
	keys  [][32]byte // ledger keys whose locks end with it
	done  chan struct{}
	err   error // set before done is closed

	entered bool // it has room of its own, see [committer.enter]
}

func (c *commitment) end(err error) {
	c.err = err
	close(c.done)
}

// committer takes batches to disk, one group after the other, in the order in which
// they were handed in. One goroutine does it, for two reasons. What waits while a group
// is synced becomes the next group, with one log record, one sync and one mark for all
// of it. And Pebble may block without end (on a full disk, say): then this goroutine
// does, and the callers, who wait for a channel, can leave.
type committer struct {
	db    *DB
	mark  *guard.Watermark // the store's, which may give it up before this goroutine ends
	mu    sync.Mutex
	work  sync.Cond // there is a queue, or it is closed
	queue []*commitment
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

func startCommitter(db *DB) *committer {
	c := &committer{db: db, mark: db.mark, ended: make(chan struct{}), room: make(chan struct{}, maxQueued)}
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
	c.mu.Lock()
	c.queue = append(c.queue, x)
	first := len(c.queue) == 1
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
	var group []*commitment
	for {
		if group = c.take(group[:0]); len(group) == 0 {
			return
		}
		c.finish(group, c.db.commitGroup(group, c.mark))
		clear(group)
	}
}

// take waits for work and moves the front of the queue to group; nothing once the
// committer is stopped and the queue is empty.
func (c *committer) take(group []*commitment) []*commitment {
	c.mu.Lock()
	for len(c.queue) == 0 && !c.shut {
		c.work.Wait()
	}
	// Those who are about to add theirs come first: a sync costs as much for one as for
	// all of them. A call that is alone waits for nobody.
	for n := 0; n < len(c.queue) && c.coming.Load() > 0; {
		n = len(c.queue)
		c.mu.Unlock()
		goruntime.Gosched()
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	n, bytes := 0, 0
	for n < len(c.queue) {
		if bytes += c.queue[n].batch.Len(); n > 0 && bytes > maxGroup {
			break
		}
		n++
	}
	group = append(group, c.queue[:n]...)
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	return group
}

// commitGroup commits the batches of a group as one and returns once it is durable and
// in the watermark. An error poisons the store, for what the disk then has is not known.
func (db *DB) commitGroup(group []*commitment, mark *guard.Watermark) error {
	if err := db.health.sick(); err != nil {
		return err // nothing is tried again
	}
	all := group[0].batch
	err := db.guarded(func() error {
		for _, c := range group[1:] {
			if err := all.Apply(c.batch, nil); err != nil {
				return err
			}
		}
		return all.Commit(pebble.Sync)
	})
	if err == nil {
		// Before anybody is told: what was acknowledged must be missed when it is gone.
		err = mark.Advance(uint64(all.SeqNum()) + uint64(all.Count()) - 1)
	}
	if err != nil {
		db.health.poison(db.log, err)
	}
	return err
}

// finish shows what is durable and wakes those who wait for it. What failed is in
// flight for good: its locks stay taken and its traces' tails stay, so nobody is shown
// what may be in Pebble and not on disk.
func (c *committer) finish(group []*commitment, err error) {
	db := c.db
	for _, x := range group {
		if x.entered {
			c.leave()
		}
		if err != nil {
			x.end(unknown(err))
			continue
		}
		db.stats.commits.Add(1)
		for _, s := range x.steps {
			db.publish(s)
		}
		for _, k := range x.keys {
			db.keys.unlock(k)
		}
		x.end(closeBatch(x.batch))
	}
}

// await returns once c is durable, or with the store's poisoning: the commit may then
// never end.
func (db *DB) await(c *commitment) error {
	select {
	case <-c.done:
		return c.err
	case <-db.health.poisoned:
	}
	select {
	case <-c.done: // it ended all the same
		return c.err
	default:
		return unknown(db.health.sick())
	}
}

// apply makes a batch of the store's own durable.
func (db *DB) apply(b *pebble.Batch) error {
	c := &commitment{batch: b, done: make(chan struct{})}
	db.commits.add(c)
	return db.await(c)
}

func unknown(err error) error {
	return tga.Errorf(tga.StoreUnavailable, "commit, outcome unknown: %w", err)
}
