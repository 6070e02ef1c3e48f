package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/tgad/tgad/schemas/tga"
)

// timersLook is how often the daemon reads the timers again. A timer that is set in between fires
// late by at most that. It is also the pause while the store is frozen or fails.
const timersLook = time.Second

// untilDrain returns a context that ends when the daemon drains.
func (d *Daemon) untilDrain() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(d.life)
	go func() {
		select {
		case <-d.drain:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, stop
}

// awaitClassified waits until every open trace is classified. It returns false if ctx ends first.
func (d *Daemon) awaitClassified(ctx context.Context) bool {
	select {
	case <-d.classified:
		return true
	case <-ctx.Done():
		return false
	}
}

// runTimers serves the store's timers until the daemon drains: questions about calls in
// doubt, new attempts, expiries, compensations. When the daemon drains, a timer's call that is under
// way finishes. The other timers stay in the store, and the next daemon serves them.
func (d *Daemon) runTimers() {
	ctx, stop := d.untilDrain()
	defer stop()
	if !d.awaitClassified(ctx) {
		return
	}
	for ctx.Err() == nil {
		look, over := context.WithTimeout(ctx, timersLook)
		if d.db.Stats().Frozen == "" {
			err := d.rt.RunTimers(look, d.life)
			if look.Err() == nil {
				d.log.Error("timers are not served", "error", err)
				if errors.Is(err, tga.StoreUnavailable) {
					d.suspect()
				}
			}
		}
		<-look.Done()
		over()
	}
}
