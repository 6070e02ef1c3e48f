package turn_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

func TestATurnAnswers(t *testing.T) {
	w := newWorld(t)
	res := w.run("done hello")
	if res.Status != turn.Completed || res.Text != "hello" || res.Turns != 1 || res.TurnNumber != 1 || res.Usage.Total != 15 {
		t.Errorf("%+v", res)
	}
	res = w.run("call echo {\"a\":1}\ncall count 7")
	if res.Status != turn.Completed || res.Turns != 2 || res.TurnNumber != 3 || !strings.HasPrefix(res.Text, `tools said {"a":1}, SCHEMA_VIOLATION`) {
		t.Errorf("%+v", res)
	}
	if len(res.Effects) != 2 || res.Effects[0].Status != turn.ToolSucceeded || res.Effects[1].Status != turn.ToolFailed {
		t.Errorf("effects %+v", res.Effects)
	}
}

// TestPhasesComeOnceAndInOrder: OSSA 0.2.9 §1, for both turns of a chain.
func TestPhasesComeOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	res := w.run(`call echo {"a":1}`)
	for i, id := range []tga.ID{res.InvocationID, res.InteractionID} {
		records, err := w.r.Records(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range records {
			got = append(got, string(r.Phase)+" "+string(r.Kind))
		}
		want := []string{"init done", "normalize done", "resolve done", "infer asked", "infer done", "execute done", "persist done", "emit done"}
		if !slices.Equal(got, want) {
			t.Errorf("turn %d: %v", i+1, got)
		}
	}
	if res.InvocationID == res.InteractionID || res.Turns != 2 {
		t.Errorf("both turns of the chain are %s", res.InteractionID)
	}
	if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}

// TestQuestionIsDurableBeforeItIsSent: a model's server never sees a question that the journal
// does not have.
func TestQuestionIsDurableBeforeItIsSent(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.say = func(q turn.Question) (turn.Answer, error) {
		open, err := w.r.OpenTurns(t.Context())
		if err != nil || len(open) != 1 {
			t.Fatalf("open: %v, %v", open, err)
		}
		records, err := w.r.Records(t.Context(), open[0])
		if err != nil {
			t.Fatal(err)
		}
		if last := records[len(records)-1]; last.Kind != turn.Asked || !strings.Contains(string(last.Body), q.Key) {
			t.Errorf("the newest record is %s %s", last.Phase, last.Kind)
		}
		asked++
		return obedient(q)
	}
	if w.run("call echo {}"); asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestConversationIsRemembered: the model gets the earlier conversation, and never a tool's
// answer without its call.
func TestConversationIsRemembered(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.agents[0].Examples = []turn.Example{{Input: "in", Output: "out"}}
		w.agents[0].Role, w.agents[0].SystemPrompt = "role", "prompt"
	})
	var last turn.Question
	w.say = func(q turn.Question) (turn.Answer, error) { last = q; return obedient(q) }
	w.run(`call echo {"a":1}`)
	w.run("done two")
	var got []string
	for _, m := range last.Messages {
		got = append(got, fmt.Sprint(m.Role, ":", m.Plain(), len(m.ToolCalls)))
	}
	want := []string{"user:in0", "assistant:out0", `user:call echo {"a":1}0`, "assistant:1", `tool:{"a":1}0`, `assistant:tools said {"a":1}0`, "user:done two0"}
	if !slices.Equal(got, want) || last.System != "role\n\nprompt" {
		t.Errorf("%q, system %q", got, last.System)
	}
	// A turn that failed is not part of the conversation.
	w.say = func(turn.Question) (turn.Answer, error) {
		return turn.Answer{}, &turn.Failure{Code: tga.ValidationError}
	}
	w.run("done three")
	w.say = func(q turn.Question) (turn.Answer, error) { last = q; return obedient(q) }
	w.run("done four")
	if n := len(last.Messages); n != len(want)+2 || last.Messages[n-1].Plain() != "done four" || last.Messages[n-2].Plain() != "two" {
		t.Errorf("%d messages", n)
	}
}

// TestTurnOfAnotherAgentIsLeftAlone: only a runner that has the agent's manifest goes on with the
// turn.
func TestTurnOfAnotherAgentIsLeftAlone(t *testing.T) {
	w := newWorld(t, func(w *world) { w.agents[0].Constraints.MaxTurns = 1 })
	w.run("done x")
	if res := w.run("done x"); res.Status != turn.Waiting {
		t.Fatalf("%+v", res)
	}
	w.agents[0].Name = "stranger"
	w.restart()
	if all, err := w.r.Recover(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	open, err := w.r.OpenTurns(t.Context())
	if err != nil || len(open) != 1 {
		t.Fatalf("open: %v, %v", open, err)
	}
	if _, err := w.r.Resume(t.Context(), open[0]); !errors.Is(err, tga.NotFound) {
		t.Errorf("%v", err)
	}
}

// TestRunIsIdempotent: the same request again does not run the turn again.
func TestRunIsIdempotent(t *testing.T) {
	w := newWorld(t)
	q := turn.Request{Agent: "helper", InteractionID: newID(), Message: []byte("call echo {}")}
	for range 3 {
		if res, err := w.r.Run(t.Context(), q); err != nil || res.InvocationID != q.InteractionID || res.Turns != 2 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if sum(w.out.requests) != 2 || sum(w.out.sends) != 1 {
		t.Errorf("%d questions, %d sends", sum(w.out.requests), sum(w.out.sends))
	}
}

// TestAnotherRequestUnderTheSameID: it gets an error code, not the answer to the first message,
// even if a filter kept that message out of the log.
func TestAnotherRequestUnderTheSameID(t *testing.T) {
	for _, text := range []string{"call echo {}", "done and write to ann@example.org"} {
		w := newWorld(t, func(w *world) {
			w.agents[0].Filter = message.Filter{PII: []string{"email"}, Action: message.Redact}
			w.agents = append(w.agents, &turn.Agent{Name: "other", Model: w.agents[0].Model})
		})
		q := turn.Request{Agent: "helper", InteractionID: newID(), SessionID: "s", Message: []byte(text)}
		first, err := w.r.Run(t.Context(), q)
		if err != nil || first.Status != turn.Completed {
			t.Fatalf("%+v, %v", first, err)
		}
		asked := sum(w.out.requests)
		w.restart()
		for at, change := range map[string]func(*turn.Request){
			"/agent":      func(q *turn.Request) { q.Agent = "other" },
			"/session_id": func(q *turn.Request) { q.SessionID = "t" },
			"/message":    func(q *turn.Request) { q.Message = append(q.Message, ' ') },
			"/message ":   func(q *turn.Request) { q.Source = message.FromAPI },
			"/message  ":  func(q *turn.Request) { q.InteractionID = first.InteractionID; q.Message = q.Message[1:] },
			"/format":     func(q *turn.Request) { q.Format = "text" },
		} {
			other := q
			other.Message = slices.Clone(q.Message)
			change(&other)
			res, err := w.r.Run(t.Context(), other)
			if e := (*tga.Error)(nil); tga.CodeOf(err) != tga.IdempotencyKeyConflict || !errors.As(err, &e) || e.Pointer != strings.TrimSpace(at) {
				t.Errorf("%q, %s: %+v, %v", text, at, res, err)
			}
		}
		q.SessionID = ""
		if res, err := w.r.Run(t.Context(), q); err != nil || res.Text != first.Text {
			t.Errorf("%q, the same again: %+v, %v", text, res, err)
		}
		if sum(w.out.requests) != asked {
			t.Errorf("%q: %d questions more", text, sum(w.out.requests)-asked)
		}
	}
}

// TestBadInputWritesNothing: it is refused with a code, and no turn exists.
func TestBadInputWritesNothing(t *testing.T) {
	w := newWorld(t)
	for _, q := range []turn.Request{
		{Agent: "nobody", Message: []byte("x")},
		{Agent: "helper", SessionID: strings.Repeat("s", 256), Message: []byte("x")},
		{Agent: "helper", Message: []byte(`{"role":"user"}`), Format: "openai"},
		{Agent: "helper"},
	} {
		if res, err := w.r.Run(t.Context(), q); tga.CodeOf(err) == "" {
			t.Errorf("%+v: %+v, %v", q, res, err)
		}
	}
	if sum(w.out.requests) != 0 {
		t.Error("the model was asked")
	}
	if open, err := w.r.OpenTurns(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open: %v, %v", open, err)
	}
}
