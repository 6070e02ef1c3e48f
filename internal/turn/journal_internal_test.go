package turn

import (
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn/message"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
)

// TestOrderOfRecords checks which records may follow which in a journal.
func TestOrderOfRecords(t *testing.T) {
	type step struct {
		phase Phase
		kind  Kind
	}
	done := func(ps ...Phase) (out []step) {
		for _, p := range ps {
			out = append(out, step{p, Done})
		}
		return out
	}
	whole := done(Init, Normalize, Resolve, Infer, Execute, Persist, Emit)
	for _, c := range []struct {
		name  string
		steps []step
		legal bool
	}{
		{"a whole turn", whole, true},
		{"asked, parked and decided on the way", append(append(done(Init, Normalize, Resolve), step{Infer, Asked}, step{Infer, Parked}, step{Infer, Decided}), done(Infer, Execute, Persist, Emit)...), true},
		{"parked and gone on", append(append(done(Init, Normalize), step{Resolve, Parked}, step{Resolve, Resumed}), done(Resolve, Infer)...), true},
		{"gone on without a wait", append(done(Init, Normalize), step{Resolve, Resumed}), false},
		{"gone on twice", append(done(Init, Normalize), step{Resolve, Parked}, step{Resolve, Resumed}, step{Resolve, Resumed}), false},
		{"gone on after a failure", append(done(Init, Normalize), step{Resolve, Parked}, step{Resolve, Failed}, step{Emit, Resumed}), false},
		{"parked before all else", []step{{Init, Parked}}, false},
		{"failed before all else", []step{{Init, Failed}}, false},
		{"failed, then emitted", append(append(done(Init, Normalize), step{Resolve, Failed}), done(Emit)...), true},
		{"no init", done(Normalize), false},
		{"init twice", done(Init, Init), false},
		{"resolve before normalize", done(Init, Resolve), false},
		{"infer before resolve", done(Init, Normalize, Infer), false},
		{"execute before infer", done(Init, Normalize, Resolve, Execute), false},
		{"persist before execute", done(Init, Normalize, Resolve, Infer, Persist), false},
		{"emit before persist", done(Init, Normalize, Resolve, Infer, Execute, Emit), false},
		{"a phase twice", append(done(Init, Normalize, Resolve), done(Resolve)...), false},
		{"a phase after the failure", append(append(done(Init, Normalize), step{Resolve, Failed}), done(Resolve)...), false},
		{"anything after the end", append(append([]step{}, whole...), step{Emit, Parked}), false},
		{"of a kind that nobody knows", append(done(Init), step{Normalize, "guessed"}), false},
		{"decided without a question", append(done(Init, Normalize), step{Resolve, Decided}), false},
	} {
		tt := &turn{j: &journal{id: keyspace.TurnStream("test")}, decision: map[string]decidedBody{}}
		var err error
		for i, s := range c.steps {
			body := "{}"
			if s.phase == Init {
				body = `{"deadline":"2026-01-01T00:00:00.000Z"}`
			}
			if err = tt.apply(Record{Number: uint64(i + 1), TS: tga.Millis(i + 1), Phase: s.phase, Kind: s.kind, Body: []byte(body)}); err != nil {
				if i != len(c.steps)-1 {
					t.Errorf("%s: refused at record %d: %v", c.name, i+1, err)
				}
				break
			}
		}
		if c.legal && err != nil || !c.legal && tga.CodeOf(err) != tga.StateInvalidTransition {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestDerivedIDs: the same input gives the same id, another input gives another id, and all ids
// are valid.
func TestDerivedIDs(t *testing.T) {
	one, two := keyspace.TurnStream("one"), keyspace.TurnStream("two")
	seen := map[tga.ID]string{}
	for name, id := range map[string]tga.ID{
		"tool 0 1": derived(one, "tool", 0, 1), "tool 1 0": derived(one, "tool", 1, 0), "tool 0 2": derived(one, "tool", 0, 2),
		"other turn": derived(two, "tool", 0, 1), "infer 1": derived(one, "infer", 1), "infer 2": derived(one, "infer", 2),
		"tool": derived(one, "tool"), "tool 0": derived(one, "tool", 0), "fixed": keyspace.TurnStream("tool", "0"), "fixed joined": keyspace.TurnStream("tool0"),
	} {
		if was, twice := seen[id]; twice {
			t.Errorf("%s and %s have one id", was, name)
		}
		seen[id] = name
		if _, err := tga.ParseID(id.String()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if first, again := derived(one, "tool", 3, 1), derived(one, "tool", 3, 1); first != again {
		t.Error("asked twice, answered differently")
	}
}

// TestRecentIsBounded: the number and the bytes are bounded, and the oldest are dropped.
func TestRecentIsBounded(t *testing.T) {
	var r recent
	id := func(n int) tga.ID { return derived(tga.ID{}, "recent", n) }
	for n := range mostRecent + 1 {
		r.put(id(n), []message.Message{message.TextMessage(message.User, "x", message.FromUser, 0)})
	}
	if _, known := r.get(id(0)); known || len(r.turns) != mostRecent || len(r.order) != mostRecent {
		t.Errorf("%d turns are kept, the oldest too: %v", len(r.turns), known)
	}
	if m, known := r.get(id(mostRecent)); !known || m[0].Plain() != "x" {
		t.Errorf("the newest: %v", m)
	}
	large := message.TextMessage(message.User, strings.Repeat("x", mostRecentBytes/2), message.FromUser, 0)
	for n := range 3 {
		r.put(id(-1-n), []message.Message{large})
	}
	if r.bytes > mostRecentBytes || len(r.turns) != 1 {
		t.Errorf("%d turns of %d bytes are kept", len(r.turns), r.bytes)
	}
	large.Content[0].Text = strings.Repeat("x", mostRecentBytes+1)
	if r.put(id(-9), []message.Message{large}); len(r.turns) != 1 {
		t.Error("one that is too large is kept")
	}
}
