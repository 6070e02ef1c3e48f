package runtime

import (
	"context"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// waits waits for others that have a key.
type waits struct {
	store     Store
	clock     times
	executors *executors
	ends      *ends
	counts    *counts
}

// await waits for another holder of the key, until the call's deadline at most, and
// lets the loop look again. A Begin does not wait for a remote executor, which may take as long as
// its permit lasts: its caller is told to ask again, as one that comes a moment later is.
func (w *waits) await(ctx context.Context, l *loop, key ledger.Key, seen *ledger.Record) error {
	// What is decided becomes durable before a wait of unknown length.
	if err := l.commit(ctx); err != nil {
		return err
	}
	if l.remote != nil && seen.Attempts.External && w.executors.alive(seen, l.policy) {
		return tga.Errorf(tga.IdempotencyKeyInFlight, "trace %s has the key %q, and attempt %d is with an executor", seen.TraceID, key.Key, seen.Attempts.Count).In(l.lease.TraceID)
	}
	waitCtx := ctx
	if until := w.until(l, seen); until != 0 {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithTimeout(ctx, until.Time().Sub(w.clock.Now()))
		defer cancel()
	}
	w.counts.waited.Add(1)
	l.awaited, l.supervised = seen.TraceID, false
	err := w.store.Await(waitCtx, key, *seen)
	switch {
	case err == nil:
		return nil
	case w.clock.pastDeadline(l):
		return w.ends.refuse(ctx, l, tga.IdempotencyKeyInFlight, "trace %s has the key %q and did not end before the deadline", seen.TraceID, key.Key)
	case ctx.Err() != nil:
		return tga.Errorf(tga.IdempotencyKeyInFlight, "trace %s has the key %q: %w", seen.TraceID, key.Key, ctx.Err()).In(l.lease.TraceID)
	case waitCtx.Err() != nil:
		return nil // a remote executor's time is over: look again
	}
	return err
}

// until is when a wait must look again by the clock: at the call's deadline, or
// when a remote executor is no longer taken to be at work. 0 is never.
func (w *waits) until(l *loop, seen *ledger.Record) tga.Millis {
	until := l.deadline
	if seen.Attempts.External {
		// With a stale permit somebody has the trace for a moment, whose release ends no wait
		// for a remote executor's call.
		end := max(w.executors.permitEnd(l, seen), w.clock.now()+tga.Millis(staleWait.Milliseconds()))
		if until == 0 || end < until {
			until = end
		}
	}
	return until
}

// staleWait is how long a run waits for whoever has a trace whose permit is stale.
const staleWait = 100 * time.Millisecond

// pause waits before a licensed re-send.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
