// Package message owns the one form in which an agent's messages are stored and passed to a
// model. It also owns what is done to them on the way: normalization, filtering, and choosing the
// part of a conversation that still fits ([OSSA] 0.2.9 §1 phase 2, §4).
//
// It is pure: no I/O, no clock, no randomness.
//
// # Invariants
//
//	own words   a user's input has no role but user             [Normalize]          TestUserSpeaksForThemselves
//	raw         arguments of tool calls are never re-encoded    [Normalize]          TestNormalize
//	no echo     an error or finding never holds the content     [Compiled.Apply]     TestBlockNamesTheRuleAndNeverTheContent
//	still JSON  JSON that is redacted is JSON                   [Compiled.ApplyBytes] FuzzRedact
//	linear      work grows with the text, not with its square   [Compiled.Apply]     TestHostileTexts
//	pairs       no call without its answer, and no reverse      [Memory.Fit]         TestFitKeepsItsPromises
//	in progress what follows the newest user's message is kept  [Memory.Fit]         TestFitKeepsItsPromises
//
// [OSSA]: https://openstandardagents.org
package message

import "github.com/tgad/tgad/schemas/tga"

// Role says who speaks in a message.
type Role string

// The roles.
const (
	User      Role = "user"
	System    Role = "system"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Source says how a message came in.
type Source string

// The sources. FromModel and FromTool are the sources of messages that the turn itself makes.
const (
	FromUser       Source = "user"
	FromAPI        Source = "api"
	FromDelegation Source = "delegation"
	FromModel      Source = "model"
	FromTool       Source = "tool"
)

// Message is a normalized message.
type Message struct {
	Role    Role   `json:"role"`
	Content []Part `json:"content"`
	// ToolCalls are the calls that an assistant's message asks for, in its order.
	ToolCalls []ToolCall `json:"tool_calls,omitempty"`
	// ToolCallID and ToolError belong to a tool's message: which call it answers, and whether the
	// answer says that the call failed.
	ToolCallID string   `json:"tool_call_id,omitempty"`
	ToolError  bool     `json:"tool_error,omitempty"`
	Metadata   Metadata `json:"metadata"`
}

// Metadata says where a message comes from.
type Metadata struct {
	Source         Source     `json:"source"`
	OriginalFormat string     `json:"original_format"` // a Format* constant
	NormalizedAt   tga.Millis `json:"normalized_at"`
}

// PartType says what a part is.
type PartType string

// The types of parts.
const (
	Text  PartType = "text"
	Image PartType = "image"
	File  PartType = "file"
)

// Part is a piece of a message. Text parts have Text; the others have Data or URI.
type Part struct {
	Type PartType `json:"type"`
	Text string   `json:"text,omitempty"`
	MIME string   `json:"mime,omitempty"`
	Data []byte   `json:"data,omitempty"` // base64 in JSON
	URI  string   `json:"uri,omitempty"`
	Name string   `json:"name,omitempty"` // of a file
}

// ToolCall is a call that a model asks for.
type ToolCall struct {
	ID   string `json:"id"` // the model's id, unique within the message
	Name string `json:"name"`
	// Arguments is the text that the model gave. It is never decoded and encoded again, and it
	// need not even be JSON.
	Arguments string `json:"arguments"`
}

// Plain returns the text of a message, its text parts joined by newlines.
func (m Message) Plain() string {
	var out []byte
	for _, p := range m.Content {
		if p.Type != Text {
			continue
		}
		if len(out) > 0 {
			out = append(out, '\n')
		}
		out = append(out, p.Text...)
	}
	return string(out)
}

// TextMessage makes a message with one text part.
func TextMessage(role Role, text string, source Source, at tga.Millis) Message {
	return Message{
		Role: role, Content: []Part{{Type: Text, Text: text}},
		Metadata: Metadata{Source: source, OriginalFormat: FormatText, NormalizedAt: at},
	}
}

// FormatText is the original format of plain text.
const FormatText = "text"
