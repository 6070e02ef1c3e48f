package runtime_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestClockThatIsSet: the wall clock is wrong when something begins, and is set right, or set wrong,
// afterwards, with and without a restart. Questions, new attempts, expiries and max_in_flight take the
// right time by the time that really passes: none is delayed by the error of the clock, and none comes
// too early.
func TestClockThatIsSet(t *testing.T) {
	serial.Test(t)
	const day = 24 * time.Hour
	for _, c := range []struct {
		name          string
		before, after time.Duration // by which the clock is set
	}{
		{"right", 0, 0}, {"100 d ahead and back", 100 * day, -100 * day}, {"2 h ahead and back", 2 * time.Hour, -2 * time.Hour}, {"1 d behind", 0, -day},
	} {
		for _, restart := range []bool{false, true} {
			// wrong makes the bench's clock wrong, begins something, and sets the clock.
			wrong := func(b *bench, begin func()) {
				b.advance(time.Minute)
				b.jump(c.before)
				begin()
				b.advance(30 * time.Second)
				b.jump(c.after)
				if restart {
					b.reopen()
				}
			}
			// until serves timers until over says so, and returns after how many minutes.
			until := func(b *bench, over func() bool) int {
				for n := range 5 * 60 {
					if _, err := b.rt.FireTimers(b.t.Context()); err != nil {
						b.t.Fatal(err)
					}
					if over() {
						return n
					}
					b.advance(time.Minute)
				}
				return 5 * 60
			}
			within := func(t *testing.T, what string, got, least, most int) {
				t.Helper()
				if got < least || got > most {
					t.Errorf("%s after %d minutes, want %d to %d", what, got, least, most)
				}
			}
			begin := func(b *bench, code tga.Code) func() {
				return func() {
					if _, err := b.call(charge("k")); tga.CodeOf(err) != code {
						b.t.Errorf("%v, want %q", err, code)
					}
				}
			}
			t.Run(fmt.Sprintf("%s, restart %v", c.name, restart), func(t *testing.T) {
				t.Run("a question and max_in_flight", func(t *testing.T) {
					b, p := probing(t, ledger.Licence{MaxInFlight: 10 * time.Minute}, func(int, runtime.Call) (runtime.Probed, error) {
						return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
					})
					b.opts.Monotonic = b.monotonic
					b.start()
					wrong(b, begin(b, tga.EffectInDoubt))
					b.tool.answer = nil
					within(t, "the re-send", until(b, func() bool { return b.tool.sends() == 2 }), 9, 60)
					if p.asked > 12 {
						t.Errorf("asked %d times", p.asked)
					}
				})
				t.Run("a new attempt", func(t *testing.T) {
					p := park
					p.Retry = runtime.Backoff{First: 10 * time.Minute, Attempts: 1}
					b := setup(t, p, func(b *bench) { b.opts.Monotonic, b.tool.answer = b.monotonic, busy })
					wrong(b, begin(b, ""))
					within(t, "the new attempt", until(b, func() bool { return b.tool.sends() == 2 }), 4, 11)
				})
				t.Run("an expiry", func(t *testing.T) {
					b := setup(t, park, needsApproval(1, 10*time.Minute), func(b *bench) { b.opts.Monotonic = b.monotonic })
					wrong(b, begin(b, tga.EscalationRequired))
					within(t, "the expiry", until(b, func() bool {
						asked, err := b.rt.Approvals(t.Context())
						return err == nil && len(asked) == 0
					}), 9, 11)
				})
				t.Run("a deadline", func(t *testing.T) {
					b := setup(t, park, needsApproval(1, 0), func(b *bench) { b.opts.Monotonic = b.monotonic })
					var late runtime.Result
					wrong(b, func() {
						req := charge("k")
						req.Deadline = b.clock().Add(10 * time.Minute)
						late, _ = b.call(req)
					})
					b.advance(10 * time.Minute)
					if _, err := b.rt.Decide(t.Context(), late.TraceID, yes); err != nil {
						t.Error(err)
					}
					b.wantSends(0)
					b.wantState(late.TraceID, tga.Denied)
					if n, _, by := b.rt.ClockJumps(); !restart && (n > 0) != (c.after != 0) || n > 0 && by != c.after {
						t.Errorf("%d jumps, by %v", n, by)
					}
				})
			})
		}
	}
}

// TestFreshPermitOutlivesAJumpOfTheClock: a permit is fresh for the right time, by the time that really
// passes. Setting the clock forward does not end it: otherwise a person could say that the call did not
// run while its executor is sending. Setting the clock back does not keep it fresh.
func TestFreshPermitOutlivesAJumpOfTheClock(t *testing.T) {
	for _, by := range []time.Duration{0, 2 * time.Hour, -2 * time.Hour, 100 * 24 * time.Hour} {
		b := setup(t, park, func(b *bench) { b.opts.Monotonic = b.monotonic })
		begun, err := b.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k"), BeginID: "one"})
		if err != nil || begun.Standing != runtime.BeginSend {
			t.Fatal(begun, err)
		}
		b.jump(by)
		notRun := func() error {
			_, err := b.rt.Resolve(t.Context(), begun.Result.TraceID, evidence(didNotRun))
			return err
		}
		b.advance(runtime.DefaultSendTimeout - time.Millisecond)
		wantCode(t, notRun(), tga.StateLockAcquireFailed)
		b.advance(time.Millisecond)
		if err := notRun(); err != nil {
			t.Errorf("set by %v: the permit is stale, and the word is refused: %v", by, err)
		}
	}
}

// TestWindowIsNotLongerForAClockSetBack: a licence lets a call be sent again inside a window. Setting the
// wall clock back, to the newest stored time or a later one, does not make the window longer.
func TestWindowIsNotLongerForAClockSetBack(t *testing.T) {
	for _, c := range []struct {
		passed, back time.Duration
		resent       bool
	}{
		{40 * time.Minute, 0, true}, {40 * time.Minute, 20 * time.Minute, true}, {40 * time.Minute, 40 * time.Minute, true},
		{70 * time.Minute, 0, false}, {70 * time.Minute, 30 * time.Minute, false}, {70 * time.Minute, 70 * time.Minute, false},
	} {
		p := licence(ledger.DedupeKey) // its window is an hour
		p.Resends = -1
		b := setup(t, p, func(b *bench) { b.opts.Monotonic, b.tool.answer = b.monotonic, unknown })
		_, err := b.call(charge("k"))
		wantCode(t, err, tga.EffectInDoubt)
		b.advance(c.passed)
		b.jump(-c.back)
		if _, err := b.call(charge("k")); (b.tool.sends() == 2) != c.resent {
			t.Errorf("after %v, set back by %v: %d sends, %v", c.passed, c.back, b.tool.sends(), err)
		}
	}
}

// TestSendOfAnExecutorBeginsBeforeTheDeadline: a permit that is handed out again says that its send begins before the call's
// deadline, by the time that really passes and by the wall clock.
func TestSendOfAnExecutorBeginsBeforeTheDeadline(t *testing.T) {
	for by, want := range map[time.Duration]time.Duration{0: 10 * time.Second, -time.Hour: 10 * time.Second, 4 * time.Second: 6 * time.Second} {
		p := park
		p.SendTimeout, p.PermitTime = time.Minute, time.Hour
		b := setup(t, p, func(b *bench) { b.opts.Monotonic = b.monotonic })
		req := runtime.BeginRequest{Request: charge("k"), BeginID: "one"}
		req.Deadline = b.clock().Add(2 * time.Minute)
		for _, want := range []time.Duration{time.Minute, want} {
			if got, err := b.rt.Begin(t.Context(), req); err != nil || got.Standing != runtime.BeginSend || got.SendWithin != want {
				t.Errorf("set by %v: %s within %v, want %v; %v", by, got.Standing, got.SendWithin, want, err)
			}
			b.advance(110 * time.Second)
			b.jump(by)
		}
	}
}
