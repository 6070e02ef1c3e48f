package message

import (
	"cmp"
	"context"
	"strings"
	"unicode/utf8"

	"github.com/tgad/tgad/schemas/tga"
)

// Memory says how much of a conversation a model is given (OSSA 0.2.9 §4).
type Memory struct {
	Window   int      // messages; 0 = DefaultWindow
	Tokens   int      // 0 = DefaultTokens
	Strategy Strategy // "" = Sliding
}

// The defaults of OSSA 0.2.9 §4.
const (
	DefaultWindow = 20
	DefaultTokens = 4000
)

// Strategy says what happens to messages that do not fit. OSSA 0.2.9 names the three strategies
// and does not define them further.
type Strategy string

// The strategies. All take messages from the newest backwards and stop at the first that does not
// fit. Sliding leaves that message out. Truncate cuts its text to what still fits. Summarize
// replaces it and everything before it by a summary.
const (
	Truncate  Strategy = "truncate"
	Summarize Strategy = "summarize"
	Sliding   Strategy = "sliding"
)

// imageTokens is the most tokens that a provider counts for one image of ordinary size.
const imageTokens = 1600

// EstimateTokens estimates the tokens of a message: one token per four bytes, rounded up, 1,600
// for an image, and four for the message itself. Providers count differently. The estimate is
// somewhat high for English text, and low for most other languages and for code.
func EstimateTokens(m Message) int {
	n, tokens := len(m.ToolCallID), 4
	for _, p := range m.Content {
		if p.Type == Image {
			tokens += imageTokens
			continue
		}
		n += len(p.Text) + len(p.Name) + len(p.URI) + len(p.Data)
	}
	for _, c := range m.ToolCalls {
		n += len(c.ID) + len(c.Name) + len(c.Arguments)
	}
	return tokens + (n+3)/4
}

// Fit returns the part of a conversation that a model is given, in order. history is not changed.
// A nil count means [EstimateTokens].
//
// The newest message of a user and everything after it are always included, whatever their size:
// they are the invocation in progress, and a model that does not see what its tool did asks for
// it again. Earlier messages fill what is left of the window and of the tokens.
//
// An assistant's message and the answers of the tools that it asked for are included or left out
// together, because no provider accepts one without the other. For the same reason, a call
// without an answer is removed from the message that asks for it, and an answer without a call is
// left out.
//
// If Strategy is Summarize and something is left out, Fit calls summarize once. It cuts the text
// if it is too long, and returns the error of summarize. VALIDATION_ERROR says that the Memory is
// invalid.
func (mem Memory) Fit(ctx context.Context, history []Message, count func(Message) int,
	summarize func(context.Context, []Message) (string, error)) ([]Message, error) {
	if count == nil {
		count = EstimateTokens
	}
	if err := mem.check(summarize != nil); err != nil {
		return nil, err
	}
	units := unitsOf(history)
	now := max(len(units)-1, 0) // first unit of the invocation in progress
	for i, u := range units {
		if u.messages[0].Role == User {
			now = i
		}
	}
	room := mem.room()
	for i := range units {
		units[i].tokens = 0
		for _, m := range units[i].messages {
			units[i].tokens += count(m)
		}
	}
	past, progress := units[:now], units[now:]
	for _, u := range progress {
		room.take(u)
	}
	from, left := slide(past, room)
	out := append(join(past[from:]), join(progress)...)
	if from == 0 || mem.Strategy == "" || mem.Strategy == Sliding {
		return out, nil
	}
	if mem.Strategy == Truncate {
		if first := past[from-1].messages; len(first) == 1 && left.messages > 0 {
			if m, ok := cut(first[0], "", left.tokens, count); ok {
				out = append([]Message{m}, out...)
			}
		}
		return out, nil
	}
	// The summary needs room too: it gets a quarter of the tokens, and one place in the window.
	share := room
	share.tokens, share.messages = room.tokens-room.tokens/4, room.messages-1
	from, left = slide(past, share)
	left.tokens += room.tokens / 4
	left.messages++
	out = append(join(past[from:]), join(progress)...)
	if left.messages < 1 || left.tokens < 1 {
		return out, nil
	}
	text, err := summarize(ctx, join(past[:from]))
	if err != nil {
		return nil, err
	}
	// The summary gets the time of the message after it, so the same history has the same
	// summary.
	m := TextMessage(System, text, FromModel, progress[0].messages[0].Metadata.NormalizedAt)
	if m, ok := cut(m, "Summary of the conversation so far:\n", left.tokens, count); ok {
		out = append([]Message{m}, out...)
	}
	return out, nil
}

// Reach returns how many of the newest messages Fit could use, so earlier messages need not be
// read. For Summarize that is ten windows: of a longer conversation it forgets the rest.
func (mem Memory) Reach() int {
	if mem.Strategy == Summarize {
		return 10 * mem.room().messages
	}
	return mem.room().messages
}

func (mem Memory) check(canSummarize bool) error {
	switch {
	case mem.Window < 0 || mem.Tokens < 0:
		return tga.Errorf(tga.ValidationError, "memory of %d messages, %d tokens: want none negative", mem.Window, mem.Tokens)
	case mem.Strategy == Summarize && !canSummarize:
		return tga.Errorf(tga.ValidationError, "memory is to be summarized, and there is nothing that could")
	case mem.Strategy != "" && mem.Strategy != Truncate && mem.Strategy != Sliding && mem.Strategy != Summarize:
		return tga.Errorf(tga.ValidationError, "memory strategy %.80q: want truncate, summarize or sliding", string(mem.Strategy))
	}
	return nil
}

// room is what is left of the window and of the tokens. It is negative if the messages that must
// be included need more.
type room struct{ messages, tokens int }

func (mem Memory) room() room {
	r := room{mem.Window, mem.Tokens}
	r.messages = cmp.Or(r.messages, DefaultWindow)
	r.tokens = cmp.Or(r.tokens, DefaultTokens)
	return r
}

// take subtracts the room of a unit, and reports whether there was enough.
func (r *room) take(u unit) bool {
	r.messages -= len(u.messages)
	r.tokens -= u.tokens
	return r.messages >= 0 && r.tokens >= 0
}

// slide returns the start of the longest tail of units that fits, and the room that is left then.
func slide(units []unit, r room) (from int, left room) {
	from, left = len(units), r
	for from > 0 {
		next := left
		if !next.take(units[from-1]) {
			break
		}
		from, left = from-1, next
	}
	return from, left
}

// unit is a message, or a message that asks for tools together with the answers to it.
type unit struct {
	messages []Message
	tokens   int
}

func join(units []unit) (all []Message) {
	for _, u := range units {
		all = append(all, u.messages...)
	}
	return all
}

// unitsOf splits a conversation into units. It drops calls without an answer and answers without
// a call.
func unitsOf(history []Message) (units []unit) {
	for i := 0; i < len(history); {
		m := history[i]
		i++
		if m.Role == Tool {
			continue // an answer with a call stands behind the message that asks
		}
		if len(m.ToolCalls) == 0 {
			units = append(units, unit{messages: []Message{m}})
			continue
		}
		answers := map[string]Message{}
		for ; i < len(history) && history[i].Role == Tool; i++ {
			if _, twice := answers[history[i].ToolCallID]; !twice {
				answers[history[i].ToolCallID] = history[i]
			}
		}
		asked, u := m.ToolCalls, unit{messages: []Message{m}}
		m.ToolCalls = nil
		for _, c := range asked {
			if a, ok := answers[c.ID]; ok {
				m.ToolCalls = append(m.ToolCalls, c)
				u.messages = append(u.messages, a)
				delete(answers, c.ID)
			}
		}
		if u.messages[0] = m; len(m.ToolCalls) > 0 || len(m.Content) > 0 {
			units = append(units, u)
		}
	}
	return units
}

// cut returns m as one text of at most tokens, with head in front. ok is false if nothing of the
// text is left.
func cut(m Message, head string, tokens int, count func(Message) int) (Message, bool) {
	const mark = " […]"
	text, tail := strings.TrimSpace(m.Plain()), ""
	for text != "" {
		m.Content = []Part{{Type: Text, Text: head + text + tail}}
		if count(m) <= tokens {
			return m, true
		}
		at := len(text) * 7 / 8
		for at > 0 && !utf8.RuneStart(text[at]) {
			at--
		}
		text, tail = strings.TrimRight(text[:at], " \t\r\n"), mark
	}
	return Message{}, false
}
