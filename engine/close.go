package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tgad/tgad/engine/internal/guard"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal"
)

// opened has the parts that one open took, found and made. A call may use it only between
// [health.enter] and [health.leave]: while no call is inside, [DB.Unfreeze] replaces it and Close
// releases it.
type opened struct {
	of       *standing
	readOnly bool       // nothing can be written
	doubt    *tga.Error // why the log on disk may be incomplete

	lock      *dirLock
	unwatch   func() // ends the watch of the lock; may be nil
	files     *guard.Fenced
	wal       *wal.Log
	mark      *guard.Watermark // nil when read-only
	index     *index
	tempIndex *tempIndex // the temporary index of a store that is open for reading; may be nil

	traces    *traces
	filter    *keyFilter // nil if the store is read-only
	records   *records
	commits   *committer
	sealer    *sealer
	eraser    *eraser
	rewriting *rewriting
	rewriter  *rewriter // nil: nothing is rewritten in the background
}

// release gives back, in reverse order, everything that start took. A poisoned Pebble may never
// close: then release cuts it off from the disk, and its memory stays in use until the process
// ends. If one of its writes hangs too, release gives back nothing, and the directory stays locked.
func (o *opened) release() error {
	if o.unwatch != nil {
		o.unwatch()
	}
	err := o.rewriter.halt()
	if err == nil {
		o.rewriter = nil
		err = o.closePebble()
	}
	if errors.Is(err, errStuck) {
		shut, ferr := o.files.Fence(5 * time.Second)
		if !shut { // a write hangs in the kernel
			o.of.health.breakOff() // a second release will not wait for that write either
			return tga.Errorf(tga.StoreUnavailable, "close %s: %w", o.of.dir, err)
		}
		if o.wal != nil {
			o.wal.Abandon() // its writer is blocked at the fence
		}
		err, o.wal = errors.Join(o.of.health.sick(), ferr), nil
	}
	if o.wal != nil {
		err = errors.Join(err, o.wal.Close())
	}
	o.wal = nil
	if o.mark != nil {
		err = errors.Join(err, o.mark.Close())
		o.mark = nil
	}
	if o.files != nil {
		err = errors.Join(err, o.files.Close())
		o.files = nil
	}
	err = errors.Join(err, o.tempIndex.remove())
	o.tempIndex = nil
	err = errors.Join(err, o.lock.release())
	o.lock = nil
	return err
}

var errStuck = errors.New("the store was poisoned and its writers did not stop")

// closePebble waits for the commits under way, ends the log and closes Pebble. A poisoned Pebble
// may hold a mutex forever: then closePebble returns errStuck.
func (o *opened) closePebble() error {
	x, commits, filter := o.index, o.commits, o.filter
	o.index, o.commits, o.filter = nil, nil, nil
	filter.giveUp()
	select {
	case <-o.of.health.broken:
		if o.files != nil {
			return errStuck
		}
	default:
	}
	if x == nil {
		return nil
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("panic in pebble: %v", r)
			}
		}()
		if commits != nil {
			commits.stop()
			<-commits.ended
		}
		filter.halt()
		done <- errors.Join(o.endLog(x.p, commits), x.p.Close())
	}()
	closed := func(err error) error {
		if err != nil {
			return tga.Errorf(tga.StoreUnavailable, "close %s: %w", o.of.dir, err)
		}
		return nil
	}
	select {
	case err := <-done:
		return closed(err)
	case <-o.of.health.poisoned: // poisoned before, or by the close itself
	}
	select {
	case err := <-done:
		return closed(err)
	case <-o.of.health.broken:
		return errStuck
	case <-time.After(5 * time.Second): // a mutex that a panic left locked
		return errStuck
	}
}

// endLog writes the last record of the log, which marks a clean end, and flushes the index up
// to it. So the next open has nothing to index.
func (o *opened) endLog(p *pebble.DB, commits *committer) error {
	if commits == nil || o.mark == nil || o.of.health.sick() != nil { // open for reading, or stopped
		return nil
	}
	at, err := o.wal.Finish()
	if err == nil {
		err = o.mark.Advance(at.Group, at.Sum)
	}
	if err != nil {
		return err
	}
	x := &indexer{b: p.NewBatch(), keys: commits.rows.keys, sum: commits.rows.sum}
	x.landmark(o.of.order.durable()+1, at)
	if err := x.commit(position{line: commits.line, at: at}); err != nil {
		return closing(x.b, err)
	}
	return errors.Join(closeBatch(x.b), p.Flush())
}
