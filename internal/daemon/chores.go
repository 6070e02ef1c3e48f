package daemon

import (
	"context"
	"errors"
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
	hints     *chore // of trusted servers
	lists     *chore // the end of an index that is not asked for any more
}

func newChore(what string, do func(context.Context) error) *chore {
	return &chore{what, do, make(chan struct{}, 1)}
}

// makeChores says what the chores are.
func (d *Daemon) makeChores(data string) {
	d.chores = chores{
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
		hints: newChore("ask trusted servers for their hints", d.suggest),
		lists: newChore("remove an index of lists that is not asked for any more", func(ctx context.Context) error { return d.can.listing.RemoveLists(ctx) }),
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
	for _, x := range []*chore{c.erasure, c.snapshots, c.takeUp, c.hints, c.lists} {
		all.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-x.woken:
					d.doChore(ctx, x)
				}
			}
		})
	}
	all.Wait()
}

// doChore does a chore until it is done, and logs once that it is not, and once that it is.
func (d *Daemon) doChore(ctx context.Context, x *chore) {
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
