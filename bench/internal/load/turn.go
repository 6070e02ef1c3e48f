package load

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tgad/tgad/bench/internal/measure"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/runtime"
)

// script is a model and a resolver that take no time. The model asks for a number of calls of
// a tool that does nothing, and then answers.
type script struct{ calls int }

func (s script) Generate(_ context.Context, q turn.Question) (turn.Answer, error) {
	a := turn.Answer{Model: q.Model, Finish: turn.FinishStop, Said: message.TextMessage(message.Assistant, "paid", message.FromModel, 0)}
	if last := q.Messages[len(q.Messages)-1]; last.Role == message.User && s.calls > 0 {
		a.Finish = turn.FinishToolUse
		for i := range s.calls {
			a.Said.ToolCalls = append(a.Said.ToolCalls, message.ToolCall{ID: fmt.Sprint(i), Name: "pay", Arguments: `{"account":"acme","amount":4200}`})
		}
	}
	return a, nil
}

func (script) Resolve(context.Context, *turn.Agent) ([]turn.Tool, []turn.Warning, error) {
	return []turn.Tool{{Name: "pay", Server: "payments", Remote: "pay", InputSchema: json.RawMessage(`{"type":"object"}`)}}, nil, nil
}

func (script) Validate(*turn.Tool, []byte) error { return nil }

// Turn measures a message to an agent up to the answer: one turn without calls, two turns
// with calls. Model and tool take no time, so the cost is that of the journal. Each writer
// has conversations of ten messages.
func (s *Store) Turn(writers, calls int) (*measure.Subject, error) {
	r, err := turn.New(s.DB, Noop, runtime.AllowAll, turn.Options{
		Agents:   []*turn.Agent{{Name: "payer", Role: "You pay.", Model: turn.ModelSpec{Provider: "none", Model: "none"}}},
		Models:   map[string]turn.Model{"none": script{calls}},
		Resolver: script{calls},
	})
	if err != nil {
		return nil, err
	}
	text := []byte(filler(s.Size))
	made := make([]int, writers)
	name := "turn"
	if calls > 0 {
		name = fmt.Sprintf("turn_%d_calls", calls)
	}
	began := time.Now().UnixNano()
	return s.Subject(name, writers, func(w int) (time.Duration, error) {
		session := fmt.Sprintf("%d-%s-%d-%d", began, name, w, made[w]/10)
		made[w]++
		start := time.Now()
		res, err := r.Run(context.Background(), turn.Request{Agent: "payer", SessionID: session, Message: text, Format: message.FormatText})
		if err == nil && res.Status != turn.Completed {
			err = fmt.Errorf("turn %s: %+v", res.Status, res)
		}
		return time.Since(start), err
	}), nil
}

// filler is a message of about size bytes.
func filler(size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = "pay the invoice "[i%16]
	}
	return string(b)
}
