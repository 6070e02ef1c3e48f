package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
)

// anthropic is the messages API, version 2023-06-01.
type anthropic struct{}

func (anthropic) name() string { return "anthropic" }

func (anthropic) key(h http.Header) string { return h.Get("X-Api-Key") }

var anthropicName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// block is a block of a message of a request.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Source    json.RawMessage `json:"source"`
	Content   json.RawMessage `json:"content"`
}

func (anthropic) read(h http.Header, body []byte) (q question, err error) {
	var in struct {
		Model     string `json:"model"`
		MaxTokens int64  `json:"max_tokens"`
		Stream    bool   `json:"stream"`
		Messages  []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name        string          `json:"name"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return q, fmt.Errorf("the body is not JSON of this API: %w", err)
	}
	q = question{model: in.Model, stream: in.Stream, usage: true}
	switch {
	case h.Get("Anthropic-Version") == "":
		return q, fmt.Errorf("anthropic-version: header is required")
	case in.Model == "" || len(in.Messages) == 0 || in.MaxTokens < 1:
		return q, fmt.Errorf("model, messages and max_tokens are required")
	case in.Messages[0].Role != "user":
		return q, fmt.Errorf("messages: first message must use the \"user\" role")
	}
	for i, t := range in.Tools {
		var schema struct {
			Type string `json:"type"`
		}
		if !anthropicName.MatchString(t.Name) || json.Unmarshal(t.InputSchema, &schema) != nil || schema.Type != "object" {
			return q, fmt.Errorf("tools.%d: want a name, and an input_schema of type object", i)
		}
	}
	var open map[string]bool // calls of the message before
	for i, m := range in.Messages {
		if m.Role != "user" && m.Role != "assistant" {
			return q, fmt.Errorf("messages.%d.role: unexpected value %q", i, m.Role)
		}
		blocks, err := blocksOf(m.Content)
		if err != nil {
			return q, fmt.Errorf("messages.%d.content: %w", i, err)
		}
		if open, err = checkBlocks(m.Role, blocks, open); err != nil {
			return q, fmt.Errorf("messages.%d: %w", i, err)
		}
		if m.Role == "assistant" {
			q.assistants++
		}
	}
	if len(open) > 0 {
		return q, fmt.Errorf("`tool_use` ids were found without `tool_result` blocks immediately after")
	}
	return q, nil
}

func blocksOf(raw json.RawMessage) ([]block, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []block{{Type: "text", Text: text}}, nil
	}
	var blocks []block
	if err := json.Unmarshal(raw, &blocks); err != nil || len(blocks) == 0 {
		return nil, fmt.Errorf("want a string or blocks")
	}
	return blocks, nil
}

// checkBlocks checks a message against open, the calls that the message before asks for. It
// returns the calls that this message asks for.
func checkBlocks(role string, blocks []block, open map[string]bool) (map[string]bool, error) {
	calls := map[string]bool{}
	for i, b := range blocks {
		switch {
		case b.Type == "text" && b.Text == "":
			return nil, fmt.Errorf("text content blocks must be non-empty")
		case b.Type == "text":
		case (b.Type == "image" || b.Type == "document") && role == "user":
			if !isObject(b.Source) {
				return nil, fmt.Errorf("content.%d.source: field required", i)
			}
		case b.Type == "tool_use" && role == "assistant":
			if b.ID == "" || calls[b.ID] || !anthropicName.MatchString(b.Name) || !isObject(b.Input) {
				return nil, fmt.Errorf("content.%d: a tool_use with an id of its own, a name and an input", i)
			}
			calls[b.ID] = true
		case b.Type == "tool_result" && role == "user":
			if !open[b.ToolUseID] {
				return nil, fmt.Errorf("unexpected `tool_use_id` found in `tool_result` blocks: %s", b.ToolUseID)
			}
			delete(open, b.ToolUseID)
		default:
			return nil, fmt.Errorf("content.%d: a block of type %q in a message of role %s", i, b.Type, role)
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("`tool_use` ids were found without `tool_result` blocks immediately after")
	}
	return calls, nil
}

func (anthropic) finish(a Answer) string {
	switch {
	case a.Finish != "":
		return a.Finish
	case len(a.ToolCalls) > 0:
		return "tool_use"
	}
	return "end_turn"
}

func (an anthropic) plain(n int, q question, a Answer) []byte {
	content := []object{}
	if a.Text != "" {
		content = append(content, object{"type": "text", "text": a.Text})
	}
	for _, c := range a.ToolCalls {
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(c.Arguments)})
	}
	return encode(object{
		"id": "msg_" + strconv.Itoa(n), "type": "message", "role": "assistant", "model": q.model + "-local", "content": content,
		"stop_reason": an.finish(a), "stop_sequence": nil,
		"usage": object{"input_tokens": a.Input, "output_tokens": a.Output},
	})
}

func (an anthropic) events(n int, q question, a Answer) (events []string) {
	event := func(kind string, body object) {
		body["type"] = kind
		events = append(events, "event: "+kind+"\ndata: "+string(encode(body))+"\n\n")
	}
	event("message_start", object{"message": object{
		"id": "msg_" + strconv.Itoa(n), "type": "message", "role": "assistant", "model": q.model + "-local", "content": []object{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": a.Input, "output_tokens": 1},
	}})
	index := 0
	part := func(start object, kind, name, text string) {
		event("content_block_start", object{"index": index, "content_block": start})
		if index == 0 {
			event("ping", object{})
		}
		for _, p := range pieces(text) {
			event("content_block_delta", object{"index": index, "delta": object{"type": kind, name: p}})
		}
		event("content_block_stop", object{"index": index})
		index++
	}
	if a.Text != "" {
		part(object{"type": "text", "text": ""}, "text_delta", "text", a.Text)
	}
	for _, c := range a.ToolCalls {
		part(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}}, "input_json_delta", "partial_json", c.Arguments)
	}
	event("message_delta", object{"delta": object{"stop_reason": an.finish(a), "stop_sequence": nil}, "usage": object{"output_tokens": a.Output}})
	event("message_stop", object{})
	return events
}

func (an anthropic) broken(a Answer) string {
	return "event: error\ndata: " + string(an.fault(a.Status, a.Code, a.Message)) + "\n\n"
}

func (anthropic) fault(_ int, code, message string) []byte {
	return encode(object{"type": "error", "error": object{"type": code, "message": message}, "request_id": "req_local"})
}
