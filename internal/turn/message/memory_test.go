package message

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tgad/tgad/schemas/tga"
)

// talk makes a conversation: u is a user's message, a an assistant's, s the system's;
// [n an assistant that asks for n tools, t an answer to the next of them. A number after
// it is its size in bytes of text.
func talk(spec string) (all []Message) {
	asked, answered := 0, 0
	for i, word := range strings.Fields(spec) {
		size := 4
		kind, n, sized := strings.Cut(word, ":")
		if sized {
			fmt.Sscan(n, &size)
		}
		name := fmt.Sprintf("%d%s", i, kind)
		m := Message{Content: []Part{text((name + strings.Repeat(".", size))[:max(size, len(name))])}}
		switch kind[0] {
		case 'u':
			m.Role = User
		case 'a':
			m.Role = Assistant
		case 's':
			m.Role = System
		case '[':
			m.Role = Assistant
			for range kind[1] - '0' {
				asked++
				m.ToolCalls = append(m.ToolCalls, ToolCall{ID: fmt.Sprint(asked), Name: "f", Arguments: "{}"})
			}
		case 't':
			answered++
			m.Role, m.ToolCallID = Tool, fmt.Sprint(answered)
		}
		all = append(all, m)
	}
	return all
}

// names are the first words of messages' texts.
func names(all []Message) string {
	var out []string
	for _, m := range all {
		out = append(out, strings.TrimRight(m.Plain(), "."))
	}
	return strings.Join(out, " ")
}

// byText counts a token for each byte of text.
func byText(m Message) int { return len(m.Plain()) }

func TestFit(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name, talk string
		m          Memory
		want       string
	}{
		{"all of it", "u a u", Memory{}, "0u 1a 2u"},
		{"the window", "u a u a u", Memory{Window: 3}, "2u 3a 4u"},
		{"the default window", strings.Repeat("u a ", 10) + "u", Memory{}, names(talk(strings.Repeat("u a ", 10) + "u")[1:])},
		{"the tokens", "u:5 a:5 u:5 a:5 u:5", Memory{Tokens: 15}, "2u 3a 4u"},
		{"one token less", "u:5 a:5 u:5 a:5 u:5", Memory{Tokens: 14}, "3a 4u"},
		{"the newest alone is over", "u a u:50", Memory{Tokens: 10, Window: 1}, "2u"},
		{"what is in progress stays", "u a u:9 [1:9 t:9 [1:9 t:9", Memory{Tokens: 5, Window: 2}, "2u 3[1 4t 5[1 6t"},
		{"tools stay together, in", "u [2 t t a u", Memory{Window: 5}, "1[2 2t 3t 4a 5u"},
		{"tools stay together, out", "u [2 t t a u", Memory{Window: 4}, "4a 5u"},
		{"an answer to nothing", "t u", Memory{}, "1u"},
		{"a call without an answer", "u [2 t u", Memory{}, "0u 1[2 2t 3u"},
		{"a call without any answer", "u [1 u", Memory{}, "0u 1[1 2u"},
		{"nothing", "", Memory{}, ""},
		{"no user", "a a:9 a", Memory{Tokens: 5}, "2a"},
		{"truncate cuts the first that does not fit", "u:90 a:90 u:5", Memory{Tokens: 80, Strategy: Truncate}, "1a"},
		{"truncate cuts no tools", "u:9 [1:90 t:90 u:5", Memory{Tokens: 80, Strategy: Truncate}, "3u"},
		{"truncate has no room", "u:90 u:5", Memory{Tokens: 5, Strategy: Truncate}, "1u"},
		{"truncate has no place", "u:9 a:9 u:5", Memory{Window: 2, Strategy: Truncate}, "1a 2u"},
	} {
		history := talk(c.talk)
		before := fmt.Sprint(history)
		got, err := c.m.Fit(ctx, history, byText, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.name == "truncate cuts the first that does not fit" {
			if len(got) != 2 || !strings.HasPrefix(got[0].Plain(), "1a...") || !strings.HasSuffix(got[0].Plain(), "[…]") || len(got[0].Plain()) > 75 || len(got[0].Plain()) < 60 {
				t.Errorf("%s: %v", c.name, got)
			}
			continue
		}
		if names(got) != c.want {
			t.Errorf("%s: got %s, want %s", c.name, names(got), c.want)
		}
		if fmt.Sprint(history) != before {
			t.Errorf("%s: the history was changed", c.name)
		}
	}
	got, err := Memory{}.Fit(ctx, talk("u [2 t u"), nil, nil)
	if err != nil || len(got[1].ToolCalls) != 1 || got[1].ToolCalls[0].ID != "1" {
		t.Errorf("the call without an answer is still there: %+v, %v", got, err)
	}
}

func TestSummary(t *testing.T) {
	ctx := context.Background()
	m := Memory{Window: 4, Tokens: 200, Strategy: Summarize}
	var asked []string
	say := func(s string, err error) func(context.Context, []Message) (string, error) {
		return func(_ context.Context, left []Message) (string, error) {
			asked = append(asked, names(left))
			return s, err
		}
	}
	got, err := m.Fit(ctx, talk("u a u a u a u"), byText, say("they met", nil))
	if err != nil || len(got) != 4 || got[0].Role != System || got[0].Plain() != "Summary of the conversation so far:\nthey met" || names(got[1:]) != "4u 5a 6u" {
		t.Errorf("got %v, %v", got, err)
	}
	if want := []string{"0u 1a 2u 3a"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
	// A summary that is too long is cut to the room that there is, and none is requested if
	// everything fits.
	got, err = m.Fit(ctx, talk("u:150 a:150 u:20"), byText, say(strings.Repeat("é", 400), nil))
	if err != nil || len(got) != 2 || byText(got[0])+byText(got[1]) > 200 || byText(got[0]) < 120 || !strings.HasSuffix(got[0].Plain(), "é […]") {
		t.Errorf("got %v, %v", got, err)
	}
	asked = nil
	if got, err := m.Fit(ctx, talk("u a u a"), byText, say("x", nil)); err != nil || len(got) != 4 || asked != nil {
		t.Errorf("got %v, %v; asked for %q", got, err, asked)
	}
	// If there is no room for a summary, none is requested.
	if got, err := m.Fit(ctx, talk("u u:300"), byText, say("x", nil)); err != nil || names(got) != "1u" || asked != nil {
		t.Errorf("got %v, %v; asked for %q", got, err, asked)
	}
	if got, err := m.Fit(ctx, talk("u a u a u a u"), byText, say(" \n", nil)); err != nil || names(got) != "4u 5a 6u" {
		t.Errorf("an empty summary: %v, %v", got, err)
	}
	broken := errors.New("broken")
	if _, err := m.Fit(ctx, talk("u a u a u"), byText, say("", broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	for _, m := range []Memory{{Window: -1}, {Tokens: -1}, {Strategy: "forget"}, {Strategy: Summarize}} {
		if _, err := m.Fit(ctx, nil, nil, nil); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if (Memory{}).Reach() != 20 || (Memory{Window: 3, Strategy: Truncate}).Reach() != 3 || (Memory{Window: 3, Strategy: Summarize}).Reach() != 30 {
		t.Error("Reach is wrong")
	}
}

func TestEstimateTokens(t *testing.T) {
	for _, c := range []struct {
		m    Message
		want int
	}{
		{Message{}, 4}, {Message{Content: []Part{text("abcd")}}, 5}, {Message{Content: []Part{text("abcde")}}, 6},
		{Message{Content: []Part{{Type: Image, Data: make([]byte, 1<<20)}}}, 1604},
		{Message{Content: []Part{{Type: File, Name: "ab", Data: []byte("cd")}}}, 5},
		{Message{ToolCalls: []ToolCall{{"id", "name", "{}"}}, ToolCallID: "1234"}, 7},
	} {
		if got := EstimateTokens(c.m); got != c.want {
			t.Errorf("%+v: %d, want %d", c.m, got, c.want)
		}
	}
}

// TestFitKeepsItsPromises checks conversations of all sorts, also broken ones. The result exceeds
// the window or the tokens only if the invocation in progress alone does. No answer is without
// its call, and no call without its answer. The newest message of the user is included, the order
// is kept, and nothing is added but one summary or cut text.
func TestFitKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var spec []string
		for range rapid.IntRange(0, 30).Draw(t, "messages") {
			kind := rapid.SampledFrom([]string{"u", "a", "s", "[1", "[2", "t", "t", "t"}).Draw(t, "kind")
			spec = append(spec, fmt.Sprintf("%s:%d", kind, rapid.IntRange(1, 60).Draw(t, "size")))
		}
		history := talk(strings.Join(spec, " "))
		m := Memory{
			Window: rapid.IntRange(0, 12).Draw(t, "window"), Tokens: rapid.IntRange(0, 300).Draw(t, "tokens"),
			Strategy: rapid.SampledFrom([]Strategy{"", Sliding, Truncate, Summarize}).Draw(t, "strategy"),
		}
		got, err := m.Fit(context.Background(), history, byText, func(_ context.Context, left []Message) (string, error) {
			if len(left) == 0 {
				t.Fatal("a summary of nothing")
			}
			return strings.Repeat("s", rapid.IntRange(0, 200).Draw(t, "summary")), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		at, made, lastUser := -1, 0, -1
		var open []string
		for _, g := range got {
			if g.Role == Tool {
				i := slices.Index(open, g.ToolCallID)
				if i < 0 {
					t.Fatalf("an answer to no call in %q", names(got))
				}
				open = slices.Delete(open, i, i+1)
			} else if len(open) > 0 {
				t.Fatalf("a call without an answer in %q", names(got))
			}
			for _, c := range g.ToolCalls {
				open = append(open, c.ID)
			}
			i := slices.IndexFunc(history, func(h Message) bool {
				return h.Plain() == g.Plain() && h.Role == g.Role && h.ToolCallID == g.ToolCallID
			})
			if i < 0 {
				made++
				continue
			}
			if i <= at {
				t.Fatalf("out of order: %q", names(got))
			}
			if at = i; g.Role == User {
				lastUser = i
			}
		}
		if len(open) > 0 {
			t.Fatalf("a call without an answer at the end of %q", names(got))
		}
		if most := map[Strategy]int{Summarize: 1, Truncate: 1}[m.Strategy]; made > most {
			t.Fatalf("%d messages that nobody sent in %q", made, names(got))
		}
		newest := -1
		for i, h := range history {
			if h.Role == User {
				newest = i
			}
		}
		if lastUser != newest {
			t.Fatalf("the newest message of the user's is %d: got %d of %q", newest, lastUser, names(got))
		}
		tokens, window, progress := 0, 0, 0
		for _, g := range got {
			tokens += byText(g)
			window++
			if i := slices.IndexFunc(history, func(h Message) bool { return h.Plain() == g.Plain() }); newest >= 0 && i >= newest {
				progress++
			}
		}
		r := m.room()
		over := tokens > r.tokens || window > r.messages
		if newest >= 0 && over && progress < len(got) {
			t.Fatalf("%d tokens of %d, %d messages of %d, and %d of them before what is in progress: %q", tokens, r.tokens, window, r.messages, len(got)-progress, names(got))
		}
		if newest < 0 && over && len(got) > 3 {
			t.Fatalf("more than the newest of a conversation without a user: %q", names(got))
		}
	})
}
