package runtime_test

import (
	"testing"
	"time"

	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestRepeatUnderItsTraceIDGoesOn: a caller repeats its call with the same trace id. The call goes on with that
// trace, also if the key of the trace is another one than the caller's: the caller's key stands for a
// replacement, or the key is derived and the answer was delivered. Another key is refused.
func TestRepeatUnderItsTraceIDGoesOn(t *testing.T) {
	for name, own := range map[string]func(c *clients, req *runtime.Request, first tga.ID){
		"a replaced key": func(c *clients, req *runtime.Request, first tga.ID) {},
		"a key that is replaced twice": func(c *clients, req *runtime.Request, first tga.ID) {
			c.tool.answer = unknown
			_, err := c.call(*req)
			wantCode(c.t, err, tga.EffectInDoubt)
			c.wantStanding(c.beginAs("B", saidAgain(req.TraceID)), runtime.BeginSend)
			if _, err := c.rt.Resolve(c.t.Context(), req.TraceID, evidence(ok(`"seen"`))); err != nil {
				c.t.Error(err)
			}
		},
		"a derived key": func(c *clients, req *runtime.Request, first tga.ID) {
			req.Key, req.Scope, req.Step = "", "job-1", "pay"
			c.mustCall(*req)
			if err := c.rt.Delivered(c.t.Context(), req.TraceID); err != nil {
				c.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := licence(ledger.Park)
			policy.PermitTime = time.Hour
			c := withClients(t, policy)
			c.come("A")
			c.come("B")
			first := c.beginAs("A", keyed)
			c.die("A")
			second := c.beginAs("B", saidAgain(first.Result.TraceID))
			c.wantStanding(second, runtime.BeginSend)
			if _, err := c.rt.NotSent(t.Context(), second.Result.TraceID, second.Permit, "", 0); err != nil {
				t.Fatal(err) // so the next call with the key is sent
			}
			req := charge(insteadKey)
			req.TraceID = newID()
			own(c, &req, first.Result.TraceID)
			res := c.mustCall(req)
			again := c.mustCall(req)
			if again.TraceID != req.TraceID || again.Digest != res.Digest || !again.ServedFrom.IsZero() {
				t.Errorf("the repeat comes to %+v, want %+v", again, res)
			}
			c.wantSends(1)
			req.Key, req.Scope, req.Step = "order 8", "", ""
			_, err := c.call(req)
			wantCode(t, err, tga.StateInvalidTransition)
		})
	}
}
