package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestKeyOfAnotherSubject: the first subject has the call of a key, in whatever state. A call of another
// subject with that key is neither served nor sent. If nothing was sent, the key is free.
func TestKeyOfAnotherSubject(t *testing.T) {
	as := func(subject string) func(*runtime.BeginRequest) {
		return func(r *runtime.BeginRequest) { r.Key, r.Connection.Subject = "order-7", subject }
	}
	for name, to := range map[string]struct {
		bring func(*clients, runtime.Begun)
		free  bool
	}{
		"open":      {func(*clients, runtime.Begun) {}, false},
		"in doubt":  {giveUp, false},
		"answered":  {func(c *clients, g runtime.Begun) { c.answer(g) }, false},
		"abandoned": {abandon, false},
		"not sent": {func(c *clients, g runtime.Begun) {
			if _, err := c.rt.NotSent(context.Background(), g.Result.TraceID, g.Permit, "401", 0); err != nil {
				c.t.Fatal(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := withClients(t, runtime.Policy{})
			c.come("shim")
			first := c.beginAs("shim", as("alice"))
			if first.Standing != runtime.BeginSend {
				t.Fatalf("%s", first.Standing)
			}
			to.bring(c, first)
			for _, other := range []string{"bob", ""} {
				b := c.beginAs("shim", as(other))
				if to.free {
					if b.Standing != runtime.BeginSend {
						t.Errorf("%q: %s, %v", other, b.Standing, b.Cause)
					}
					return // from now on the key belongs to this subject
				}
				if b.Standing != runtime.BeginConflict || !errors.Is(b.Cause, tga.IdempotencyKeyConflict) {
					t.Errorf("%q: %s, %v", other, b.Standing, b.Cause)
				}
				if b.Cause != nil && strings.Contains(b.Cause.Error(), first.Result.TraceID.String()) {
					t.Errorf("%q is told of the other's trace: %v", other, b.Cause)
				}
				// The other subject also cannot get it by the trace id, which it cannot guess.
				req := runtime.BeginRequest{Request: charge(""), BeginID: "by trace " + other}
				as(other)(&req)
				req.TraceID = first.Result.TraceID
				if b, err := c.rt.Begin(t.Context(), req); err == nil && b.Standing != runtime.BeginConflict && b.Standing != runtime.BeginWait {
					t.Errorf("%q by its trace: %s", other, b.Standing)
				}
			}
			if same := c.beginAs("shim", as("alice")); same.Standing == runtime.BeginConflict {
				t.Errorf("alice herself: %v", same.Cause)
			}
		})
	}
}

// TestKeyTakenWhileACallWaited: two subjects begin a call with one key, and people are asked about
// both. Whoever is approved first has the key. The other's call was begun when the key was free, so
// it is refused when it is its turn, and is neither sent, nor served the first one's answer.
func TestKeyTakenWhileACallWaited(t *testing.T) {
	for _, answered := range []bool{true, false} {
		c := withClients(t, runtime.Policy{}, needsApproval(1, 0))
		c.come("shim")
		begin := func(subject string) runtime.Begun {
			return c.beginAs("shim", func(r *runtime.BeginRequest) {
				r.Key, r.Connection.Subject, r.BeginID = "order-7", subject, "begin of "+subject
			})
		}
		approved := func(subject string) runtime.Begun {
			if _, err := c.rt.Decide(t.Context(), begin(subject).Result.TraceID, yes); err != nil && tga.CodeOf(err) != tga.IdempotencyKeyInFlight {
				t.Fatal(err)
			}
			return begin(subject)
		}
		bob := begin("bob")
		c.wantStanding(bob, runtime.BeginNeedsApproval)
		alice := approved("alice")
		c.wantStanding(alice, runtime.BeginSend)
		if answered {
			c.answer(alice)
		}
		late := approved("bob")
		if late.Standing != runtime.BeginConflict || late.Permit != (runtime.Permit{}) || late.Result.Value != nil {
			t.Errorf("answered %v: bob gets %s, %s, %v", answered, late.Standing, late.Result.Value, late.Cause)
		}
		if res := c.wantState(bob.Result.TraceID, tga.Failed); res.ErrorCode != tga.IdempotencyKeyConflict || !res.ServedFrom.IsZero() || res.Value != nil {
			t.Errorf("answered %v: %+v", answered, res)
		}
	}
}
