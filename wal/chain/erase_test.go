package chain_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestErasureAtItsLimits: each limit of an erasure, at it and one past it, and each of the things that it may name.
func TestErasureAtItsLimits(t *testing.T) {
	id := tga.ID{1}
	for name, c := range map[string]struct {
		change func(*chain.Erasure)
		want   tga.Code
	}{
		"traces":                    {func(e *chain.Erasure) { e.Traces = []tga.ID{id} }, ""},
		"turns":                     {func(e *chain.Erasure) { e.Turns = []tga.ID{id} }, ""},
		"a tool server":             {func(e *chain.Erasure) { e.Kept = []string{"payments"} }, ""},
		"the state of an agent":     {func(e *chain.Erasure) { e.Agents = []chain.AgentState{{Agent: "a"}} }, ""},
		"a working state":           {func(e *chain.Erasure) { e.States = []tga.ID{id} }, ""},
		"a subject":                 {func(e *chain.Erasure) { e.Subject = "s" }, ""},
		"nothing":                   {func(*chain.Erasure) {}, tga.ValidationError},
		"a subject and a trace":     {func(e *chain.Erasure) { e.Subject, e.Traces = "s", []tga.ID{id} }, tga.ValidationError},
		"a subject and a turn":      {func(e *chain.Erasure) { e.Subject, e.Turns = "s", []tga.ID{id} }, tga.ValidationError},
		"a subject and a state":     {func(e *chain.Erasure) { e.Subject, e.States = "s", []tga.ID{id} }, tga.ValidationError},
		"no agent":                  {func(e *chain.Erasure) { e.Agents = []chain.AgentState{{Session: "s"}} }, tga.ValidationError},
		"as many as can be":         {func(e *chain.Erasure) { e.Traces = make([]tga.ID, chain.MaxErased) }, ""},
		"one more":                  {func(e *chain.Erasure) { e.Traces = make([]tga.ID, chain.MaxErased+1) }, tga.LimitExceeded},
		"one more, of another kind": {func(e *chain.Erasure) { e.Traces, e.Turns = make([]tga.ID, chain.MaxErased), []tga.ID{id} }, tga.LimitExceeded},
		"one more, of a third":      {func(e *chain.Erasure) { e.States, e.Traces = make([]tga.ID, chain.MaxErased), []tga.ID{id} }, tga.LimitExceeded},
		"nobody":                    {func(e *chain.Erasure) { e.Subject, e.Who = "s", "" }, tga.ValidationError},
		"the longest name":          {func(e *chain.Erasure) { e.Subject, e.Who = "s", strings.Repeat("é", 255) }, ""},
		"a longer one":              {func(e *chain.Erasure) { e.Subject, e.Who = "s", strings.Repeat("é", 256) }, tga.ValidationError},
		"a name that is no UTF-8":   {func(e *chain.Erasure) { e.Subject, e.Who = "s", "\xff" }, tga.ValidationError},
		"no reason":                 {func(e *chain.Erasure) { e.Subject, e.Reason = "s", "" }, tga.ValidationError},
		"the longest reason":        {func(e *chain.Erasure) { e.Subject, e.Reason = "s", strings.Repeat("é", 500) }, ""},
		"a longer reason":           {func(e *chain.Erasure) { e.Subject, e.Reason = "s", strings.Repeat("é", 501) }, tga.ValidationError},
		"a reason that is no UTF-8": {func(e *chain.Erasure) { e.Subject, e.Reason = "s", "\xff" }, tga.ValidationError},
		"one of all, and within the most": {func(e *chain.Erasure) {
			e.Traces, e.Turns, e.Agents = []tga.ID{id}, []tga.ID{id}, []chain.AgentState{{Agent: "a"}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := chain.Erasure{Who: "w", Reason: "r"}
			c.change(&e)
			if err := e.Check(); tga.CodeOf(err) != c.want {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestUnreadTracesAreCountedAndAHundredNamed: the answer stays small even if a store has lost many keys.
func TestUnreadTracesAreCountedAndAHundredNamed(t *testing.T) {
	var d chain.Erased
	why := errors.New("no key")
	for n := range 102 {
		d.Leave(tga.ID{byte(n)}, why)
		if d.Left != n+1 || len(d.Unread) != min(n+1, 100) {
			t.Fatalf("after %d: %d left, %d named", n+1, d.Left, len(d.Unread))
		}
	}
	if last := d.Unread[99]; last.TraceID != (tga.ID{99}) || !errors.Is(last.Err, why) {
		t.Errorf("%+v", last)
	}
}

// TestErasureOfAStateIsReadAsWritten: another value in its place is no erasure, and a damaged one is an error.
func TestErasureOfAStateIsReadAsWritten(t *testing.T) {
	e := chain.StateErasure{Who: "w", Reason: "r"}
	value, err := e.Value()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := chain.ReadStateErasure(value); err != nil || got == nil || *got != e {
		t.Errorf("%+v, %v", got, err)
	}
	for _, other := range []string{"", "{}", `{"base":1}`} {
		if got, err := chain.ReadStateErasure([]byte(other)); err != nil || got != nil {
			t.Errorf("%q: %+v, %v", other, got, err)
		}
	}
	if got, err := chain.ReadStateErasure(value[:len(value)-1]); got != nil || tga.CodeOf(err) != tga.StateChecksumMismatch {
		t.Errorf("cut: %+v, %v", got, err)
	}
}
