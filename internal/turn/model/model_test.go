package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/modelserver"
	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/internal/turn/model"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var now = time.Date(2026, 1, 15, 19, 0, 0, 0, time.UTC)

// serve starts a model server that answers as a script tells it to.
func serve(t *testing.T, o modelserver.Options) *modelserver.Server {
	t.Helper()
	s, err := modelserver.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func script(t *testing.T, answers ...modelserver.Answer) *modelserver.Server {
	t.Helper()
	return serve(t, modelserver.Options{Script: answers})
}

// adapters has both adapters, each plain and streaming.
var adapters = []struct {
	name   string
	make   func(model.Options) (turn.Model, error)
	stream bool
}{
	{"openai", model.OpenAI, false},
	{"openai stream", model.OpenAI, true},
	{"anthropic", model.Anthropic, false},
	{"anthropic stream", model.Anthropic, true},
}

// each runs a test with every adapter.
func each(t *testing.T, f func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool)) {
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			f(t, func(s *modelserver.Server, o model.Options) turn.Model {
				o.BaseURL, o.Stream = s.URL(), a.stream
				if o.Now == nil {
					o.Now = func() time.Time { return now }
				}
				m, err := a.make(o)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}, a.stream)
		})
	}
}

func user(text string) message.Message {
	return message.TextMessage(message.User, text, message.FromUser, tga.MillisOf(now))
}

func aQuestion() turn.Question {
	return turn.Question{Model: "m", System: "You are terse.", Messages: []message.Message{user("hi")}, Key: "q-1"}
}

// failure returns an error as the failure that it must be.
func failure(t *testing.T, err error) *turn.Failure {
	t.Helper()
	var f *turn.Failure
	if !errors.As(err, &f) {
		t.Fatalf("got %v, no failure", err)
	}
	return f
}

const bigArguments = `{ "amount": 9007199254740993, "rate":1.10, "note":"é < \u00e9 \"q\"", "a":1, "a":2 }`

func TestAnswersComeWhole(t *testing.T) {
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		calls := []modelserver.ToolCall{{ID: "c1", Name: "charge", Arguments: `{"n":1}`}, {ID: "c2", Name: "look_up", Arguments: `{}`}}
		s := script(t,
			modelserver.Answer{Text: "Grüße, 世界!", Input: 11, Output: 7},
			modelserver.Answer{Text: "One moment.", ToolCalls: calls, Input: 5, Output: 9},
			modelserver.Answer{Text: "and so", Finish: map[string]string{"o": "length", "a": "max_tokens"}[t.Name()[strings.Index(t.Name(), "/")+1:][:1]]},
		)
		m := make(s, model.Options{})
		q := aQuestion()
		q.Tools = []turn.ToolDef{{Name: "charge", InputSchema: json.RawMessage(`{"type":"object"}`)}, {Name: "look.up", Description: "d"}}
		var told []string
		if stream {
			q.OnDelta = func(text string) { told = append(told, text) }
		}
		a, err := m.Generate(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if a.Said.Plain() != "Grüße, 世界!" || a.Finish != turn.FinishStop || a.Usage != (turn.Usage{Input: 11, Output: 7, Total: 18}) ||
			a.ID == "" || a.Model != "m-local" || a.Said.Role != message.Assistant ||
			a.Said.Metadata.Source != message.FromModel || a.Said.Metadata.NormalizedAt != tga.MillisOf(now) {
			t.Errorf("got %+v", a)
		}
		if stream && (len(told) < 3 || strings.Join(told, "") != a.Said.Plain()) {
			t.Errorf("told %q", told)
		}
		if a, err = m.Generate(context.Background(), q); err != nil {
			t.Fatal(err)
		}
		want := []message.ToolCall{{ID: "c1", Name: "charge", Arguments: `{"n":1}`}, {ID: "c2", Name: "look.up", Arguments: `{}`}}
		if diff := cmp.Diff(want, a.Said.ToolCalls); diff != "" || a.Finish != turn.FinishToolUse || a.Said.Plain() != "One moment." {
			t.Errorf("%s\n%+v", diff, a)
		}
		if a, err = m.Generate(context.Background(), q); err != nil || a.Finish != turn.FinishLength {
			t.Errorf("got %+v, %v", a, err)
		}
	})
}

// TestArgumentsStayRaw: the bytes that a model wrote are checked against the tool's schema, and
// sent to the model again.
func TestArgumentsStayRaw(t *testing.T) {
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		var arguments = bigArguments
		if strings.Contains(t.Name(), "anthropic") && !stream {
			// In this API they are an object, not a string, and the server writes JSON without
			// spaces.
			arguments = `{"amount":9007199254740993,"rate":1.10,"a":1,"a":2}`
		}
		s := script(t, modelserver.Answer{ToolCalls: []modelserver.ToolCall{{ID: "c1", Name: "f", Arguments: arguments}}}, modelserver.Answer{Text: "done"})
		m := make(s, model.Options{})
		q := aQuestion()
		a, err := m.Generate(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Said.ToolCalls) != 1 || a.Said.ToolCalls[0].Arguments != arguments {
			t.Fatalf("got %q", a.Said.ToolCalls)
		}
		q.Messages = append(q.Messages, a.Said, message.ToolAnswer("c1", []byte("ok"), false, 0))
		if _, err := m.Generate(context.Background(), q); err != nil {
			t.Fatal(err)
		}
		sent := string(s.Requests()[1].Body)
		if !strings.Contains(sent, "9007199254740993") || !strings.Contains(sent, "1.10") {
			t.Errorf("sent %s", sent)
		}
	})
}

// TestCutStreamIsNoAnswer cuts an answer after each of its events, by a broken connection and by
// one that is closed in good order.
func TestCutStreamIsNoAnswer(t *testing.T) {
	answer := modelserver.Answer{Text: "Transfer the money now", ToolCalls: []modelserver.ToolCall{{ID: "c", Name: "pay", Arguments: `{"to":"x"}`}}}
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		if !stream {
			answer.Cut, answer.Clean = 1, false
			_, err := make(script(t, answer), model.Options{}).Generate(context.Background(), aQuestion())
			if f := failure(t, err); f.Code != tga.LLMError || f.Permanent || errors.Is(err, runtime.ErrNotSent) {
				t.Errorf("got %+v", f)
			}
			return
		}
		for _, clean := range []bool{false, true} {
			for n := 0; ; n++ {
				answer.Cut, answer.Clean = n, clean
				if n == 0 {
					answer.Cut = -1
				}
				s := script(t, answer)
				a, err := make(s, model.Options{}).Generate(context.Background(), aQuestion())
				if err == nil {
					if n < 10 || len(a.Said.ToolCalls) != 1 || a.Said.ToolCalls[0].Arguments != `{"to":"x"}` {
						t.Errorf("cut after %d events, clean %v: an answer: %+v", n, clean, a)
					}
					break
				}
				if f := failure(t, err); f.Code != tga.LLMError || f.Permanent || errors.Is(err, runtime.ErrNotSent) || !reflect.DeepEqual(a, turn.Answer{}) {
					t.Errorf("cut after %d events, clean %v: %+v, %+v", n, clean, f, a)
				}
			}
		}
	})
}

// anthropicEnd ends a stream correctly.
const anthropicEnd = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"

// anthropicCall is block 0 of a stream, a tool call.
func anthropicCall(id string) string {
	return "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"" + id + "\",\"name\":\"f\",\"input\":{}}}\n\n"
}

// TestAnswersThatDoNotReadAreFailures returns answers that no provider should send.
func TestAnswersThatDoNotReadAreFailures(t *testing.T) {
	bodies := map[string][]string{
		"openai": {
			"<html>", "{}", "null", "[]", `{"choices":[]}`, `{"choices":[{"message":{"content":"x"}}]}`,
			`{"choices":[{"message":{"content":5},"finish_reason":"stop"}]}`,
			`{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]} x`,
			"{\"choices\":[{\"message\":{\"content\":\"\xff\"},\"finish_reason\":\"stop\"}]}",
			`{"error":{"message":"inside of 200"}}`,
			`{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
			`{"choices":[{"message":{"tool_calls":[{"index":-1,"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
		},
		"openai stream": {
			"data: {}", "data: [DONE]\n\n", "data: <html>\n\n", "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n",
			"data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n",
			"data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n",
			"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
		},
		"anthropic": {
			"<html>", "{}", "null", `{"type":"message","content":[{"type":"text","text":"x"}]}`,
			`{"type":"message","stop_reason":"tool_use","content":[{"type":"tool_use","id":"a","input":{}}]}`,
			`{"type":"message","stop_reason":"tool_use","content":[{"type":"tool_use","name":"a","input":{}}]}`,
			`{"type":"error","error":{"type":"api_error","message":"inside of 200"}}`,
			"{\"type\":\"message\",\"stop_reason\":\"end_turn\",\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}",
		},
		"anthropic stream": {
			"data: {}\n\n", "data: <\n\n", "data: {\"type\":\"message_stop\"}\n\n",
			"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
			"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n",
			"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n" + anthropicEnd,
			"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\"}}\n\n" +
				"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"x\"}}\n\n" + anthropicEnd,
			anthropicCall("a") + anthropicCall("b") + anthropicEnd, // the second block 0 would take the place of the first
		},
	}
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		name := strings.ReplaceAll(t.Name()[strings.Index(t.Name(), "/")+1:], "_", " ")
		if len(bodies[name]) == 0 {
			t.Fatal(name)
		}
		for _, body := range bodies[name] {
			s := script(t, modelserver.Answer{Body: body})
			a, err := make(s, model.Options{}).Generate(context.Background(), aQuestion())
			if f := failure(t, err); f.Code != tga.LLMError || f.Permanent {
				t.Errorf("%q: got %+v, %+v", body, f, a)
			}
		}
		s := script(t, modelserver.Answer{Text: "a text long enough", Malformed: true})
		_, err := make(s, model.Options{}).Generate(context.Background(), aQuestion())
		if f := failure(t, err); f.Code != tga.LLMError || f.Permanent {
			t.Errorf("got %+v", f)
		}
	})
}

func TestFinishReasons(t *testing.T) {
	for name, reasons := range map[string]map[string]turn.FinishReason{
		"openai":    {"stop": turn.FinishStop, "length": turn.FinishLength, "content_filter": turn.FinishContentFilter, "tool_calls": turn.FinishToolUse, "function_call": turn.FinishToolUse, "new": turn.FinishError},
		"anthropic": {"end_turn": turn.FinishStop, "stop_sequence": turn.FinishStop, "max_tokens": turn.FinishLength, "refusal": turn.FinishContentFilter, "tool_use": turn.FinishToolUse, "pause_turn": turn.FinishError},
	} {
		each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, _ bool) {
			if !strings.Contains(t.Name(), "/"+name) {
				return
			}
			for reason, want := range reasons {
				a, err := make(script(t, modelserver.Answer{Text: "x", Finish: reason}), model.Options{}).Generate(context.Background(), aQuestion())
				if err != nil || a.Finish != want {
					t.Errorf("%s: got %q, %v", reason, a.Finish, err)
				}
			}
		})
	}
}

// TestLooseServers: mistakes of servers that imitate OpenAI's API, which can be understood
// nevertheless.
func TestLooseServers(t *testing.T) {
	s := script(t,
		modelserver.Answer{Body: `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"","function":{"name":"f","arguments":{"n": 1.0}}},{"id":"x","function":{"name":"g","arguments":""}},{"id":"x","function":{"name":"h","arguments":"{}"}}]},"finish_reason":"stop"}]}`},
		modelserver.Answer{Body: "\xef\xbb\xbf"},
		modelserver.Answer{Body: `{"choices":[{"message":{"content":null,"refusal":"I won't."},"finish_reason":"stop"}]}`},
	)
	m, err := model.OpenAI(model.Options{BaseURL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := m.Generate(context.Background(), aQuestion())
	if err != nil {
		t.Fatal(err)
	}
	want := []message.ToolCall{{ID: "call_0", Name: "f", Arguments: `{"n": 1.0}`}, {ID: "x", Name: "g"}, {ID: "call_2", Name: "h", Arguments: "{}"}}
	if diff := cmp.Diff(want, a.Said.ToolCalls); diff != "" || a.Finish != turn.FinishToolUse || a.Model != "m" {
		t.Errorf("%s\n%+v", diff, a)
	}
	if _, err := m.Generate(context.Background(), aQuestion()); failure(t, err).Code != tga.LLMError {
		t.Error(err)
	}
	if a, err := m.Generate(context.Background(), aQuestion()); err != nil || a.Finish != turn.FinishContentFilter || a.Said.Plain() != "I won't." {
		t.Errorf("got %+v, %v", a, err)
	}
}

// TestCallsWithOneIndexAreApart: some servers give all calls of an answer one index. Their
// arguments are not those of the first.
func TestCallsWithOneIndexAreApart(t *testing.T) {
	const one = `{"index":0,"id":"a","function":{"name":"f","arguments":""}}`
	const two = `{"index":0,"id":"b","function":{"name":"g","arguments":"{\"n\""}}`
	const rest = `{"index":0,"function":{"arguments":":1}"}}`
	const end = `{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`
	for name, body := range map[string]string{
		"in one piece": "data: {\"choices\":[{\"delta\":{\"tool_calls\":[" + one + "," + two + "," + rest + "]}}]}\n\n",
		"in pieces": "data: {\"choices\":[{\"delta\":{\"tool_calls\":[" + one + "]}}]}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[" + two + "]}}]}\n\n" +
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[" + rest + "]}}]}\n\n",
	} {
		s := script(t, modelserver.Answer{Body: body + "data: " + end + "\n\ndata: [DONE]\n\n"})
		m, err := model.OpenAI(model.Options{BaseURL: s.URL(), Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		a, err := m.Generate(context.Background(), aQuestion())
		if err != nil {
			t.Fatal(err)
		}
		want := []message.ToolCall{{ID: "a", Name: "f"}, {ID: "b", Name: "g", Arguments: `{"n":1}`}}
		if diff := cmp.Diff(want, a.Said.ToolCalls); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestOtherChoicesAreNotTheAnswer: a server may send several choices although one was asked for. Their calls are not
// made together with those of the first.
func TestOtherChoicesAreNotTheAnswer(t *testing.T) {
	const mine = `{"index":0,"%s":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}`
	const other = `{"index":1,"%s":{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}`
	for _, order := range [][]string{{mine, other}, {other, mine}} {
		plain := fmt.Sprintf(`{"choices":[`+order[0]+","+order[1]+`]}`, "message", "message")
		together := fmt.Sprintf(`data: {"choices":[`+order[0]+","+order[1]+"]}\n\ndata: [DONE]\n\n", "delta", "delta")
		apart := fmt.Sprintf(`data: {"choices":[`+order[0]+"]}\n\n"+`data: {"choices":[`+order[1]+"]}\n\ndata: [DONE]\n\n", "delta", "delta")
		for stream, bodies := range map[bool][]string{false: {plain}, true: {together, apart}} {
			for _, body := range bodies {
				s := script(t, modelserver.Answer{Body: body})
				m, err := model.OpenAI(model.Options{BaseURL: s.URL(), Stream: stream})
				if err != nil {
					t.Fatal(err)
				}
				a, err := m.Generate(context.Background(), aQuestion())
				if want := []message.ToolCall{{ID: "a", Name: "f", Arguments: "{}"}}; err != nil || !cmp.Equal(want, a.Said.ToolCalls) {
					t.Errorf("%s: %+v, %v", body, a.Said.ToolCalls, err)
				}
			}
		}
	}
}

// TestByteOrderMarkHidesNoEvent: a stream may begin with a byte order mark (WHATWG HTML §9.2.5). Its first event is not lost.
func TestByteOrderMarkHidesNoEvent(t *testing.T) {
	s := script(t, modelserver.Answer{Body: "\ufeffdata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n" +
		"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n"})
	m, err := model.OpenAI(model.Options{BaseURL: s.URL(), Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	if a, err := m.Generate(context.Background(), aQuestion()); err != nil || len(a.Said.ToolCalls) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestAnswerLimit(t *testing.T) {
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		body := fmt.Sprintf(`{"type":"message","stop_reason":"end_turn","content":[],"choices":[{"message":{"content":"%s"},"finish_reason":"stop"}]}`, strings.Repeat("x", 1000))
		if stream {
			body = ": " + strings.Repeat("x", 1000) + "\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n" +
				"data: {\"type\":\"message_stop\"}\n\n"
			if strings.Contains(t.Name(), "openai") {
				body = strings.Replace(body, `{"type":"message_stop"}`, "[DONE]", 1)
			}
		}
		s := script(t, modelserver.Answer{Body: body}, modelserver.Answer{Body: body})
		if _, err := make(s, model.Options{MaxAnswer: int64(len(body))}).Generate(context.Background(), aQuestion()); err != nil {
			t.Errorf("at the limit: %v", err)
		}
		_, err := make(s, model.Options{MaxAnswer: int64(len(body)) - 1}).Generate(context.Background(), aQuestion())
		if stream {
			// Data after the end of the answer is not read.
			_, err = make(script(t, modelserver.Answer{Body: body}), model.Options{MaxAnswer: 1000}).Generate(context.Background(), aQuestion())
		}
		if f := failure(t, err); f.Code != tga.LLMError || !f.Permanent {
			t.Errorf("past the limit: %+v", f)
		}
	})
}

// TestDeadlineAndCancellation stops a question before the server answers, and in the middle of
// its stream.
func TestDeadlineAndCancellation(t *testing.T) {
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		for _, late := range []bool{false, true} {
			answer := modelserver.Answer{Text: "a long story", Hold: !late, HoldAfter: 3}
			if late && !stream {
				continue
			}
			for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
				s := script(t, answer)
				ctx := newEnding(end)
				done := goGenerate(ctx, make(s, model.Options{}), aQuestion())
				<-s.Held()
				ctx.end()
				err := <-done
				want := tga.LLMError
				if end == context.DeadlineExceeded {
					want = tga.LLMTimeout
				}
				if f := failure(t, err); f.Code != want || !errors.Is(err, end) || errors.Is(err, runtime.ErrNotSent) || f.Permanent {
					t.Errorf("%v, within the stream %v: got %+v", end, late, f)
				}
			}
		}
	})
}

// ending is a context that ends when it is told to, for a reason of choice.
type ending struct {
	context.Context
	reason error
	cancel context.CancelFunc
}

func newEnding(reason error) *ending {
	ctx, cancel := context.WithCancel(context.Background())
	return &ending{ctx, reason, cancel}
}

func (e *ending) end() { e.cancel() }

func (e *ending) Err() error {
	if e.Context.Err() == nil {
		return nil
	}
	return e.reason
}

func goGenerate(ctx context.Context, m turn.Model, q turn.Question) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := m.Generate(ctx, q)
		done <- err
	}()
	return done
}

// TestDeltasArriveWhileTheStreamRuns: the server waits in the middle of its answer until the
// client has reported the beginning.
func TestDeltasArriveWhileTheStreamRuns(t *testing.T) {
	each(t, func(t *testing.T, make func(*modelserver.Server, model.Options) turn.Model, stream bool) {
		if !stream {
			return
		}
		s := script(t, modelserver.Answer{Text: "first second third", HoldAfter: 4})
		q := aQuestion()
		heard := false
		q.OnDelta = func(string) {
			if !heard {
				heard = true
				s.Release()
			}
		}
		a, err := make(s, model.Options{}).Generate(context.Background(), q)
		if err != nil || a.Said.Plain() != "first second third" {
			t.Errorf("got %+v, %v", a, err)
		}
	})
}
