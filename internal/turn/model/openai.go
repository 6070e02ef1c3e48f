package model

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
)

// OpenAI returns a model that speaks OpenAI's chat completions API, which many other servers
// speak too: POST {BaseURL}/chat/completions. VALIDATION_ERROR says that an option is wrong.
//
// A text file is sent as text. Images in a tool's answer follow the answers in a user message,
// because the API accepts them nowhere else. Parameters.MaxTokens is sent as
// max_completion_tokens to OpenAI itself, and to other servers as max_tokens, the older name.
func OpenAI(o Options) (turn.Model, error) {
	return newClient(dialect{
		home: "https://api.openai.com/v1", path: "chat/completions", longestName: 64, format: message.FormatOpenAI,
		sign: func(h http.Header, key string) {
			if key != "" {
				h.Set("Authorization", "Bearer "+key)
			}
		},
		request: openaiAsk, plain: (*exchange).openaiPlain, event: (*exchange).openaiEvent,
	}, o)
}

// The request, as far as this package uses it.
type (
	openaiRequest struct {
		Model               string          `json:"model"`
		Messages            []openaiMessage `json:"messages"`
		Tools               []openaiTool    `json:"tools,omitempty"`
		MaxTokens           *int64          `json:"max_tokens,omitempty"`
		MaxCompletionTokens *int64          `json:"max_completion_tokens,omitempty"`
		Temperature         *float64        `json:"temperature,omitempty"`
		TopP                *float64        `json:"top_p,omitempty"`
		Stop                []string        `json:"stop,omitempty"`
		Seed                *int64          `json:"seed,omitempty"`
		Stream              bool            `json:"stream,omitempty"`
		StreamOptions       *openaiStream   `json:"stream_options,omitempty"`
	}
	openaiStream struct {
		IncludeUsage bool `json:"include_usage"`
	}
	openaiTool struct {
		Type     string         `json:"type"`
		Function openaiFunction `json:"function"`
	}
	openaiFunction struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	openaiMessage struct {
		Role       string       `json:"role"`
		Content    any          `json:"content"` // string, []openaiPart or null
		ToolCalls  []openaiCall `json:"tool_calls,omitempty"`
		ToolCallID string       `json:"tool_call_id,omitempty"`
	}
	openaiCall struct {
		ID       string             `json:"id"`
		Type     string             `json:"type"`
		Function openaiCallFunction `json:"function"`
	}
	openaiCallFunction struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	openaiPart struct {
		Type  string       `json:"type"`
		Text  string       `json:"text,omitempty"`
		Image *openaiImage `json:"image_url,omitempty"`
		File  *openaiFile  `json:"file,omitempty"`
	}
	openaiImage struct {
		URL string `json:"url"`
	}
	openaiFile struct {
		Filename string `json:"filename,omitempty"`
		FileData string `json:"file_data,omitempty"`
		FileID   string `json:"file_id,omitempty"`
	}
)

func openaiAsk(c *client, q turn.Question, n *names, stream bool) (any, error) {
	p := q.Parameters
	body := openaiRequest{
		Model: q.Model, Temperature: p.Temperature, TopP: p.TopP, Stop: p.Stop, Seed: p.Seed, Stream: stream,
	}
	if c.base.Hostname() == "api.openai.com" {
		body.MaxCompletionTokens = p.MaxTokens
	} else {
		body.MaxTokens = p.MaxTokens
	}
	if stream {
		body.StreamOptions = &openaiStream{IncludeUsage: true}
	}
	for _, t := range q.Tools {
		body.Tools = append(body.Tools, openaiTool{"function", openaiFunction{n.out(t.Name), t.Description, schemaOf(t.InputSchema)}})
	}
	var err error
	body.Messages, err = openaiMessages(q, n)
	return body, err
}

// openaiMessages encodes a question's messages for the API.
func openaiMessages(q turn.Question, n *names) (out []openaiMessage, err error) {
	if q.System != "" {
		out = append(out, openaiMessage{Role: "system", Content: q.System})
	}
	var shown []openaiPart // parts of tools' answers that are not text
	for i, m := range q.Messages {
		if m.Role != message.Tool && shown != nil {
			out, shown = append(out, openaiMessage{Role: "user", Content: shown}), nil
		}
		to := openaiMessage{Role: string(m.Role), ToolCallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			args := c.Arguments
			if strings.TrimSpace(args) == "" {
				args = "{}" // a model that writes no arguments means this; some servers decode it
			}
			to.ToolCalls = append(to.ToolCalls, openaiCall{c.ID, "function", openaiCallFunction{n.out(c.Name), args}})
		}
		var parts []openaiPart
		var text []string
		for _, p := range m.Content {
			part, ok := openaiPartOf(p)
			switch {
			case !ok && m.Role == message.User:
				return nil, cannot(i, p)
			case !ok, part.Type != "text" && m.Role != message.User && m.Role != message.Tool:
				part = openaiPart{Type: "text", Text: label(p)}
			}
			if part.Type != "text" && m.Role == message.Tool {
				text, shown = append(text, label(p)+" (shown below)"), append(shown, part)
				continue
			}
			parts = append(parts, part)
			text = append(text, part.Text)
		}
		switch {
		case len(m.Content) == 0 && len(m.ToolCalls) > 0: // null
		case m.Role == message.User && len(parts) > 1, len(parts) == 1 && parts[0].Type != "text":
			to.Content = parts
		default:
			to.Content = strings.Join(text, "\n")
		}
		out = append(out, to)
	}
	if shown != nil {
		out = append(out, openaiMessage{Role: "user", Content: shown})
	}
	if len(out) == 0 {
		return nil, errors.New("the question has no message")
	}
	return out, nil
}

// openaiPartOf encodes a part for the API; false if the API has no form for it.
func openaiPartOf(p message.Part) (openaiPart, bool) {
	if p.Type == message.Text {
		return openaiPart{Type: "text", Text: p.Text}, true
	}
	if text, ok := readable(p); ok {
		return openaiPart{Type: "text", Text: label(p) + "\n" + text}, true
	}
	id, isID := strings.CutPrefix(p.URI, message.OpenAIFile)
	switch {
	case p.Type == message.Image && len(p.Data) > 0:
		return openaiPart{Type: "image_url", Image: &openaiImage{dataURL(p)}}, true
	case p.Type == message.Image && isWeb(p.URI):
		return openaiPart{Type: "image_url", Image: &openaiImage{p.URI}}, true
	case p.Type == message.File && p.MIME == pdf && len(p.Data) > 0:
		name := p.Name
		if name == "" {
			name = "file.pdf" // the API requires a name
		}
		return openaiPart{Type: "file", File: &openaiFile{Filename: name, FileData: dataURL(p)}}, true
	case p.Type == message.File && isID:
		return openaiPart{Type: "file", File: &openaiFile{FileID: id}}, true
	case isLink(p):
		return openaiPart{Type: "text", Text: label(p)}, true
	}
	return openaiPart{}, false
}

// The answer, plain or a piece of a stream.
type (
	openaiAnswer struct {
		ID      string         `json:"id"`
		Model   string         `json:"model"`
		Choices []openaiChoice `json:"choices"`
		Usage   *struct {
			Input  int64 `json:"prompt_tokens"`
			Output int64 `json:"completion_tokens"`
			Total  int64 `json:"total_tokens"`
		} `json:"usage"`
		Error *fault `json:"error"`
	}
	openaiChoice struct {
		Index   int        `json:"index"`
		Message openaiSaid `json:"message"`
		Delta   openaiSaid `json:"delta"`
		Finish  string     `json:"finish_reason"`
	}
	openaiSaid struct {
		Content   string `json:"content"`
		Refusal   string `json:"refusal"`
		ToolCalls []struct {
			Index    *int   `json:"index"`
			ID       string `json:"id"`
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	}
)

var openaiFinish = map[string]turn.FinishReason{
	"stop": turn.FinishStop, "length": turn.FinishLength, "content_filter": turn.FinishContentFilter,
	"tool_calls": turn.FinishToolUse, "function_call": turn.FinishToolUse,
}

// openaiPlain reads an answer that comes in one piece.
func (x *exchange) openaiPlain(s *said, body []byte) error {
	in, err := x.openaiDecode(body)
	if err != nil {
		return err
	}
	if len(in.Choices) == 0 {
		return x.garbled("it has no choice")
	}
	return x.openaiAdd(s, in, in.Choices[0].Message)
}

// openaiEvent reads a piece of an answer. The last piece is [DONE].
func (x *exchange) openaiEvent(s *said, data []byte) (last bool, err error) {
	if string(data) == "[DONE]" {
		return true, nil
	}
	in, err := x.openaiDecode(data)
	if err != nil {
		return false, err
	}
	var d openaiSaid
	if len(in.Choices) > 0 {
		d = in.Choices[0].Delta
	}
	return false, x.openaiAdd(s, in, d)
}

// call returns the block of a call. Some servers give all calls of an answer one index: another id
// is another call.
func (s *said) call(index int, id string) *block {
	b := s.block(index, true)
	if b.id != "" && id != "" && b.id != id {
		delete(s.at, index)
		b = s.block(index, true)
	}
	if b.id == "" {
		b.id = id
	}
	return b
}

func (x *exchange) openaiDecode(data []byte) (in openaiAnswer, err error) {
	if err = x.decode(data, &in); err == nil && in.Error != nil {
		err = x.fault(0, *in.Error)
	}
	// A question asks for one choice. The calls of another one are of another answer.
	in.Choices = slices.DeleteFunc(in.Choices, func(c openaiChoice) bool { return c.Index != 0 })
	return in, err
}

// Indices of an answer's texts. Tool calls count from 0.
const (
	textBlock    = -1
	refusalBlock = -2
)

// openaiAdd adds an answer, or a piece of one.
func (x *exchange) openaiAdd(s *said, in openaiAnswer, d openaiSaid) error {
	if in.ID != "" {
		s.id = in.ID
	}
	if in.Model != "" {
		s.model = in.Model
	}
	if u := in.Usage; u != nil {
		s.usage = turn.Usage{Input: u.Input, Output: u.Output, Total: u.Total}
	}
	if d.Content != "" {
		s.add(s.block(textBlock, false), d.Content)
	}
	if d.Refusal != "" {
		s.add(s.block(refusalBlock, false), d.Refusal)
	}
	for i, c := range d.ToolCalls {
		if c.Index != nil {
			i = *c.Index
		}
		if i < 0 {
			return x.garbled("a tool call has the index %d", i)
		}
		b := s.call(i, c.ID)
		if b.name == "" {
			b.name = c.Function.Name
		}
		args := string(c.Function.Arguments)
		if strings.HasPrefix(args, `"`) {
			if err := json.Unmarshal(c.Function.Arguments, &args); err != nil {
				return x.garbled("arguments: %w", err)
			}
		} else if args == "null" {
			args = ""
		} // some servers send an object: its text is the arguments
		s.add(b, args)
	}
	if len(in.Choices) > 0 && in.Choices[0].Finish != "" {
		reason, ok := openaiFinish[in.Choices[0].Finish]
		if !ok {
			reason = turn.FinishError
		}
		s.finish = reason
	}
	if s.at[refusalBlock] != nil && s.finish == turn.FinishStop {
		s.finish = turn.FinishContentFilter
	}
	for _, b := range s.blocks {
		if b.call && b.name == "" && s.finish != "" {
			return x.garbled("a tool call has no name")
		}
	}
	return nil
}
