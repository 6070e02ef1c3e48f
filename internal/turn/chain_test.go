package turn_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
)

// TestModelSeesTheWholeInvocation: however many turns a message leads to, and however small the
// window is, the model is asked with the message and with all that followed it.
func TestModelSeesTheWholeInvocation(t *testing.T) {
	for _, window := range []int{1, 4, 0} {
		w := newWorld(t, func(w *world) {
			w.agents[0].Memory.Window = window
			turns := 0
			w.say = func(q turn.Question) (turn.Answer, error) {
				text := ""
				for _, m := range q.Messages {
					text += m.Plain() + "|"
				}
				if q.Messages[len(q.Messages)-1].Role == message.User {
					return obedient(q)
				}
				want := "call echo {\"n\":0}\ncall echo {\"m\":0}|"
				for n := range turns + 1 {
					want += fmt.Sprintf("|{\"n\":%d}|{\"m\":%d}|", n, n)
				}
				if !strings.HasSuffix(text, want) {
					t.Errorf("window %d, turn %d: the model sees %q, want %q", window, turns+2, text, want)
				}
				if turns++; turns > 8 {
					return obedient(q)
				}
				q.Messages = append(q.Messages, message.TextMessage(message.User, fmt.Sprintf("call echo {\"n\":%d}\ncall echo {\"m\":%d}", turns, turns), message.FromUser, 0))
				return obedient(q)
			}
		})
		w.run("done before")
		w.run("call echo {\"n\":0}\ncall echo {\"m\":0}")
	}
}

// TestModelSeesItsToolsAnswersAfterAnotherMessage: a message waits for an approval, and another one
// of the session is answered meanwhile. When the first one goes on, the model sees its own call and
// the answer to it, as it would have without the other message.
func TestModelSeesItsToolsAnswersAfterAnotherMessage(t *testing.T) {
	for _, between := range []bool{false, true} {
		w := newWorld(t, func(w *world) { w.supervisor = asks("echo") })
		res := w.run("call echo {}")
		if between {
			w.run("done x")
		}
		if err := approvals["settle"](w, res.Waiting); err != nil {
			t.Fatal(err)
		}
		if res, err := w.r.Resume(t.Context(), res.InteractionID); err != nil || res.Text != "tools said {}" {
			t.Errorf("between %v: %+v, %v", between, res, err)
		}
		if res := w.run("done y"); res.Text != "y" {
			t.Errorf("between %v: %+v", between, res)
		}
	}
}
