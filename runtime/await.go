package runtime

import (
	"context"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// waits waits for another trace that has a key.
type waits struct {
	store     Store
	clock     times
	executors *executors
	ends      *ends
	counts    *counts
}

// await waits for the trace that has the key, until the call's deadline at most, and then lets
// the loop read the record again. A Begin does not wait for a remote executor, which may take as
// long as its permit is fresh: its caller is told to ask again, like a caller that comes a moment
// later.
func (w *waits) await(ctx context.Context, l *loop, key ledger.Key, seen *ledger.Record) error {
	// The staged decision becomes durable before a wait of unknown length.
	if err := l.commit(ctx); err != nil {
		return err
	}
	if l.remote != nil && seen.Attempts.External && w.executors.alive(seen, l.policy) {
		return tga.Errorf(tga.IdempotencyKeyInFlight, "trace %s has the key %q, and a remote executor is executing attempt %d", seen.TraceID, key.Key, seen.Attempts.Count).In(l.lease.TraceID)
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
		return nil // the permit of a remote executor is stale: read the record again
	}
	return err
}

// until returns when the wait must end by the clock: at the call's deadline, or when the permit
// of a remote executor goes stale. 0 means never.
func (w *waits) until(l *loop, seen *ledger.Record) tga.Millis {
	until := l.deadline
	if seen.Attempts.External {
		// If the permit is stale, somebody has the lease of the trace for a moment. Its release
		// does not end the wait for a remote executor's call, so look again soon.
		end := tga.MillisOf(w.clock.Now().Add(max(w.executors.permitLeft(seen, l.policy), staleWait)))
		if until == 0 || end < until {
			until = end
		}
	}
	return until
}

// staleWait is how long a run waits for the holder of a trace whose permit is stale.
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
