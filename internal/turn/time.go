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

// A turn's time is the time in which it works. It stands still while the turn waits for a
// person: from its Parked record until it goes on. That it goes on is recorded before
// anything is done in that time, so a crash gives a turn no more of it, and takes none.

// errTurnTime is the cause of a context that ended with its turn's time, and not because
// the caller would wait no longer.
var errTurnTime = errors.New("the turn's time is over")

// deadline is when the turn's time ends, for a turn that works from now on; 0 = never.
func (t *turn) deadline(now tga.Millis) tga.Millis { return t.shifted(t.init.Deadline, now) }

// until is when the time ends of all that is done for the agent that handed over; 0 = never.
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

// clock tells the time, and waits.
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

// timed bounds ctx by the turn's time.
func (c clock) timed(ctx context.Context, t *turn) (context.Context, context.CancelFunc) {
	now := c.wall()
	at := t.deadline(tga.MillisOf(now))
	if at == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, at.Time().Sub(now), errTurnTime)
}

// patience says that the caller of a turn waits no longer, which is no fact about the turn.
func patience(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTurnTime)
}

// ended tells the end of the turn's time from the end of the caller's patience, which
// leaves the turn as it is.
func ended(ctx context.Context, code tga.Code, err error) error {
	if ctx.Err() != nil && !patience(ctx) {
		return &Failure{Code: code, Message: errTurnTime.Error(), Err: err, Permanent: true}
	}
	return err
}

// untimed does not say when it ends, so that nobody waits for a lease that is held: who has
// it is at work on the trace.
type untimed struct{ context.Context }

// Deadline says that there is none.
func (untimed) Deadline() (at time.Time, ok bool) { return at, false }

// goOn ends a turn's wait where it has what it waited for, before anything is done. Where
// that can't be told beforehand, as of a call that the tool server is asked about, the first
// record of what follows ends it: see [turn.stage].
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

// waitsStill says that nobody has settled yet what a parked turn waits for.
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

// timing is a phase's, from its start to now.
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
