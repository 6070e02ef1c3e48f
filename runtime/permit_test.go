package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestPermitIsHandedOutOnlyWhileItIsFresh: a repeated begin gets the same permit only while the permit
// is fresh, and never with more time for the send than the permit still has. Afterwards it gets what
// every other begin gets: in doubt, or a new attempt if the licence allows a re-send. The permit's time
// may be shorter than the tool's send time-out, which the executor does not see: the smaller of both
// bounds its send.
func TestPermitIsHandedOutOnlyWhileItIsFresh(t *testing.T) {
	serial.Test(t)
	const send = 30 * time.Second
	for _, permit := range []time.Duration{send - time.Millisecond, send, send + time.Millisecond, 10 * send} {
		for kind, then := range map[ledger.LicenceKind]runtime.Standing{
			ledger.Park: runtime.BeginInDoubt, ledger.Probe: runtime.BeginInDoubt,
			ledger.DedupeKey: runtime.BeginSend, ledger.DedupeArgs: runtime.BeginSend, ledger.ReadOnly: runtime.BeginSend,
		} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v of %v, %s, restart %v", permit, send, kind, restart), func(t *testing.T) {
					policy := licence(kind)
					policy.SendTimeout, policy.PermitTime = send, permit
					b := setup(t, policy)
					first := b.begin("k", "one")
					for _, passed := range []time.Duration{0, permit / 2, permit - time.Millisecond} {
						b.advance(epoch.Add(passed).Sub(b.clock()))
						if restart {
							b.reopen()
						}
						again := b.begin("k", "one")
						b.wantStanding(again, runtime.BeginSend)
						if want := min(send, permit-passed); again.Permit != first.Permit || again.Attempt != 1 || again.SendWithin != want {
							t.Errorf("after %v: attempt %d, the same permit %v, to be sent within %v, want %v",
								passed, again.Attempt, again.Permit == first.Permit, again.SendWithin, want)
						}
					}
					b.advance(time.Millisecond)
					b.wantStaleAnswer(first, then)
				})
			}
		}
	}
}

// TestPermitOfAnExecutorThatIsGoneIsNotHandedOut: a permit is stale before its time is over if its
// executor gave up, or if the lock that the executor named is free. A restart makes no permit fresh again.
func TestPermitOfAnExecutorThatIsGoneIsNotHandedOut(t *testing.T) {
	for kind, then := range map[ledger.LicenceKind]runtime.Standing{
		ledger.Park: runtime.BeginInDoubt, ledger.DedupeArgs: runtime.BeginSend,
	} {
		for name, end := range map[string]func(*clients, runtime.Begun){
			"gave up": func(c *clients, g runtime.Begun) {
				if err := c.rt.GiveUp(t.Context(), g.Result.TraceID, g.Permit, "", 0); err != nil {
					t.Fatal(err)
				}
			},
			"is dead": func(c *clients, _ runtime.Begun) { c.die("A") },
		} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, %s, restart %t", kind, name, restart), func(t *testing.T) {
					policy := licence(kind)
					policy.PermitTime = time.Hour
					c := withClients(t, policy)
					c.come("A")
					begin := func() runtime.Begun {
						t.Helper()
						g, err := c.rt.Begin(t.Context(), runtime.BeginRequest{Request: charge("k"), BeginID: "one", Connection: runtime.Connection{Executor: "A"}})
						if err != nil {
							t.Fatal(err)
						}
						return g
					}
					first := begin()
					if again := begin(); again.Permit != first.Permit {
						t.Errorf("while it is at work: %+v", again)
					}
					end(c, first)
					if restart {
						c.reopen()
					}
					c.wantStaleAnswer(first, then)
				})
			}
		}
	}
}

// TestPermitThatTookItsTimeToTheDiskIsNobodys: the mark of an attempt becomes durable after its permit's
// time is over. The permit is given to nobody, and the attempt counts as not sent.
func TestPermitThatTookItsTimeToTheDiskIsNobodys(t *testing.T) {
	for _, took := range []time.Duration{time.Minute - time.Millisecond, time.Minute} {
		b := setup(t, runtime.Policy{PermitTime: time.Minute, SendTimeout: time.Hour}, func(b *bench) { b.opts.Monotonic = b.monotonic })
		store := &afterAppend{Store: b.db, then: func(chain.Lease, chain.Batch) { b.advance(took) }}
		b.store = store
		b.start()
		g := b.begin("k", "one")
		if took < time.Minute {
			b.wantStanding(g, runtime.BeginSend)
			if g.SendWithin != time.Minute-took {
				t.Errorf("to be sent within %v", g.SendWithin)
			}
			continue
		}
		if g.Standing != runtime.BeginServe || g.Permit != (runtime.Permit{}) || g.Result.State != tga.Failed || g.Result.Class != ledger.ClassNotSent {
			t.Errorf("%+v", g)
		}
		store.then = nil
		b.wantStanding(b.begin("k", "two"), runtime.BeginSend)
	}
}

// wantStaleAnswer repeats the begin "one" of the key "k" whose permit is stale.
func (b *bench) wantStaleAnswer(first runtime.Begun, want runtime.Standing) {
	b.t.Helper()
	late := b.begin("k", "one")
	b.wantStanding(late, want)
	if late.Permit == first.Permit || late.Result.TraceID != first.Result.TraceID {
		b.t.Errorf("the stale permit %v, trace %s, first %s", late.Permit == first.Permit, late.Result.TraceID, first.Result.TraceID)
	}
	switch want {
	case runtime.BeginSend:
		if late.Attempt != 2 {
			b.t.Errorf("attempt %d, want one of its own", late.Attempt)
		}
	default:
		wantCode(b.t, late.Cause, tga.EffectInDoubt)
		if late.Permit != (runtime.Permit{}) {
			b.t.Errorf("a permit in doubt: %s", late.Permit)
		}
	}
}

// TestGivenUpIsForgotten: what the store has about an attempt that was given up is deleted with the end of its trace,
// however that ends, and a late word about a trace that has ended writes nothing.
func TestGivenUpIsForgotten(t *testing.T) {
	ctx := context.Background()
	for how, end := range map[string]func(*clients, runtime.Begun) error{
		"answered": func(c *clients, g runtime.Begun) error { _, err := c.finish(g, ok(`1`)); return err },
		"taken back": func(c *clients, g runtime.Begun) error {
			_, err := c.rt.NotSent(ctx, g.Result.TraceID, g.Permit, "refused", 0)
			return err
		},
		"abandoned": func(c *clients, g runtime.Begun) error {
			_, err := c.rt.Abandon(ctx, g.Result.TraceID, "ann", "nobody knows")
			return err
		},
	} {
		c := withClients(t, licence(ledger.Park))
		c.come("A")
		g := c.beginAs("A")
		giveUp(c, g)
		row := func() []byte {
			t.Helper()
			raw, err := c.db.Attachment(ctx, chain.AttachStream, keyspace.ExecutorKey(g.Result.TraceID))
			if err != nil {
				t.Fatal(err)
			}
			return raw
		}
		if row() == nil {
			t.Errorf("%s: nothing is known before the end", how)
		}
		if err := end(c, g); err != nil {
			t.Fatal(err)
		}
		giveUp(c, g) // late
		if raw := row(); raw != nil {
			t.Errorf("%s: %x is left after the end", how, raw)
		}
	}
}
