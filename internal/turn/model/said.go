package model

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/schemas/tga"
)

// said is an answer that is being assembled.
type said struct {
	id, model string
	blocks    []*block
	at        map[int]*block // by the index that the API gives them
	finish    turn.FinishReason
	usage     turn.Usage
	onDelta   func(string)
}

// block is a text or a tool call.
type block struct {
	call     bool
	id, name string
	text     strings.Builder // or the arguments
	whole    string          // arguments that came in one piece, used if text is empty
}

func newSaid(q turn.Question) *said { return &said{at: map[int]*block{}, onDelta: q.OnDelta} }

// block returns the block with an index. The first use of an index creates its block.
func (s *said) block(index int, call bool) *block {
	b, ok := s.at[index]
	if !ok {
		b = &block{call: call}
		s.at[index], s.blocks = b, append(s.blocks, b)
	}
	return b
}

func (s *said) add(b *block, text string) {
	b.text.WriteString(text)
	if !b.call && s.onDelta != nil && text != "" {
		s.onDelta(text)
	}
}

// answer returns the assembled answer. The caller has checked that it is complete.
func (s *said) answer(q turn.Question, n *names, format string, now tga.Millis) turn.Answer {
	m := message.Message{
		Role: message.Assistant, Content: []message.Part{},
		Metadata: message.Metadata{Source: message.FromModel, OriginalFormat: format, NormalizedAt: now},
	}
	seen := map[string]bool{}
	for i, b := range s.blocks {
		text := b.text.String()
		if !b.call {
			if text != "" {
				m.Content = append(m.Content, message.Part{Type: message.Text, Text: text})
			}
			continue
		}
		if text == "" {
			text = b.whole
		}
		// Some servers send no ids, or the same id for all calls. Each result must name its call,
		// so the ids must differ.
		for k := i; b.id == "" || seen[b.id]; k++ {
			b.id = "call_" + strconv.Itoa(k)
		}
		seen[b.id] = true
		m.ToolCalls = append(m.ToolCalls, message.ToolCall{ID: b.id, Name: n.in(b.name), Arguments: text})
	}
	a := turn.Answer{ID: s.id, Model: s.model, Said: m, Finish: s.finish, Usage: s.usage}
	a.Model = cmp.Or(a.Model, q.Model)
	a.Usage.Total = cmp.Or(a.Usage.Total, a.Usage.Input+a.Usage.Output)
	if len(m.ToolCalls) > 0 && a.Finish == turn.FinishStop {
		a.Finish = turn.FinishToolUse // not all servers say that
	}
	return a
}

// schemaOf returns an input schema in the form that both APIs accept: an object whose type is
// object.
func schemaOf(raw json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return json.RawMessage(`{"type":"object","properties":{}}`) // no schema, or true: everything is allowed
	}
	if _, ok := members["type"]; ok {
		return raw
	}
	members["type"] = json.RawMessage(`"object"`)
	out, err := json.Marshal(members)
	if err != nil {
		return raw
	}
	return out
}
