package message

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// The formats that [Normalize] reads. An original_format is one of them.
const (
	// FormatOpenAI is a message of the OpenAI chat completions API, a list of them, or a request
	// body with messages.
	FormatOpenAI = "openai.chat"
	// FormatAnthropic is the same for the Anthropic messages API.
	FormatAnthropic = "anthropic.messages"
	// FormatMCP is a content block of the Model Context Protocol, a list of blocks, a
	// prompt message, a list of those, or an object with messages.
	FormatMCP = "mcp.content"
)

// Limits of one input. Exceeding one is LIMIT_EXCEEDED.
const (
	MaxBytes     = 16 << 20 // of the text handed in
	MaxMessages  = 1024
	MaxParts     = 256 // of a message
	MaxToolCalls = 128 // of a message
)

// Normalize makes messages of an input (OSSA 0.2.9 §1 phase 2). format is a Format* constant, or
// "" to detect it from the input (see [Detect]). at is the time that the messages get.
//
// A user speaks only as a user: from FromUser every role but user is refused. The other sources
// may pass in a whole conversation.
//
// Bad input is VALIDATION_ERROR, or LIMIT_EXCEEDED, with a JSON Pointer into raw.
func Normalize(raw []byte, format string, source Source, at tga.Millis) ([]Message, error) {
	if len(raw) > MaxBytes {
		return nil, tga.Errorf(tga.LimitExceeded, "the message has %d bytes: the limit is %d", len(raw), MaxBytes)
	}
	if !slices.Contains([]Source{FromUser, FromAPI, FromDelegation}, source) {
		return nil, tga.Errorf(tga.ValidationError, "source %.80q: want user, api or delegation", source)
	}
	if format == "" {
		format = Detect(raw)
	}
	read, ok := readers[format]
	if !ok {
		return nil, tga.Errorf(tga.ValidationError, "format %.80q: want one of text, %s, %s, %s", format, FormatOpenAI, FormatAnthropic, FormatMCP)
	}
	messages, where, err := read(raw)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		m := &messages[i]
		if err := m.check(source, where[i]); err != nil {
			return nil, err
		}
		m.Metadata = Metadata{Source: source, OriginalFormat: format, NormalizedAt: at}
	}
	if len(messages) == 0 {
		return nil, tga.Errorf(tga.ValidationError, "there is no message in the input")
	}
	return messages, nil
}

// readers read an input into messages, and return the place in the input of each message.
var readers = map[string]func(raw []byte) ([]Message, []place, error){
	FormatText:      readText,
	FormatOpenAI:    chat{one: openaiMessage}.read,
	FormatAnthropic: chat{one: anthropicMessage, system: anthropicBlocks}.read,
	FormatMCP:       readMCP,
}

func readText(raw []byte) ([]Message, []place, error) {
	if !utf8.Valid(raw) {
		return nil, nil, tga.Errorf(tga.ValidationError, "the message is not UTF-8")
	}
	return []Message{{Role: User, Content: []Part{{Type: Text, Text: string(raw)}}}}, []place{{}}, nil
}

// check checks the rules that are common to all formats.
func (m *Message) check(source Source, p place) error {
	if source == FromUser && m.Role != User {
		return p.wrong("a message of role %s, and a user may send none but their own", m.Role)
	}
	if len(m.Content) > MaxParts {
		return p.over("%d parts: the limit is %d", len(m.Content), MaxParts)
	}
	if len(m.ToolCalls) > MaxToolCalls {
		return p.over("%d tool calls: the limit is %d", len(m.ToolCalls), MaxToolCalls)
	}
	if len(m.ToolCalls) > 0 && m.Role != Assistant {
		return p.wrong("tool calls in a message of role %s", m.Role)
	}
	if (m.ToolCallID != "") != (m.Role == Tool) {
		return p.wrong("a message of role %s with tool call id %.80q", m.Role, m.ToolCallID)
	}
	// A tool's or a model's empty answer is a valid answer.
	if m.Role == User || m.Role == System {
		if !slices.ContainsFunc(m.Content, func(c Part) bool { return c.Type != Text || c.Text != "" }) {
			return p.wrong("the message is empty")
		}
	}
	seen := map[string]bool{}
	for _, c := range m.ToolCalls {
		if seen[c.ID] {
			return p.wrong("two tool calls with the id %.80q", c.ID)
		}
		seen[c.ID] = true
	}
	return nil
}

// chat reads the two formats whose messages are objects with role and content.
type chat struct {
	one func(place) ([]Message, error)
	// system reads the member "system" beside messages; nil = the format has none.
	system func(place) ([]Part, error)
}

func (c chat) read(raw []byte) (messages []Message, where []place, err error) {
	root, err := rootOf(raw)
	if err != nil {
		return nil, nil, err
	}
	var list []place
	switch {
	case root.is('['):
		list, err = root.array(MaxMessages)
	case root.is('{'):
		var members map[string]place
		if members, err = root.object(); err != nil {
			return nil, nil, err
		}
		body, ok := members["messages"]
		if !ok {
			list = []place{root}
			break
		}
		if p := members["system"]; c.system != nil && !p.absent() {
			parts, err := c.system(p)
			if err != nil {
				return nil, nil, err
			}
			messages, where = append(messages, Message{Role: System, Content: parts}), append(where, p)
		}
		list, err = body.array(MaxMessages)
	default:
		err = root.wrong("want a message, a list of them, or an object with messages")
	}
	if err != nil {
		return nil, nil, err
	}
	for _, p := range list {
		some, err := c.one(p)
		if err != nil {
			return nil, nil, err
		}
		for range some {
			where = append(where, p)
		}
		// One message of Anthropic's may become several: each is counted.
		if messages = append(messages, some...); len(messages) > MaxMessages {
			return nil, nil, p.over("more than %d messages", MaxMessages)
		}
	}
	return messages, where, nil
}

// Detect returns the format of an input. Input that is not JSON, or JSON of no message format, is
// text.
func Detect(raw []byte) string {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 || trimmed[0] != '{' && trimmed[0] != '[' {
		return FormatText
	}
	root, err := rootOf(raw)
	if err != nil {
		return FormatText
	}
	list := []place{root}
	if root.is('{') {
		if body, ok := shape(root)["messages"]; ok {
			if _, ok := shape(root)["system"]; ok {
				return FormatAnthropic
			}
			list = elements(body)
		}
	} else {
		list = elements(root)
	}
	format := FormatText
	for _, p := range list {
		f, sure := shapeOf(p)
		if sure {
			return f
		}
		if format == FormatText {
			format = f
		}
	}
	return format
}

// shapeOf returns which format one element of a list looks like, and whether it cannot be
// another.
func shapeOf(p place) (format string, sure bool) {
	m := shape(p)
	_, hasRole := m["role"]
	content, hasContent := m["content"]
	switch {
	case !hasRole:
		if format = blockFormat(m); format == "" {
			return FormatText, false
		}
		return format, format != FormatMCP
	case content.is('{'):
		return FormatMCP, true // the only one whose content is a single block
	case !hasContent && m["tool_calls"].absent():
		return FormatText, false
	case content.is('['):
		for _, b := range elements(content) {
			if f := blockFormat(shape(b)); f != "" && string(shape(b)["type"].raw) != `"text"` {
				return f, true
			}
		}
	}
	return FormatOpenAI, !m["tool_calls"].absent() || !m["tool_call_id"].absent()
}

// blockFormat returns the format that a block belongs to, "" if to none. A text block could
// belong to any format; alone, outside of a message, it counts as MCP's.
func blockFormat(m map[string]place) string {
	switch kind, _ := m["type"].text(); kind { // a value that is not a string is no type
	case "image_url", "input_audio", "file", "refusal":
		return FormatOpenAI
	case "tool_use", "tool_result", "document", "thinking", "redacted_thinking":
		return FormatAnthropic
	case "text", "audio", "resource", "resource_link":
		return FormatMCP
	case "image":
		if _, ok := m["source"]; ok {
			return FormatAnthropic
		}
		return FormatMCP
	}
	return ""
}

// shape is object for a value that may not be one: it ignores the error, which the format's
// reader reports.
func shape(p place) map[string]place {
	m, err := p.object()
	if err != nil {
		return nil
	}
	return m
}

func elements(p place) []place {
	list, err := p.array(MaxBytes)
	if err != nil {
		return nil
	}
	return list
}
