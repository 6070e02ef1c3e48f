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

// TestNewAttemptIsNotMadeBeforeTheServerWantsIt: after a retryable failure, or a call that was not
// sent, the new attempt is made when the server's Retry-After is over and not a millisecond earlier,
// also over a restart. A Retry-After of more than a day counts as a day. No attempt is made after the
// call's deadline. The result has the Retry-After.
func TestNewAttemptIsNotMadeBeforeTheServerWantsIt(t *testing.T) {
	serial.Test(t)
	const day = tga.MaxRetryAfter
	failed := func(asked time.Duration) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, RetryAfter: asked}, nil
	}
	unsent := func(asked time.Duration) (runtime.Reply, error) {
		e := tga.Errorf(tga.RateLimited, "refused: %w", runtime.ErrNotSent)
		e.RetryAfter = asked
		return runtime.Reply{}, e
	}
	for how, reply := range map[string]func(time.Duration) (runtime.Reply, error){"failed": failed, "not sent": unsent} {
		for _, c := range []struct{ asked, waits, deadline time.Duration }{
			{time.Hour, time.Hour, 0}, {time.Hour - time.Microsecond, time.Hour, 0},
			{day - time.Millisecond, day - time.Millisecond, 0}, {day, day, 0}, {day + time.Millisecond, day, 0}, {1 << 62, day, 0},
			{-time.Hour, 0, 0},
			{time.Hour, time.Hour, time.Hour + time.Millisecond}, {time.Hour, 0, time.Hour},
		} {
			t.Run(fmt.Sprintf("%s, asked for %v, deadline %v", how, c.asked, c.deadline), func(t *testing.T) {
				p := park
				p.Retry = runtime.Backoff{First: time.Second, Attempts: 1}
				b := setup(t, p, func(b *bench) {
					b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
						if n == 1 {
							return reply(c.asked)
						}
						return ok(`1`), nil
					}
				})
				req := charge("k")
				if c.deadline != 0 {
					req.Deadline = epoch.Add(c.deadline)
				}
				res := b.mustCall(req)
				asked := tga.ParseRetryAfterMS(tga.RetryAfterMS(c.asked))
				if read, err := b.rt.Result(t.Context(), res.TraceID); err != nil || res.RetryAfter != asked || read.RetryAfter != asked {
					t.Errorf("the result says %v, and read again %v, %v", res.RetryAfter, read.RetryAfter, err)
				}
				b.reopen()
				fire := func() {
					t.Helper()
					if _, err := b.rt.FireTimers(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				switch {
				case c.asked < 0:
					b.advance(time.Second)
				case c.waits == 0:
					b.advance(2 * day)
					fire()
					b.wantSends(1)
					return
				default:
					b.advance(c.waits - time.Millisecond)
					fire()
					b.wantSends(1)
					b.advance(time.Millisecond)
				}
				fire()
				b.wantSends(2)
			})
		}
	}
}

// TestResendWaitsForTheServer: a call in doubt whose licence allows a re-send is sent again no
// earlier than its server asked for, by the same run and by every later run. A run waits at most as
// long as a send may take; if the server asked for more, it leaves the call in doubt.
func TestResendWaitsForTheServer(t *testing.T) {
	const send = 20 * time.Millisecond
	for _, c := range []struct {
		asked, waits time.Duration
		restart      bool
	}{
		{time.Hour, time.Hour, false}, {time.Hour, time.Hour, true},
		{tga.MaxRetryAfter + time.Second, tga.MaxRetryAfter, false}, {tga.MaxRetryAfter + time.Second, tga.MaxRetryAfter, true},
	} {
		policy := licence(ledger.DedupeArgs)
		policy.SendTimeout = send
		b := setup(t, policy)
		b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
			if n > 1 {
				return ok(`1`), nil
			}
			e := tga.Errorf(tga.RateLimited, "it may have run")
			e.RetryAfter = c.asked
			return runtime.Reply{}, e
		}
		doubt := func(left time.Duration) {
			t.Helper()
			_, err := b.call(charge("k"))
			wantCode(t, err, tga.EffectInDoubt)
			if got := tga.RetryAfterOf(err); got != left {
				t.Errorf("asked for %v: told to wait %v, want %v", c.asked, got, left)
			}
			b.wantSends(1)
		}
		doubt(c.waits)
		if c.restart {
			b.reopen()
		}
		b.advance(c.waits - send - time.Millisecond)
		doubt(send + time.Millisecond) // to another call with the key, of what is left
		b.advance(time.Millisecond)
		before := time.Now()
		if res := b.mustCall(charge("k")); res.State != tga.Completed {
			t.Errorf("%+v", res)
		}
		if waited := time.Since(before); waited < send {
			t.Errorf("sent after %v, want no earlier than %v", waited, send)
		}
		b.wantSends(2)
	}
}

// TestRetryAfterThatAnExecutorReports: the Retry-After that a remote executor reports counts from the
// report. The executor reports it with an attempt that reached nobody, the first or a later one, or with
// one that it gives up. The next asker gets the rest of the time, also after a restart.
func TestRetryAfterThatAnExecutorReports(t *testing.T) {
	serial.Test(t)
	policy := licence(ledger.DedupeArgs)
	policy.PermitTime = time.Minute
	for _, restart := range []bool{false, true} {
		for _, c := range []struct{ asked, waits time.Duration }{{0, 0}, {-time.Hour, 0}, {time.Hour, time.Hour}, {tga.MaxRetryAfter + 1, tga.MaxRetryAfter}} {
			b := setup(t, policy)
			first := b.begin("first", "begin-1")
			res, err := b.rt.NotSent(t.Context(), first.Result.TraceID, first.Permit, "429", c.asked)
			if restart {
				b.reopen()
			}
			read, rerr := b.rt.Result(t.Context(), first.Result.TraceID)
			if err != nil || rerr != nil || res.RetryAfter != c.waits || read.RetryAfter != c.waits || res.State != tga.Failed {
				t.Errorf("the first attempt: %+v, %v, %+v, %v; want %v", res, err, read, rerr, c.waits)
			}
			for _, how := range []string{"given up", "taken back"} {
				p := policy
				p.Licence = ledger.Licence{Kind: ledger.Park}
				if how == "taken back" {
					p = policy
				}
				b := setup(t, p)
				begun := b.begin("k", "begin-1")
				trace := begun.Result.TraceID
				if how == "given up" {
					err = b.rt.GiveUp(t.Context(), trace, begun.Permit, "", c.asked)
				} else {
					b.advance(policy.PermitTime)
					begun = b.begin("k", "begin-2") // sent again, for nobody knows of the first
					_, err = b.rt.NotSent(t.Context(), trace, begun.Permit, "429", c.asked)
				}
				if err != nil {
					t.Fatal(err)
				}
				if restart {
					b.reopen()
				}
				const passed = time.Minute
				b.advance(passed)
				_, err := b.call(charge("k"))
				if want := max(c.waits-passed, 0); how == "given up" && tga.RetryAfterOf(err) != want {
					t.Errorf("restart %v, %s, asked for %v: told to wait %v, want %v", restart, how, c.asked, tga.RetryAfterOf(err), want)
				}
				if how == "taken back" {
					again := b.begin("k", "begin-3")
					if got, want := tga.RetryAfterOf(again.Cause), max(c.waits-passed, 0); got != want || (again.Standing == runtime.BeginSend) != (want == 0) {
						t.Errorf("restart %v, %s, asked for %v: %v, told to wait %v, want %v", restart, how, c.asked, again.Standing, got, want)
					}
				}
			}
		}
	}
}

// TestRetryAfterOfAResendThatWasNotSent: a call in doubt whose re-send certainly reached nobody
// is sent again no earlier than its server asked for then, also after a restart. A re-send that
// says nothing leaves what was asked for before.
func TestRetryAfterOfAResendThatWasNotSent(t *testing.T) {
	for _, restart := range []bool{false, true} {
		policy := licence(ledger.DedupeArgs)
		policy.SendTimeout = time.Millisecond
		b := setup(t, policy)
		asks := map[int]time.Duration{1: time.Minute, 2: time.Hour, 3: 0}
		b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
			if n > 3 {
				return ok(`1`), nil
			}
			e := tga.Errorf(tga.RateLimited, "not now")
			if n > 1 {
				e = tga.Errorf(tga.RateLimited, "not now: %w", runtime.ErrNotSent)
			}
			e.RetryAfter = asks[n]
			return runtime.Reply{}, e
		}
		inDoubt := func(sends int, left time.Duration) {
			t.Helper()
			if restart {
				b.reopen()
			}
			_, err := b.call(charge("k"))
			wantCode(t, err, tga.EffectInDoubt)
			if got := tga.RetryAfterOf(err); got != left {
				t.Errorf("restart %v: told to wait %v, want %v", restart, got, left)
			}
			b.wantSends(sends)
		}
		inDoubt(1, time.Minute)
		b.advance(time.Minute)
		inDoubt(2, time.Hour)
		b.advance(time.Minute)
		inDoubt(2, time.Hour-time.Minute)
		b.advance(time.Hour - time.Minute)
		inDoubt(3, 0)
		if restart {
			b.reopen()
		}
		if res := b.mustCall(charge("k")); res.State != tga.Completed {
			t.Errorf("%+v", res)
		}
		b.wantSends(4)
	}
}

// TestClockSetForwardEndsNoRest: the tool server asked for an hour, and the wall clock is set forward meanwhile. The new
// attempt is made when the hour is really over.
func TestClockSetForwardEndsNoRest(t *testing.T) {
	p := park
	p.Retry = runtime.Backoff{First: time.Second, Attempts: 1}
	b := setup(t, p, func(b *bench) { b.opts.Monotonic = b.monotonic })
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		return runtime.Reply{Status: tga.StatusFailure, Class: ledger.ClassRetryable, RetryAfter: time.Hour}, nil
	}
	b.mustCall(charge("k"))
	b.advance(time.Minute)
	b.jump(2 * time.Hour)
	fire := func(passed time.Duration, want int) {
		t.Helper()
		b.advance(passed)
		if _, err := b.rt.FireTimers(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.wantSends(want)
	}
	fire(0, 1)
	fire(58*time.Minute, 1)
	fire(2*time.Minute, 2)
}
