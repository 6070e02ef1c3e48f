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

// Strategy says what becomes of what does not fit. OSSA 0.2.9 names the three and says no
// more of them.
type Strategy string

// The strategies. All take messages from the newest back and stop at the first that does
// not fit. Sliding leaves that one out, Truncate cuts its text to what still fits, and
// Summarize puts a summary in place of it and of what stands before.
const (
	Truncate  Strategy = "truncate"
	Summarize Strategy = "summarize"
	Sliding   Strategy = "sliding"
)

// imageTokens is what a provider counts at most for one image of ordinary size.
const imageTokens = 1600

// EstimateTokens guesses the tokens of a message: a token for each four bytes of it, rounded up,
// 1,600 for an image, and four for the message itself. Providers count otherwise; for
// English text this is somewhat high, for most other languages and for code low.
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

// Fit returns what of a conversation a model is given, in its order. history is not
// changed; count is [EstimateTokens] where nil.
//
// The newest message of a user and all that follows it are always in, whatever their size:
// they are the invocation in progress, and a model that is not shown what its tool did
// asks for it again. What stands before fills what they leave of the window and of the
// tokens.
//
// An assistant's message and the answers of the tools it asked for are taken or left
// together: no provider accepts one without the other. A call that no message answers is
// left out of the message that asks, and an answer to no call is left out, for the same
// reason.
//
// summarize is asked, once, where Strategy is Summarize and something is left out; its
// text is cut where it is too long. Its error is returned. VALIDATION_ERROR says that the
// Memory is wrong.
func (mem Memory) Fit(ctx context.Context, history []Message, count func(Message) int,
	summarize func(context.Context, []Message) (string, error)) ([]Message, error) {
	if count == nil {
		count = EstimateTokens
	}
	if err := mem.check(summarize != nil); err != nil {
		return nil, err
	}
	units := unitsOf(history)
	now := max(len(units)-1, 0) // the first unit of the invocation in progress
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
	// The summary needs room too: a quarter of what there is, and a place in the window.
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
	// It is of the time of what comes after it: the same history has the same summary.
	m := TextMessage(System, text, FromModel, progress[0].messages[0].Metadata.NormalizedAt)
	if m, ok := cut(m, "Summary of the conversation so far:\n", left.tokens, count); ok {
		out = append([]Message{m}, out...)
	}
	return out, nil
}

// Reach returns how many of the newest messages Fit could use: what stands before them
// need not be read. Of a longer conversation, Summarize forgets all but ten windows.
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

// room is what is left of the window and of the tokens; negative where what had to be
// taken is more.
type room struct{ messages, tokens int }

func (mem Memory) room() room {
	r := room{mem.Window, mem.Tokens}
	r.messages = cmp.Or(r.messages, DefaultWindow)
	r.tokens = cmp.Or(r.tokens, DefaultTokens)
	return r
}

// take takes a unit's room, and reports whether there was as much.
func (r *room) take(u unit) bool {
	r.messages -= len(u.messages)
	r.tokens -= u.tokens
	return r.messages >= 0 && r.tokens >= 0
}

// slide returns the first unit of the longest end of units that fits, and what room is
// left then.
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

// unit is a message, or one that asks for tools with the answers to it.
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

// unitsOf splits a conversation, without calls that are not answered and without answers
// to no call.
func unitsOf(history []Message) (units []unit) {
	for i := 0; i < len(history); {
		m := history[i]
		i++
		if m.Role == Tool {
			continue // it would stand with the message that asks
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

// cut returns m as one text of at most tokens, head first. ok is false where nothing of the
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
