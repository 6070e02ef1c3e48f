package turn_test

import (
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestAnswerThatARuleMakesAFailureLeavesNoState: the tool says that it succeeded, and a rule of
// the operator says that it did not. The call is made again where the rule permits that, and its
// changes are there once.
func TestAnswerThatARuleMakesAFailureLeavesNoState(t *testing.T) {
	for _, c := range []struct {
		class  ledger.Class
		panics bool
		text   string
		n      string
	}{
		{ledger.ClassRetryable, false, `tools said {"n":1}`, "1"},
		{ledger.ClassPermanent, false, "tools said TOOL_ERROR: busy\n{\"n\":1}", ""},
		{ledger.ClassPermanent, true, `tools said {"n":1}`, "1"},
	} {
		var first tga.ID
		w := newWorld(t, func(w *world) {
			w.options = func(o *turn.Options) {
				o.Runtime.Trust.Outcome = func(call runtime.Call, reply *runtime.Reply) error {
					if call.Tool != "count" {
						return nil
					}
					if c.panics {
						panic("oh")
					}
					if first.IsZero() {
						first = call.TraceID
					}
					if call.TraceID == first {
						reply.Status, reply.Class, reply.ErrorCode, reply.ErrorMessage = tga.StatusFailure, c.class, "TOOL_ERROR", "busy"
					}
					return nil
				}
			}
		})
		res := w.run("call count {}")
		if res.Status != turn.Completed || res.Text != c.text {
			t.Errorf("%v: %+v", c.class, res)
		}
		if got := w.read("n"); string(got["n"]) != c.n {
			t.Errorf("%v: n is %s, want %s", c.class, got["n"], c.n)
		}
	}
}
