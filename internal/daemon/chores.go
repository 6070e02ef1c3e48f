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

// Some work is triggered once: by the start, a request or a reload. If that attempt fails, because another service is
// away for a moment or the store is frozen, nothing may trigger the work again for as long as the daemon lives. Such
// work is a chore: from then on it is owed, and tried again after growing pauses until it succeeds.

// Pauses between two tries of a chore.
const (
	firstChore = time.Second
	lastChore  = time.Minute
)

// errNotNow says that a chore waits until the store takes writes again. It is not logged here: the store logs why it
// is frozen.
var errNotNow = errors.New("the store takes no writes now")

// chore is one kind of such work. do does nothing if there is nothing to do.
type chore struct {
	what  string
	do    func(context.Context) error
	woken chan struct{} // holds one element if the chore is owed
}

// chores are those of a daemon.
type chores struct {
	erasure *chore // finish an erasure that was begun, and remove the snapshots of erased working states
	takeUp  *chore // recover open traces that no live process is executing
	broken  *chore // recover traces whose recovery the store interrupted
	hints   *chore // ask trusted servers for their hints
	lists   *chore // remove an index that the configuration does not ask for any more

	mu  sync.Mutex
	ids map[tga.ID]error // the traces of broken, with the error that interrupted each
}

func newChore(what string, do func(context.Context) error) *chore {
	return &chore{what, do, make(chan struct{}, 1)}
}

// makeChores makes the chores. None is owed yet.
func (d *Daemon) makeChores(data string) {
	c := &d.chores
	*c = chores{
		ids: map[tga.ID]error{},
		erasure: newChore("finish an erasure", func(ctx context.Context) error {
			if d.can.archive == nil {
				return nil
			}
			return errors.Join(d.can.archive.FinishErasure(ctx), aside.ForgetErased(ctx, d.db, data))
		}),
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

// owe has the chore done, and tried again until it succeeds.
func (x *chore) owe() {
	select {
	case x.woken <- struct{}{}:
	default: // it is owed already
	}
}

// doChores does the owed chores until the daemon drains. The next daemon owes those that are not done then. Each chore has a
// goroutine of its own, so a slow chore does not delay the others.
func (d *Daemon) doChores() {
	ctx, stop := d.untilDrain()
	defer stop()
	if !d.awaitClassified(ctx) {
		return
	}
	var all sync.WaitGroup
	c := &d.chores
	for _, x := range []*chore{c.erasure, c.takeUp, c.broken, c.hints, c.lists} {
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

// until tries a chore until it succeeds. It logs each new error once, and the success after an error.
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
				d.log.Info("chore finished", "what", x.what)
			}
			return
		case tga.CodeOf(err) == tga.StateChecksumMismatch:
			d.log.Error("chore failed and is not retried", "what", x.what, "error", err)
			return // a person has to repair the store first
		case !errors.Is(err, errNotNow) && err.Error() != trouble:
			d.log.Warn("chore failed, will retry", "what", x.what, "error", err)
			trouble = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// brokenOff notes how the recovery of a trace ended, and reports whether it ended because the store was unavailable. Then the
// recovery is owed: the trace was released, so neither this process nor another of the same store would look for it.
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

// recoverBroken repeats the interrupted recoveries, and returns why one of them was interrupted again.
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
