package turn_test

import (
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// TestCallThatTheLimitCutOffIsNotMade: of an answer that ends at its limit of tokens, the last call
// may have more arguments. It is not made with those that came, and the model is told.
func TestCallThatTheLimitCutOffIsNotMade(t *testing.T) {
	for _, c := range []struct {
		finish turn.FinishReason
		sends  int
	}{{turn.FinishToolUse, 2}, {turn.FinishLength, 1}} {
		w := newWorld(t)
		w.say = func(q turn.Question) (turn.Answer, error) {
			a, err := obedient(q)
			if len(a.Said.ToolCalls) > 0 {
				a.Finish = c.finish
			}
			return a, err
		}
		res := w.run("call echo {\"a\":1}\ncall echo")
		if res.Status != turn.Completed || sum(w.out.sends) != c.sends || len(res.Effects) != 2 {
			t.Errorf("%s: sent %v, %+v", c.finish, w.out.sends, res)
		}
		if f := res.Effects[1].Failure; (f != nil) != (c.finish == turn.FinishLength) || f != nil && f.Code != tga.SchemaViolation {
			t.Errorf("%s: %v", c.finish, f)
		}
	}
}
