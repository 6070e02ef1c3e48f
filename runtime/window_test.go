package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// slowMark is a store whose append of an attempt's mark takes a time of the test's choice:
// a disk that stalls, or a process that was stopped.
type slowMark struct {
	runtime.Store
	pass func()
}

func (s *slowMark) Append(ctx context.Context, l chain.Lease, b chain.Batch) (chain.Appended, error) {
	for _, n := range b.Notes {
		if n.Kind == tga.NoteAttempt {
			s.pass()
		}
	}
	return s.Store.Append(ctx, l, b)
}

// TestResendAfterItsWindowClosedIsNotMade: the window of a dedupe_key licence is an hour, including
// a margin of a minute and 30 s for the send. The re-send was decided at once. The time until its
// mark was durable counts as well.
func TestResendAfterItsWindowClosedIsNotMade(t *testing.T) {
	const last = time.Hour - time.Minute - 30*time.Second
	for _, c := range []struct {
		stall time.Duration
		sends int
		state tga.State
	}{
		{last - time.Millisecond, 2, tga.Completed},
		{last, 1, tga.Executing},
		{last + time.Hour, 1, tga.Executing},
		{-time.Hour, 1, tga.Executing}, // a clock that went back licenses nothing
	} {
		policy := licence(ledger.DedupeKey)
		policy.Resends = -1
		b := setup(t, policy)
		b.tool.answer = func(n int, c runtime.Call) (runtime.Reply, error) {
			if n == 1 {
				return runtime.Reply{}, errReset
			}
			return ok(`{}`), nil
		}
		res, err := b.call(charge("order-1"))
		wantCode(t, err, tga.EffectInDoubt)

		b.store = &slowMark{b.db, func() { b.advance(c.stall) }}
		b.start()
		_, err = b.rt.Recover(context.Background(), res.TraceID)
		if c.state == tga.Completed && err != nil {
			t.Errorf("stalled %v: %v", c.stall, err)
		} else if c.state != tga.Completed {
			wantCode(t, err, tga.EffectInDoubt)
		}
		b.wantSends(c.sends)
		b.wantState(res.TraceID, c.state)
	}
}
