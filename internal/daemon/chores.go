package daemon

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tgad/tgad/internal/aside"
	"github.com/tgad/tgad/schemas/tga"
)

// Some of what a daemon is to do has one occasion: its start, a request, a reload. Where that one attempt fails, for a
// neighbour that is away for a moment, say, or a store that is frozen, no other occasion may come for as long as the daemon
// lives. Such work is a chore: it is owed from then on, and done again after pauses that grow, until it is done.

// Pauses between two tries of what is owed.
const (
	firstChore = time.Second
	lastChore  = time.Minute
)

// errNotNow says that a chore waits for the store to take writes again. It is logged by who froze the store.
var errNotNow = errors.New("the store takes no writes now")

// chore is one of them. It does nothing where nothing is to be done.
type chore struct {
	what  string
	do    func(context.Context) error
	woken chan struct{} // has one where it is owed
}

// chores are those of a daemon.
type chores struct {
	erasure   *chore // that was begun and is not finished
	snapshots *chore // of working states that were erased
	takeUp    *chore // of open traces that nobody runs
	broken    *chore // recoveries that the store broke off
	hints     *chore // of trusted servers
	lists     *chore // the end of an index that is not asked for any more

	mu  sync.Mutex
	ids map[tga.ID]error // of broken, and what broke each off
}

func newChore(what string, do func(context.Context) error) *chore {
	return &chore{what, do, make(chan struct{}, 1)}
}

// makeChores says what the chores are.
func (d *Daemon) makeChores(data string) {
	c := &d.chores
	*c = chores{
		ids: map[tga.ID]error{},
		erasure: newChore("finish an erasure", func(ctx context.Context) error {
			if d.can.archive == nil {
				return nil
			}
			return d.can.archive.FinishErasure(ctx)
		}),
		snapshots: newChore("remove what an erased working state has left", func(ctx context.Context) error { return aside.ForgetErased(ctx, d.db, data) }),
		takeUp: newChore("take up what an earlier process left", func(ctx context.Context) error {
			open, err := d.rt.Classify(ctx)
			if err == nil {
				d.takeUp(ctx, open)
			}
			return err
		}),
		broken: newChore("recover calls whose recovery was broken off", d.recoverBroken),
		hints:  newChore("ask trusted servers for their hints", d.suggest),
		lists:  newChore("remove an index of lists that is not asked for any more", func(ctx context.Context) error { return d.can.listing.RemoveLists(ctx) }),
	}
}

// owe has the chore done, and again until it is done.
func (x *chore) owe() {
	select {
	case x.woken <- struct{}{}:
	default: // it is owed
	}
}

// doChores does what is owed until the daemon drains; the next one owes what is not done then. One that takes long does not keep
// the others.
func (d *Daemon) doChores() {
	ctx, stop := d.untilDrain()
	defer stop()
	if !d.awaitClassified(ctx) {
		return
	}
	var all sync.WaitGroup
	c := &d.chores
	for _, x := range []*chore{c.erasure, c.snapshots, c.takeUp, c.broken, c.hints, c.lists} {
		all.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-x.woken:
					x.until(ctx, d)
				}
			}
		})
	}
	all.Wait()
}

// until does a chore until it is done, and logs once that it is not, and once that it is.
func (x *chore) until(ctx context.Context, d *Daemon) {
	trouble := ""
	for pause := firstChore; ; pause = min(2*pause, lastChore) {
		err := errNotNow
		if d.db.Stats().Frozen == "" {
			err = x.do(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if trouble != "" {
				d.log.Info("it is done now", "what", x.what)
			}
			return
		case tga.CodeOf(err) == tga.StateChecksumMismatch:
			d.log.Error("it cannot be done", "what", x.what, "error", err)
			return // a person has to mend the store first
		case !errors.Is(err, errNotNow) && err.Error() != trouble:
			d.log.Warn("it is not done, and tried again", "what", x.what, "error", err)
			trouble = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// brokenOff takes a recovery that ended because the store was away, and reports whether this one is: the trace was let go of, so neither
// this process nor another one that shares the store would find it.
func (c *chores) brokenOff(id tga.ID, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, tga.StoreUnavailable) {
		delete(c.ids, id)
		return false
	}
	c.ids[id] = err
	c.broken.owe()
	return true
}

// recoverBroken makes those recoveries once more, and returns why one of them was broken off again.
func (d *Daemon) recoverBroken(ctx context.Context) error {
	c := &d.chores
	c.mu.Lock()
	ids := slices.Collect(maps.Keys(c.ids))
	c.mu.Unlock()
	d.recoveries(ctx, len(ids), func(i int) {
		res, err := d.rt.Recover(d.life, ids[i])
		if !d.chores.brokenOff(ids[i], err) {
			d.log.Info("recovered", "trace", ids[i], "state", res.State.String(), "code", string(tga.CodeOf(err)))
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.ids {
		return err
	}
	return nil
}
