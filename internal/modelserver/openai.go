package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// openai is the chat completions API.
type openai struct{}

func (openai) name() string { return "openai" }

func (openai) key(h http.Header) string {
	key, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	return key
}

var (
	openaiName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	openaiPart = map[string]bool{"text": true, "image_url": true, "file": true, "input_audio": true}
)

// chatMessage is a message of a request.
type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (openai) read(_ http.Header, body []byte) (q question, err error) {
	var in struct {
		Model         string        `json:"model"`
		Stream        bool          `json:"stream"`
		Messages      []chatMessage `json:"messages"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Tools []struct {
			Type     string `json:"type"`
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return q, fmt.Errorf("the body is not JSON of this API: %w", err)
	}
	q = question{model: in.Model, stream: in.Stream, usage: in.StreamOptions.IncludeUsage}
	if in.Model == "" || len(in.Messages) == 0 {
		return q, fmt.Errorf("model and messages are required")
	}
	for i, t := range in.Tools {
		if t.Type != "function" || !openaiName.MatchString(t.Function.Name) || !isObject(t.Function.Parameters) {
			return q, fmt.Errorf("tools[%d] is no function with a name and parameters", i)
		}
	}
	open := map[string]bool{} // calls that wait for their results
	for i, m := range in.Messages {
		if len(open) > 0 && m.Role != "tool" {
			return q, fmt.Errorf("messages[%d]: an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'", i)
		}
		if err := m.check(open); err != nil {
			return q, fmt.Errorf("messages[%d]: %w", i, err)
		}
		if m.Role == "assistant" {
			q.assistants++
		}
	}
	if len(open) > 0 {
		return q, fmt.Errorf("the last messages leave tool calls without an answer")
	}
	return q, nil
}

func (m chatMessage) check(open map[string]bool) error {
	if m.Role == "tool" {
		if !open[m.ToolCallID] {
			return fmt.Errorf("messages with role 'tool' must be a response to a preceding message with 'tool_calls'")
		}
		delete(open, m.ToolCallID)
	}
	if len(m.ToolCalls) > 0 && m.Role != "assistant" {
		return fmt.Errorf("tool_calls in a message of role %s", m.Role)
	}
	for _, c := range m.ToolCalls {
		if c.ID == "" || c.Type != "function" || !openaiName.MatchString(c.Function.Name) || c.Function.Arguments == nil || open[c.ID] {
			return fmt.Errorf("tool call %q is not whole, or its id is used twice", c.ID)
		}
		open[c.ID] = true
	}
	switch m.Role {
	case "system", "user", "assistant", "tool":
	default:
		return fmt.Errorf("role %q", m.Role)
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil && string(m.Content) != "null" {
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
	}
	if string(m.Content) == "null" || len(m.Content) == 0 {
		if m.Role == "assistant" && len(m.ToolCalls) > 0 {
			return nil
		}
		return fmt.Errorf("content is required")
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil || len(parts) == 0 {
		return fmt.Errorf("content is neither a string nor parts")
	}
	for _, p := range parts {
		if !openaiPart[p.Type] || m.Role != "user" && p.Type != "text" {
			return fmt.Errorf("a part of type %q in a message of role %s", p.Type, m.Role)
		}
	}
	return nil
}

func isObject(raw json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(raw, &m) == nil && m != nil
}

type object = map[string]any

func (openai) finish(a Answer) string {
	switch {
	case a.Finish != "":
		return a.Finish
	case len(a.ToolCalls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func (openai) tokens(a Answer) object {
	return object{"prompt_tokens": a.Input, "completion_tokens": a.Output, "total_tokens": a.Input + a.Output}
}

func (o openai) plain(n int, q question, a Answer) []byte {
	said := object{"role": "assistant", "content": nil, "refusal": nil}
	if a.Text != "" || len(a.ToolCalls) == 0 {
		said["content"] = a.Text
	}
	var calls []object
	for _, c := range a.ToolCalls {
		calls = append(calls, object{"id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": c.Arguments}})
	}
	if calls != nil {
		said["tool_calls"] = calls
	}
	return encode(object{
		"id": "chatcmpl-" + strconv.Itoa(n), "object": "chat.completion", "created": 0, "model": q.model + "-local",
		"choices": []object{{"index": 0, "message": said, "logprobs": nil, "finish_reason": o.finish(a)}},
		"usage":   o.tokens(a),
	})
}

func (o openai) events(n int, q question, a Answer) (events []string) {
	chunk := func(choices []object, more object) {
		c := object{"id": "chatcmpl-" + strconv.Itoa(n), "object": "chat.completion.chunk", "created": 0, "model": q.model + "-local", "choices": choices}
		for k, v := range more {
			c[k] = v
		}
		events = append(events, "data: "+string(encode(c))+"\n\n")
	}
	delta := func(d object) { chunk([]object{{"index": 0, "delta": d, "finish_reason": nil}}, nil) }
	delta(object{"role": "assistant", "content": ""})
	for _, p := range pieces(a.Text) {
		delta(object{"content": p})
	}
	for i, c := range a.ToolCalls {
		delta(object{"tool_calls": []object{{"index": i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": ""}}}})
		for _, p := range pieces(c.Arguments) {
			delta(object{"tool_calls": []object{{"index": i, "function": object{"arguments": p}}}})
		}
	}
	chunk([]object{{"index": 0, "delta": object{}, "finish_reason": o.finish(a)}}, nil)
	if q.usage {
		chunk([]object{}, object{"usage": o.tokens(a)})
	}
	return append(events, "data: [DONE]\n\n")
}

func (o openai) broken(a Answer) string {
	return "data: " + string(o.fault(a.Status, a.Code, a.Message)) + "\n\n"
}

func (openai) fault(_ int, code, message string) []byte {
	return encode(object{"error": object{"message": message, "type": code, "param": nil, "code": code}})
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // all of it is made here
	}
	return b
}
