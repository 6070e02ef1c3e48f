package daemon

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/schemas/tga"
)

// leftLook is how often on average a daemon looks for traces that another process of the same store
// left. Each pause is a random one from 0.5 to 1.5 times that, so that not all daemons look at once.
const leftLook = 2 * time.Second

// takeUpLeft recovers, until the daemon drains, the calls whose leases dead processes still held. If
// several daemons find the same call, the one that gets its lease executes it. A call whose process
// released the lease is not taken up: a person, a timer or the next caller settles it.
func (d *Daemon) takeUpLeft() {
	ctx, stop := d.untilDrain()
	defer stop()
	if !d.awaitClassified(ctx) {
		return
	}
	for trouble := ""; ; {
		select {
		case <-time.After(leftLook/2 + rand.N(leftLook)):
		case <-ctx.Done():
			return
		}
		if d.db.Stats().Frozen != "" {
			continue
		}
		err := d.takeUpOnce(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			trouble = ""
		case err.Error() != trouble:
			d.log.Warn("what other processes left is not looked for", "error", err)
			trouble = err.Error()
		}
	}
}

// takeUpOnce recovers the traces that are left now. The order is random, because other daemons
// recover the same traces at the same time.
func (d *Daemon) takeUpOnce(ctx context.Context) error {
	left, err := d.can.shared.Left(ctx)
	if err != nil {
		return err
	}
	rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	d.recoveries(ctx, len(left), func(i int) {
		// Another daemon may have recovered it as far as possible since. A second recovery would
		// repeat a question to a tool server, or a licensed send.
		if still, err := d.can.shared.IsLeft(ctx, left[i]); err != nil || !still {
			return // after an error, the next look finds the trace again
		}
		res, err := d.rt.Recover(d.life, left[i])
		if errors.Is(err, tga.StateLockAcquireFailed) {
			return // another daemon executes it
		}
		d.chores.brokenOff(left[i], err)
		d.log.Info("recovered what another process left", "trace", left[i], "state", res.State.String(), "code", string(tga.CodeOf(err)))
	})
	return nil
}

// build makes what the configuration describes. The locks of child processes are in the store's
// directory. If it has none, they are beside the socket, where only this daemon has files.
func (d *Daemon) build(o Options) (*assemble.Live, error) {
	a := assemble.Options{AtRest: o.readOnly, Store: o.Data, Logger: o.Logger, Clock: o.Clock}
	if o.Data == "" {
		gid, err := groupID(o.Config.Socket.Group)
		if err != nil {
			return nil, err
		}
		a.Children = func() (string, error) { return o.Socket + ".children", socketDir(filepath.Dir(o.Socket), gid) }
	}
	return assemble.Start(o.Config, a)
}
