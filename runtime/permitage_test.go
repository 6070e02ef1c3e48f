package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestReloadShortensNoPermit: an executor is told within how long its send must begin. Until then its permit
// is fresh, also if the configuration has a shorter permit_time or send_timeout by now: nobody else gets a
// permit, and nobody says that the call did not run.
func TestReloadShortensNoPermit(t *testing.T) {
	const told = 30 * time.Second
	for _, c := range []struct {
		name          string
		before, after runtime.Policy
		stale         time.Duration // age from which the permit is stale
	}{
		{"shorter permit_time", runtime.Policy{PermitTime: told}, runtime.Policy{PermitTime: time.Second}, told},
		{"shorter send_timeout", runtime.Policy{SendTimeout: told}, runtime.Policy{SendTimeout: time.Second}, told},
		{"only what was told counts", runtime.Policy{PermitTime: time.Hour, SendTimeout: told}, runtime.Policy{PermitTime: time.Second}, told},
		{"longer permit_time", runtime.Policy{PermitTime: told}, runtime.Policy{PermitTime: 2 * told}, 2 * told},
		{"the same", runtime.Policy{PermitTime: told}, runtime.Policy{PermitTime: told}, told},
	} {
		for _, kind := range []ledger.LicenceKind{ledger.Park, ledger.DedupeArgs} {
			t.Run(c.name+", "+kind.String(), func(t *testing.T) {
				now := c.before
				now.Licence, now.LicenceSet = ledger.Licence{Kind: kind}, true
				b := setup(t, now, func(b *bench) {
					b.opts.Policy = func(string, string) runtime.Policy { return now }
					b.opts.Monotonic = b.monotonic
				})
				first := b.begin("k", "one")
				if b.wantStanding(first, runtime.BeginSend); first.SendWithin != told {
					t.Errorf("to be sent within %v", first.SendWithin)
				}
				licence := now.Licence
				now = c.after
				now.Licence, now.LicenceSet = licence, true
				notRun := func() error {
					_, err := b.rt.Resolve(t.Context(), first.Result.TraceID, evidence(didNotRun))
					return err
				}
				for _, age := range []time.Duration{0, told / 2, c.stale - time.Millisecond} {
					b.advance(epoch.Add(age).Sub(b.clock()))
					b.wantStanding(b.begin("k", fmt.Sprint("another at ", age)), runtime.BeginWait)
					wantCode(t, notRun(), tga.StateLockAcquireFailed)
					if again := b.begin("k", "one"); again.Permit != first.Permit || age+again.SendWithin > c.stale {
						t.Errorf("after %v: %v, to be sent within %v", age, again.Standing, again.SendWithin)
					}
				}
				b.advance(time.Millisecond)
				if kind == ledger.DedupeArgs {
					b.wantStanding(b.begin("k", "two"), runtime.BeginSend)
				} else if err := notRun(); err != nil {
					t.Errorf("the permit is stale: %v", err)
				}
			})
		}
	}
}

// TestPermitsAreGivenWhileTheClockIsBehind: the wall clock was set back, so the store has newer times than it.
// Executors get their permits all the same, for the whole time, and a stale one is stale.
func TestPermitsAreGivenWhileTheClockIsBehind(t *testing.T) {
	const day = 24 * time.Hour
	for _, restart := range []bool{false, true} {
		b := setup(t, runtime.Policy{PermitTime: time.Minute, SendTimeout: time.Hour}, func(b *bench) { b.opts.Monotonic = b.monotonic })
		b.advance(time.Minute)
		b.mustCall(charge("before"))
		b.jump(-day)
		if restart {
			b.reopen()
		}
		b.advance(10 * time.Minute)
		g := b.begin("k", "one")
		if b.wantStanding(g, runtime.BeginSend); g.SendWithin != time.Minute {
			t.Errorf("restart %v: to be sent within %v", restart, g.SendWithin)
		}
		notRun := func() error {
			_, err := b.rt.Resolve(t.Context(), g.Result.TraceID, evidence(didNotRun))
			return err
		}
		b.advance(time.Minute - time.Millisecond)
		wantCode(t, notRun(), tga.StateLockAcquireFailed)
		b.advance(time.Millisecond)
		if err := notRun(); err != nil {
			t.Errorf("restart %v: %v", restart, err)
		}
	}
}

// watchedAwait tells how long a run would wait for another trace.
type watchedAwait struct {
	runtime.Store
	waits func(time.Duration)
}

func (s watchedAwait) Await(ctx context.Context, key ledger.Key, seen ledger.Record) error {
	if until, bounded := ctx.Deadline(); bounded {
		s.waits(time.Until(until))
	} else {
		s.waits(0)
	}
	return nil
}

// TestNobodyWaitsLongerThanThePermit: a call waits for the executor that has its key no longer than the permit is
// fresh, also while the wall clock is behind the time of the attempt.
func TestNobodyWaitsLongerThanThePermit(t *testing.T) {
	for _, by := range []time.Duration{0, -24 * time.Hour} {
		b := setup(t, runtime.Policy{PermitTime: time.Minute}, func(b *bench) { b.opts.Monotonic = b.monotonic })
		waited := 0
		b.store = watchedAwait{b.db, func(d time.Duration) {
			if waited++; d <= 0 || d > time.Minute {
				t.Errorf("set by %v: it waits %v", by, d)
			}
			b.advance(time.Minute)
		}}
		b.start()
		b.wantStanding(b.begin("k", "one"), runtime.BeginSend)
		b.jump(by)
		_, err := b.call(charge("k"))
		if wantCode(t, err, tga.EffectInDoubt); waited == 0 {
			t.Error("it did not wait")
		}
	}
}

// slept returns t as a moment before the machine slept for d: since then the wall clock has gone on, and the monotonic
// clock has not.
func slept(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	wall := (*uint64)(unsafe.Pointer(&at)) // the first field: 33 bits of seconds above 30 bits of nanoseconds
	was := at
	if *wall -= uint64(d/time.Second) << 30; !at.Round(0).Equal(was.Round(0).Add(-d)) || !at.Equal(at) || was.Sub(at) != 0 {
		t.Fatal("package time has another layout by now: set the wall clock of a moment back in another way")
	}
	return at
}

// TestExecutorWhoseMachineSleptIsLate: the time in which a send must begin goes on while the executor's machine sleeps.
func TestExecutorWhoseMachineSleptIsLate(t *testing.T) {
	for d, late := range map[time.Duration]bool{0: false, time.Hour: false, 3 * time.Hour: true} {
		b := runtime.Begun{SendWithin: 2 * time.Hour}
		if b.Late(slept(t, time.Now(), d)) != late {
			t.Errorf("slept %v: late is %v", d, !late)
		}
	}
}
