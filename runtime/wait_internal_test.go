package runtime

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/clock"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
)

// TestWaitsEndWhenThereIsSomethingToSee: a wait for another trace ends with the call's deadline. A
// wait for a remote executor also ends when its permit goes stale; if that is stale already, it ends
// after a short time. So it neither spins nor waits too long.
func TestWaitsEndWhenThereIsSomethingToSee(t *testing.T) {
	now := time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)
	at := func(d time.Duration) tga.Millis { return tga.MillisOf(now.Add(d)) }
	c := times{clock.New(func() time.Time { return now }, nil)}
	w := &waits{clock: c, executors: &executors{clock: c}}
	const permit = time.Minute
	for name, c := range map[string]struct {
		external         bool
		begun            time.Duration // the newest attempt, before now
		deadline, wanted tga.Millis
	}{
		"for ever":                         {},
		"deadline":                         {deadline: at(time.Hour), wanted: at(time.Hour)},
		"permit":                           {external: true, begun: time.Second, wanted: at(permit - time.Second)},
		"permit before the deadline":       {external: true, deadline: at(permit + time.Millisecond), wanted: at(permit)},
		"permit until the deadline":        {external: true, deadline: at(permit), wanted: at(permit)},
		"deadline before the permit":       {external: true, deadline: at(permit - time.Millisecond), wanted: at(permit - time.Millisecond)},
		"permit is almost over":            {external: true, begun: permit - staleWait - time.Millisecond, wanted: at(staleWait + time.Millisecond)},
		"permit is over while it is asked": {external: true, begun: permit - staleWait + time.Millisecond, wanted: at(staleWait)},
		"permit is over":                   {external: true, begun: time.Hour, wanted: at(staleWait)},
	} {
		l := &loop{deadline: c.deadline, policy: Policy{PermitTime: permit}}
		record := &ledger.Record{Attempts: ledger.Attempts{External: c.external, Newest: at(-c.begun)}}
		if got := w.until(l, record); got != c.wanted {
			t.Errorf("%s: until %v, want %v", name, got, c.wanted)
		}
	}
}

// TestPauseOfNothingLooksAtNothing: a pause of zero ignores the end of the context: if the caller left,
// the loop itself decides about the re-send. A pause that waits ends with its caller.
func TestPauseOfNothingLooksAtNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		for _, d := range []time.Duration{0, -time.Second} {
			if err := pause(ctx, d); err != nil {
				t.Fatalf("a pause of %v: %v", d, err)
			}
		}
	}
	if err := pause(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPermitAgesAreBounded: what is remembered of permits whose calls never end here is forgotten, and the log counts again.
// What still counts is not forgotten, however much that is.
func TestPermitAgesAreBounded(t *testing.T) {
	now := time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)
	e := &executors{clock: times{clock.New(func() time.Time { return now }, nil)}}
	records := make([]*ledger.Record, 10*keptAges)
	for i := range records {
		records[i] = &ledger.Record{TraceID: derivedID("test", tga.ID{}, tga.Sum([]byte{byte(i), byte(i >> 8)})), Attempts: ledger.Attempts{Count: 1, Newest: tga.MillisOf(now)}}
		e.tell(records[i], time.Second)
		now = now.Add(time.Minute)
		if len(e.ages) > keptAges+1 {
			t.Fatalf("%d ages after %d permits", len(e.ages), i+1)
		}
	}
	now = now.Add(time.Hour)
	for i, r := range records {
		e.tell(r, 2*time.Hour)
		if len(e.ages) < i+1 {
			t.Fatalf("%d ages of %d permits that are fresh", len(e.ages), i+1)
		}
	}
}
