package model

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
)

const anthropicVersion = "2023-06-01"

// Anthropic returns a model that speaks Anthropic's messages: POST {BaseURL}/messages.
// VALIDATION_ERROR says that an option is wrong.
//
// A system message of the conversation, such as a summary, is sent with the system prompt,
// because the API has no such role in messages. Consecutive messages of one role become one
// message. The API has no seed: Parameters.Seed is not sent.
func Anthropic(o Options) (turn.Model, error) {
	return newClient(dialect{
		home: "https://api.anthropic.com/v1", path: "messages", longestName: 128, format: message.FormatAnthropic,
		sign: func(h http.Header, key string) {
			h.Set("Anthropic-Version", anthropicVersion)
			if key != "" {
				h.Set("X-Api-Key", key)
			}
		},
		request: anthropicAsk, plain: (*exchange).anthropicPlain, event: (*exchange).anthropicEvent,
	}, o)
}

// The request, as far as this package uses it.
type (
	anthropicRequest struct {
		Model       string             `json:"model"`
		MaxTokens   int64              `json:"max_tokens"`
		System      []anthropicBlock   `json:"system,omitempty"`
		Messages    []anthropicMessage `json:"messages"`
		Tools       []anthropicTool    `json:"tools,omitempty"`
		Temperature *float64           `json:"temperature,omitempty"`
		TopP        *float64           `json:"top_p,omitempty"`
		Stop        []string           `json:"stop_sequences,omitempty"`
		Stream      bool               `json:"stream,omitempty"`
	}
	anthropicTool struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	anthropicMessage struct {
		Role    string           `json:"role"`
		Content []anthropicBlock `json:"content"`
	}
	anthropicBlock struct {
		Type      string           `json:"type"`
		Text      string           `json:"text,omitempty"`
		Source    *anthropicSource `json:"source,omitempty"`
		Title     string           `json:"title,omitempty"`
		ID        string           `json:"id,omitempty"`
		Name      string           `json:"name,omitempty"`
		Input     json.RawMessage  `json:"input,omitempty"`
		ToolUseID string           `json:"tool_use_id,omitempty"`
		Content   []anthropicBlock `json:"content,omitempty"`
		IsError   bool             `json:"is_error,omitempty"`
	}
	anthropicSource struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type,omitempty"`
		Data      any    `json:"data,omitempty"` // text, or bytes in base64
		URL       string `json:"url,omitempty"`
		FileID    string `json:"file_id,omitempty"`
	}
)

func anthropicAsk(c *client, q turn.Question, n *names, stream bool) (any, error) {
	p := q.Parameters
	body := anthropicRequest{
		Model: q.Model, MaxTokens: c.opts.MaxTokens, Temperature: p.Temperature, TopP: p.TopP, Stop: p.Stop, Stream: stream,
	}
	if p.MaxTokens != nil {
		body.MaxTokens = *p.MaxTokens
	}
	for _, t := range q.Tools {
		body.Tools = append(body.Tools, anthropicTool{n.out(t.Name), t.Description, schemaOf(t.InputSchema)})
	}
	return &body, body.messages(q, n)
}

// messages encodes a question's messages for the API.
func (r *anthropicRequest) messages(q turn.Question, n *names) error {
	r.System = appendText(nil, q.System)
	for i, m := range q.Messages {
		blocks, err := anthropicContent(i, m)
		if err != nil {
			return err
		}
		switch m.Role {
		case message.System:
			r.System = append(r.System, blocks...)
			continue
		case message.Tool:
			// The API refuses is_error without content.
			if m.ToolError && len(blocks) == 0 {
				blocks = appendText(blocks, "error")
			}
			r.add("user", anthropicBlock{Type: "tool_result", ToolUseID: m.ToolCallID, Content: blocks, IsError: m.ToolError})
			continue
		}
		for _, c := range m.ToolCalls {
			blocks = append(blocks, anthropicBlock{Type: "tool_use", ID: c.ID, Name: n.out(c.Name), Input: inputOf(c.Arguments)})
		}
		r.add(string(m.Role), blocks...)
	}
	if len(r.Messages) == 0 {
		return errors.New("the question has no message")
	}
	return nil
}

// add adds blocks to the last message, or to a new one if the last has another role.
func (r *anthropicRequest) add(role string, blocks ...anthropicBlock) {
	if len(blocks) == 0 {
		return // an assistant's empty message: the API refuses those
	}
	if len(r.Messages) == 0 && role != "user" {
		// The API requires that a conversation begins with the user.
		r.Messages = append(r.Messages, anthropicMessage{"user", appendText(nil, "[earlier messages are left out]")})
	}
	if last := len(r.Messages) - 1; last >= 0 && r.Messages[last].Role == role {
		r.Messages[last].Content = append(r.Messages[last].Content, blocks...)
		return
	}
	r.Messages = append(r.Messages, anthropicMessage{role, blocks})
}

// appendText appends a block of text, unless it is empty: the API refuses empty blocks.
func appendText(blocks []anthropicBlock, text string) []anthropicBlock {
	if strings.TrimSpace(text) == "" {
		return blocks
	}
	return append(blocks, anthropicBlock{Type: "text", Text: text})
}

// inputOf returns arguments as the object that the API requires. If a model wrote something that
// is not an object, it sees what it wrote.
func inputOf(arguments string) json.RawMessage {
	text := strings.TrimSpace(arguments)
	if text == "" {
		return json.RawMessage("{}")
	}
	if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	out, err := json.Marshal(map[string]string{"invalid_arguments": arguments})
	if err != nil {
		return json.RawMessage("{}")
	}
	return out
}

func anthropicContent(i int, m message.Message) (blocks []anthropicBlock, err error) {
	for _, p := range m.Content {
		b, ok := anthropicBlockOf(p)
		switch {
		case p.Type == message.Text:
			blocks = appendText(blocks, p.Text)
			continue
		case !ok && m.Role == message.User:
			return nil, cannot(i, p)
		case !ok, b.Type != "text" && m.Role != message.User && m.Role != message.Tool:
			b = anthropicBlock{Type: "text", Text: label(p)}
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// anthropicBlockOf encodes a part that is not text for the API; false if the API has no form for
// it.
func anthropicBlockOf(p message.Part) (anthropicBlock, bool) {
	kind, source := "document", &anthropicSource{}
	if p.Type == message.Image {
		kind = "image"
	}
	id, isID := strings.CutPrefix(p.URI, message.AnthropicFile)
	text, isText := readable(p)
	switch {
	case isText:
		*source = anthropicSource{Type: "text", MediaType: "text/plain", Data: text}
	case len(p.Data) > 0 && (kind == "image" || p.MIME == pdf):
		*source = anthropicSource{Type: "base64", MediaType: p.MIME, Data: p.Data}
	case len(p.Data) > 0:
		return anthropicBlock{}, false
	case isID:
		*source = anthropicSource{Type: "file", FileID: id}
	case isWeb(p.URI) && (kind == "image" || p.MIME == pdf):
		*source = anthropicSource{Type: "url", URL: p.URI}
	case isLink(p):
		return anthropicBlock{Type: "text", Text: label(p)}, true
	default:
		return anthropicBlock{}, false
	}
	b := anthropicBlock{Type: kind, Source: source}
	if kind == "document" {
		b.Title = p.Name
	}
	return b, true
}

// The answer: a message, or an event of a stream.
type (
	anthropicAnswer struct {
		ID      string         `json:"id"`
		Model   string         `json:"model"`
		Content []anthropicOut `json:"content"`
		Stop    string         `json:"stop_reason"`
		Usage   anthropicUsage `json:"usage"`
		Type    string         `json:"type"`
		Error   fault          `json:"error"`
	}
	anthropicEvent struct {
		Type    string          `json:"type"`
		Message anthropicAnswer `json:"message"`
		Index   int             `json:"index"`
		Block   anthropicOut    `json:"content_block"`
		Delta   struct {
			Type string `json:"type"`
			Text string `json:"text"`
			JSON string `json:"partial_json"`
			Stop string `json:"stop_reason"`
		} `json:"delta"`
		Usage anthropicUsage `json:"usage"`
		Error fault          `json:"error"`
	}
	anthropicOut struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	anthropicUsage struct {
		Input   *int64 `json:"input_tokens"`
		Written int64  `json:"cache_creation_input_tokens"`
		Read    int64  `json:"cache_read_input_tokens"`
		Output  *int64 `json:"output_tokens"`
	}
)

var anthropicFinish = map[string]turn.FinishReason{
	"end_turn": turn.FinishStop, "stop_sequence": turn.FinishStop, "tool_use": turn.FinishToolUse,
	"max_tokens": turn.FinishLength, "model_context_window_exceeded": turn.FinishLength, "refusal": turn.FinishContentFilter,
}

// anthropicPlain reads an answer that comes in one piece.
func (x *exchange) anthropicPlain(s *said, body []byte) error {
	var in anthropicAnswer
	if err := x.decode(body, &in); err != nil {
		return err
	}
	if in.Type == "error" {
		return x.fault(0, in.Error)
	}
	if in.Type != "message" || in.Stop == "" {
		return x.garbled("it is no message, or does not say why it ends")
	}
	s.id, s.model = in.ID, in.Model
	for i, b := range in.Content {
		if err := x.anthropicStart(s, i, b); err != nil {
			return err
		}
	}
	s.anthropicUsage(in.Usage)
	s.anthropicStop(in.Stop)
	return nil
}

// anthropicEvent reads an event of a stream. The last is message_stop.
func (x *exchange) anthropicEvent(s *said, data []byte) (last bool, err error) {
	var e anthropicEvent
	if err := x.decode(data, &e); err != nil {
		return false, err
	}
	switch e.Type {
	case "error":
		err = x.fault(0, e.Error)
	case "message_start":
		s.id, s.model = e.Message.ID, e.Message.Model
		s.anthropicUsage(e.Message.Usage)
	case "content_block_start":
		err = x.anthropicStart(s, e.Index, e.Block)
	case "content_block_delta":
		err = x.anthropicDelta(s, e)
	case "message_delta":
		s.anthropicUsage(e.Usage)
		s.anthropicStop(e.Delta.Stop)
	case "message_stop":
		last = true
	} // content_block_stop, ping and unknown events are ignored
	return last, err
}

// anthropicStart begins a block. A block of a kind that was not requested is ignored.
func (x *exchange) anthropicStart(s *said, index int, b anthropicOut) error {
	if s.at[index] != nil {
		return x.garbled("block %d begins twice", index) // the second would take the place of the first
	}
	switch b.Type {
	case "text":
		s.add(s.block(index, false), b.Text)
	case "tool_use":
		if b.Name == "" || b.ID == "" {
			return x.garbled("a tool call has no name or no id")
		}
		to := s.block(index, true)
		to.id, to.name, to.whole = b.ID, b.Name, string(b.Input)
	}
	return nil
}

func (x *exchange) anthropicDelta(s *said, e anthropicEvent) error {
	b := s.at[e.Index]
	switch {
	case e.Delta.Type == "text_delta" && b != nil && !b.call:
		s.add(b, e.Delta.Text)
	case e.Delta.Type == "input_json_delta" && b != nil && b.call:
		s.add(b, e.Delta.JSON)
	case e.Delta.Type == "text_delta", e.Delta.Type == "input_json_delta" && b != nil:
		return x.garbled("a %s for block %d, which is none of that kind", e.Delta.Type, e.Index)
	}
	return nil
}

// anthropicUsage takes the counts of an event. Each later event counts from the beginning.
func (s *said) anthropicUsage(u anthropicUsage) {
	if u.Input != nil {
		s.usage.Input = *u.Input + u.Written + u.Read
	}
	if u.Output != nil {
		s.usage.Output = *u.Output
	}
}

func (s *said) anthropicStop(reason string) {
	if reason == "" {
		return
	}
	if finish, ok := anthropicFinish[reason]; ok {
		s.finish = finish
	} else {
		s.finish = turn.FinishError
	}
}
