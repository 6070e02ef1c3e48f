package runtime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestWaitingIsNoDeadline: how long a caller waits does not limit until when the call may be sent.
// The request's deadline does, and the question to people also ends with it.
func TestWaitingIsNoDeadline(t *testing.T) {
	for _, within := range []time.Duration{0, time.Minute, 3 * time.Hour} { // how long people have, 0 = for ever
		for _, given := range []string{"no time", "a context's deadline", "the request's deadline"} {
			t.Run(given+", approval within "+within.String(), func(t *testing.T) {
				b := setup(t, park, func(b *bench) {
					b.now = time.Now()
					b.sup = runtime.Rules{Rules: []runtime.Rule{{Decision: tga.NeedsApproval, Within: within}}}
				})
				until := b.clock().Add(time.Hour)
				ctx, req, expires := t.Context(), charge("order-1"), tga.Millis(0)
				if within != 0 {
					expires = tga.MillisOf(b.clock().Add(within))
				}
				switch given {
				case "a context's deadline":
					var cancel context.CancelFunc
					ctx, cancel = context.WithDeadline(ctx, until)
					defer cancel()
				case "the request's deadline":
					req.Deadline = until
					if at := tga.MillisOf(until); expires == 0 || at < expires {
						expires = at
					}
				}
				res, err := b.rt.Call(ctx, req)
				wantCode(t, err, tga.EscalationRequired)
				asked, err := b.rt.Approvals(t.Context())
				if err != nil || len(asked) != 1 || asked[0].Expires != expires {
					t.Fatalf("asked %+v, %v, want it to expire at %s", asked, err, expires)
				}
				b.advance(2 * time.Hour) // the caller has long gone
				if b.reopen(); expires == 0 || expires > tga.MillisOf(b.clock()) {
					res, err = b.rt.Decide(t.Context(), res.TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: "checked with the customer"})
					if err != nil || res.State != tga.Completed {
						t.Errorf("approved in time: %+v, %v", res, err)
					}
					b.wantSends(1)
					return
				}
				res, err = b.rt.Decide(t.Context(), res.TraceID, runtime.Vote{Who: "ann", Approve: true, Rationale: "checked with the customer"})
				if err != nil || res.State != tga.Denied {
					t.Errorf("approved too late: %+v, %v", res, err)
				}
				b.wantSends(0)
			})
		}
	}
}

// TestDispatchOutlivesItsCallerWithALife: the caller may leave while it waits. Without WithLife the
// dispatch is cancelled, and the call is in doubt. With it the dispatch goes on until the life ends.
func TestDispatchOutlivesItsCallerWithALife(t *testing.T) {
	for _, c := range []struct {
		name     string
		life     bool // there is one
		lifeEnds bool // during the dispatch
		want     tga.State
	}{
		{"no life", false, false, tga.Executing},
		{"a life", true, false, tga.Completed},
		{"a life that ends", true, true, tga.Executing},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			life, end := context.WithCancel(t.Context())
			defer end()
			if c.life {
				ctx = runtime.WithLife(ctx, life)
			}
			b := setup(t, park, func(b *bench) {
				b.tools = runtime.DispatcherFunc(func(ctx context.Context, _ runtime.Call) (runtime.Reply, error) {
					if leave(); c.lifeEnds {
						end()
					}
					if err := ctx.Err(); err != nil {
						return runtime.Reply{}, errors.New("cut off")
					}
					return ok(`"paid"`), nil
				})
			})
			res, err := b.rt.Call(ctx, charge("order-1"))
			if res.State != c.want || (err == nil) != (c.want == tga.Completed) {
				t.Errorf("%+v, %v, want %v", res, err, c.want)
			}
		})
	}
}
