package turn_test

import (
	"testing"

	"github.com/tgad/tgad/internal/turn"
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
