package turn_test

import (
	"context"
	"fmt"
	"slices"
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

// TestModelSeesWhatNoTurnHasRead: tools were called, and the turn that was to read their answers
// failed, or none followed. The next message of the session is answered with the calls and the
// answers in view, as far as the agent's filter lets them pass.
func TestModelSeesWhatNoTurnHasRead(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*world)
		text string
		want []string // roles in the question about the next message, before it
	}{
		"the turn after it fails": {onceAfterTools("m1"), "call echo {}", []string{"user", "assistant 1", "tool {}"}},
		"no turn follows":         {func(w *world) { w.agents[0].Chain.Stop = true }, "call echo {}", []string{"user", "assistant 1", "tool {}"}},
		"it was handed over":      {delegating(turn.Delegation{Type: turn.Handoff}), `call ask {"message":"done yes"}`, []string{"user", "assistant 1", "tool yes"}},
		"a filter takes it out": {func(w *world) {
			w.agents[0].Chain.Stop, w.agents[0].Filter = true, message.Filter{Patterns: []string{"secret"}, Action: message.Redact}
			w.tool("leak", func(context.Context, string) (string, error) { return `"secret"`, nil })
		}, "call leak {}", []string{"user", "assistant 1", "tool [REDACTED:pattern]"}},
		"a filter blocks it": {func(w *world) {
			w.agents[0].Chain.Stop, w.agents[0].Filter = true, message.Filter{Patterns: []string{"secret"}}
			w.tool("leak", func(context.Context, string) (string, error) { return `"secret"`, nil })
		}, "call leak {}", []string{"user", "assistant 0"}},
	} {
		for _, restart := range []bool{false, true} {
			w := newWorld(t, c.set)
			w.run(c.text)
			if restart {
				w.restart()
			}
			var got []string
			w.say = func(q turn.Question) (turn.Answer, error) {
				for _, m := range q.Messages[:len(q.Messages)-1] {
					switch m.Role {
					case message.Tool:
						got = append(got, "tool "+m.Plain())
					case message.Assistant:
						got = append(got, fmt.Sprint("assistant ", len(m.ToolCalls)))
					default:
						got = append(got, string(m.Role))
					}
				}
				return obedient(turn.Question{Model: q.Model, Messages: q.Messages[len(q.Messages)-1:]})
			}
			if w.run("done next"); !slices.Equal(got, c.want) {
				t.Errorf("%s, restart %v: the model sees %q, want %q", name, restart, got, c.want)
			}
		}
	}
}
