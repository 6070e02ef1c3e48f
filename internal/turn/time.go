package turn

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// A turn's time is the time in which it works. It is paused while the turn waits for a person:
// from the Parked record until the turn goes on. That the turn goes on is recorded before
// anything else is done in that time, so a crash neither adds to a turn's time nor takes from it.

// errTurnTime is the cause of a context that ended because the turn's time is over, not because
// the caller left.
var errTurnTime = errors.New("the turn's time is over")

// deadline returns when the turn's time ends if the turn works from now on; 0 = never.
func (t *turn) deadline(now tga.Millis) tga.Millis { return t.shifted(t.init.Deadline, now) }

// until returns the deadline of all the work for the turn's message; 0 = never.
func (t *turn) until(now tga.Millis) tga.Millis { return t.shifted(t.init.Until, now) }

func (t *turn) shifted(at, now tga.Millis) tga.Millis {
	if at == 0 {
		return 0
	}
	at += tga.Millis(t.waited)
	if t.paused != 0 {
		at += max(now-t.paused, 0)
	}
	return at
}

// clock tells the time and sleeps.
type clock struct {
	wall  func() time.Time
	sleep func(ctx context.Context, d time.Duration) error
}

func (c clock) now() tga.Millis { return tga.MillisOf(c.wall()) }

// overdue says that a turn's time is over.
func (c clock) overdue(t *turn) bool {
	at := t.deadline(c.now())
	return at != 0 && c.now() >= at
}

// timed bounds ctx by the turn's deadline.
func (c clock) timed(ctx context.Context, t *turn) (context.Context, context.CancelFunc) {
	now := c.wall()
	at := t.deadline(tga.MillisOf(now))
	if at == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, at.Time().Sub(now), errTurnTime)
}

// patience says that the caller of a turn no longer waits. That is not a fact about the turn.
func patience(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTurnTime)
}

// ended distinguishes two reasons why ctx ended. If the turn's time is over, it returns a
// permanent Failure. If the caller left, it returns err, and the turn stays as it is.
func ended(ctx context.Context, code tga.Code, err error) error {
	if ctx.Err() != nil && !patience(ctx) {
		return &Failure{Code: code, Message: errTurnTime.Error(), Err: err, Permanent: true}
	}
	return err
}

// untimed is a context that hides its deadline, so that the runtime does not wait for a lease
// that is held: the holder works on the trace.
type untimed struct{ context.Context }

// Deadline reports no deadline.
func (untimed) Deadline() (at time.Time, ok bool) { return at, false }

// goOn ends a turn's pause before anything else is done, if what the turn waited for is settled.
// If that cannot be known beforehand, as for a call about which the tool server must be asked,
// the first record that follows ends the pause: see [turn.stage].
func (r *Runner) goOn(ctx context.Context, t *turn) error {
	if t.paused == 0 {
		return nil
	}
	t.entered = r.now()
	waits, err := r.waitsStill(ctx, t)
	if err != nil || waits {
		return err
	}
	if err := t.resumed(); err != nil {
		return err
	}
	return t.j.commit(ctx)
}

// resumed stages that the turn goes on.
func (t *turn) resumed() error {
	phase, ok := t.phase()
	if !ok || t.paused == 0 || t.entered == 0 {
		return nil
	}
	body := resumedBody{WaitedMS: int64(max(t.entered-t.paused, 0))}
	r, err := t.j.stage(t.entered, phase, Resumed, body)
	if err != nil {
		return err
	}
	return t.apply(r)
}

// waitsStill says that what a parked turn waits for is not settled yet.
func (r *Runner) waitsStill(ctx context.Context, t *turn) (bool, error) {
	w := t.waits
	switch {
	case w == nil:
		return false, nil
	case w.Child != nil:
		child, err := r.fold(ctx, *w.Child)
		if err != nil || child.ended != nil {
			return false, err
		}
		return r.waitsStill(ctx, child)
	case w.TraceID != nil:
		return r.callWaits(ctx, *w.TraceID)
	}
	return true, nil
}

// callWaits says that a governed call waits for votes, or is in doubt.
func (r *Runner) callWaits(ctx context.Context, trace tga.ID) (bool, error) {
	res, err := r.rt.Result(ctx, trace)
	if err != nil || res.State != tga.Pending {
		return res.State == tga.Executing, err
	}
	raw, err := r.store.Attachment(ctx, chain.AttachApproval, keyspace.ApprovalKey(trace))
	if err != nil || raw == nil {
		return false, err
	}
	var a runtime.Approval
	if err := json.Unmarshal(raw, &a); err != nil {
		return false, tga.Errorf(tga.StateChecksumMismatch, "pending approval: %w", err).In(trace)
	}
	return a.Expires == 0 || r.now() < a.Expires, nil
}

// timing returns the timing of a phase that ends now.
func (c clock) timing(p Phase, started time.Time) PhaseTiming {
	return PhaseTiming{p, started, c.wall()}
}

// fits says that a turn has time left after a wait.
func (c clock) fits(t *turn, wait time.Duration) bool {
	at := t.deadline(c.now())
	return at == 0 || tga.MillisOf(c.wall().Add(wait)) < at
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
