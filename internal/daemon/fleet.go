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

// leftLook is how often a daemon looks for what another process of the same store left behind; from
// half of it to one and a half, so that not all look at once.
const leftLook = 2 * time.Second

// takeUpLeft recovers, until the daemon drains, the calls of processes that are gone. Of many
// daemons that find the same call, the one that gets its lease runs it. What a process let go of
// is not taken up: a person, a timer or the next caller settles it.
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

// takeUpOnce recovers what is left now, in a random order: another daemon is at it too.
func (d *Daemon) takeUpOnce(ctx context.Context) error {
	left, err := d.can.shared.Left(ctx)
	if err != nil {
		return err
	}
	rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	d.recoveries(ctx, len(left), func(i int) {
		// Another daemon may have run it to where it can go no further, and a question to a tool
		// server or a licensed send would be made twice.
		if still, err := d.can.shared.IsLeft(ctx, left[i]); err != nil || !still {
			return // with an error it is looked at again
		}
		res, err := d.rt.Recover(d.life, left[i])
		if errors.Is(err, tga.StateLockAcquireFailed) {
			return // another daemon runs it
		}
		d.chores.brokenOff(left[i], err)
		d.log.Info("recovered what another process left", "trace", left[i], "state", res.State.String(), "code", string(tga.CodeOf(err)))
	})
	return nil
}

// build makes what the configuration describes. A store in no directory has none for the locks of
// child processes: those lie beside the socket, which is this daemon's alone.
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
