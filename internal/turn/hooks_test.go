package turn_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

// TestObserverThatPanicsEndsNoTurn: also beside parallel calls, which tell it in goroutines of their own.
func TestObserverThatPanicsEndsNoTurn(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.options = func(o *turn.Options) { o.Observe = func(turn.Progress) { panic("no eyes") } }
	})
	for i := range w.defs {
		w.defs[i].Parallel = true
	}
	if res := w.run("call echo {\"n\":1}\ncall echo {\"n\":2}"); res.Status != turn.Completed || len(res.Effects) != 2 {
		t.Errorf("%+v", res)
	}
}

// TestRuleMayWriteIntoAnAnswer: the model reads what the tool said.
func TestRuleMayWriteIntoAnAnswer(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.options = func(o *turn.Options) {
			o.Runtime.Trust.Outcome = func(call runtime.Call, reply *runtime.Reply) error {
				if call.Tool == "count" {
					copy(reply.Result, strings.Repeat(" ", len(reply.Result)))
				}
				return nil
			}
		}
	})
	if res := w.run("call count {}"); res.Status != turn.Completed || res.Text != `tools said {"n":1}` {
		t.Errorf("%+v", res)
	}
}

// scribbling is an adapter that writes into the questions that it gets, and fails at the first one.
type scribbling struct {
	*world
	asked []string
}

func (s *scribbling) Generate(ctx context.Context, q turn.Question) (turn.Answer, error) {
	s.asked = append(s.asked, q.Messages[0].Plain()+", "+q.Tools[0].Name)
	a, err := s.world.Generate(ctx, q)
	q.Messages[0].Content[0].Text, q.Tools[0].Name = "scribbled", "scribbled"
	q.Tools[0].InputSchema[0] = 'x'
	if len(s.asked) == 1 {
		err = &turn.Failure{Code: tga.RateLimited, Message: "ask later"}
	}
	return a, err
}

// TestModelMayWriteIntoItsQuestion: it is asked the same again.
func TestModelMayWriteIntoItsQuestion(t *testing.T) {
	s := &scribbling{}
	w := newWorld(t, func(w *world) {
		s.world = w
		w.options = func(o *turn.Options) { o.Models = map[string]turn.Model{"local": s} }
	})
	if res := w.run("hello"); res.Status != turn.Completed {
		t.Errorf("%+v", res)
	}
	if len(s.asked) != 2 || s.asked[0] != s.asked[1] || !strings.HasPrefix(s.asked[0], "hello, ") {
		t.Errorf("asked %q", s.asked)
	}
}
