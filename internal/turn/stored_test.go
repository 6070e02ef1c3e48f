package turn_test

import (
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
)

// TestStoredResultIsTheResult: who asks for the result of turns that have ended gets what whoever
// ran them got, tokens included.
func TestStoredResultIsTheResult(t *testing.T) {
	for name, say := range map[string]func(q turn.Question) (turn.Answer, error){
		"it ends":                     obedient,
		"the answer is none":          spoiled(func(turn.Question) bool { return true }),
		"the answer to tools is none": spoiled(func(q turn.Question) bool { return q.Messages[len(q.Messages)-1].Role == message.Tool }),
	} {
		w := newWorld(t, func(w *world) { w.say = say })
		res := w.run("call echo {}")
		w.restart()
		again, err := w.r.Resume(t.Context(), res.InvocationID)
		if err != nil || again.Status != res.Status || again.Usage != res.Usage || res.Usage.Total == 0 {
			t.Errorf("%s: %v %+v, stored is %v %+v, %v", name, res.Status, res.Usage, again.Status, again.Usage, err)
		}
	}
}

// spoiled makes a model's answers unusable. Their tokens are used all the same.
func spoiled(when func(turn.Question) bool) func(turn.Question) (turn.Answer, error) {
	return func(q turn.Question) (turn.Answer, error) {
		a, err := obedient(q)
		if when(q) {
			a.Said.Role = message.User
		}
		return a, err
	}
}
