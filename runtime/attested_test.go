package runtime_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var kinds = []ledger.LicenceKind{ledger.Park, ledger.Probe, ledger.DedupeKey, ledger.DedupeArgs, ledger.ReadOnly}

// sendsAgain reports whether a licence alone sends a call in doubt again.
func sendsAgain(kind ledger.LicenceKind) bool {
	return kind == ledger.DedupeKey || kind == ledger.DedupeArgs || kind == ledger.ReadOnly
}

// TestChangedLicenceSendsNoOldDoubt: a call that came into doubt under one licence is sent again
// only if the current licence allows it too, with and without a restart.
func TestChangedLicenceSendsNoOldDoubt(t *testing.T) {
	for _, then := range kinds {
		for _, now := range kinds {
			for _, restart := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v,%v,restart=%v", then, now, restart), func(t *testing.T) {
					policy := licence(then)
					policy.Resends = -1
					b := setup(t, runtime.Policy{}, func(b *bench) {
						b.opts.Policy = func(string, string) runtime.Policy { return policy }
					})
					b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
						if n == 1 {
							return runtime.Reply{}, errReset
						}
						return ok(`"paid"`), nil
					}
					res, err := b.call(charge("order-1"))
					wantCode(t, err, tga.EffectInDoubt)
					policy = licence(now)
					if restart {
						b.reopen()
					}
					_, err = b.rt.Recover(t.Context(), res.TraceID)
					// A read_only licence does not cover a call that was made as a write.
					if sendsAgain(then) && sendsAgain(now) && (now != ledger.ReadOnly || then == ledger.ReadOnly) {
						if err != nil {
							t.Error(err)
						}
						b.wantSends(2)
						return
					}
					wantCode(t, err, tga.EffectInDoubt)
					b.wantSends(1)
				})
			}
		}
	}
}

// TestLicenceTakenBackWhileACallRuns: a run reads the current licence before each of its re-sends.
func TestLicenceTakenBackWhileACallRuns(t *testing.T) {
	policy := licence(ledger.DedupeArgs)
	b := setup(t, policy, func(b *bench) {
		b.opts.Policy = func(string, string) runtime.Policy { return policy }
	})
	b.tool.answer = func(int, runtime.Call) (runtime.Reply, error) {
		policy = park
		return runtime.Reply{}, errReset
	}
	_, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(1)
}

// TestLicenceOfALaterAttemptCounts: of several attempts, the licence of the newest counts.
func TestLicenceOfALaterAttemptCounts(t *testing.T) {
	policy := licence(ledger.DedupeArgs)
	policy.Resends = -1
	b := setup(t, policy, func(b *bench) {
		b.opts.Policy = func(string, string) runtime.Policy { return policy }
	})
	b.tool.answer = unknown
	res, err := b.call(charge("order-1"))
	wantCode(t, err, tga.EffectInDoubt)
	policy = licence(ledger.DedupeKey)
	policy.Resends = -1
	_, err = b.rt.Recover(t.Context(), res.TraceID)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(2)
	policy = licence(ledger.DedupeArgs)
	b.advance(2 * time.Hour) // past the window of attempt 2
	b.reopen()
	_, err = b.rt.Recover(t.Context(), res.TraceID)
	wantCode(t, err, tga.EffectInDoubt)
	b.wantSends(2)
	if n := b.notes(res.TraceID, tga.NoteLicence); n != 1 {
		t.Errorf("%d notes about licences, want that of attempt 2", n)
	}
}

// TestFenceByTimeTakesBothLicences: if a probe says "did not run", that counts only when by both
// licences no attempt can arrive any more.
func TestFenceByTimeTakesBothLicences(t *testing.T) {
	for _, c := range []struct {
		then, now time.Duration
		sends     int
	}{
		{time.Minute, time.Minute, 2}, {time.Hour, time.Minute, 1}, {time.Minute, time.Hour, 1}, {0, time.Minute, 1}, {time.Minute, 0, 1},
	} {
		t.Run(fmt.Sprintf("%v,%v", c.then, c.now), func(t *testing.T) {
			policy := licence(ledger.Probe)
			policy.Licence.MaxInFlight = c.then
			p := &prober{answer: func(int, runtime.Call) (runtime.Probed, error) {
				return runtime.Probed{Answer: ledger.ProbeNotRan}, nil
			}}
			b := setup(t, policy, func(b *bench) {
				b.opts.Policy = func(string, string) runtime.Policy { return policy }
				b.opts.Monotonic = b.monotonic
				b.opts.Trust.Prober = func(string, string) runtime.Prober { return p }
			})
			b.tool.answer = func(n int, _ runtime.Call) (runtime.Reply, error) {
				if n == 1 {
					return runtime.Reply{}, errReset
				}
				return ok(`"paid"`), nil
			}
			res, err := b.call(charge("order-1"))
			wantCode(t, err, tga.EffectInDoubt)
			policy.Licence.MaxInFlight = c.now
			b.reopen()
			if _, err = b.rt.Recover(t.Context(), res.TraceID); err == nil {
				t.Error("it was sent before time could fence it")
			}
			b.advance(10 * time.Minute)
			if _, err = b.rt.Recover(t.Context(), res.TraceID); (err == nil) != (c.sends == 2) {
				t.Errorf("after ten minutes: %v", err)
			}
			b.wantSends(c.sends)
		})
	}
}
