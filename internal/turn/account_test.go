package turn_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tgad/tgad/internal/turn"
	"github.com/tgad/tgad/schemas/tga"
)

// TestAccountTellsTheTurn: the account has every record, in order, with the messages, the call
// and the state change.
func TestAccountTellsTheTurn(t *testing.T) {
	w := newWorld(t)
	res := w.run("call count {}")
	a, err := turn.Tell(t.Context(), w.db, res.InvocationID)
	if err != nil {
		t.Fatal(err)
	}
	records, err := turn.Records(t.Context(), w.db, res.InvocationID)
	if err != nil || len(records) != len(a.Steps) {
		t.Fatalf("%d records, %d told, %v", len(records), len(a.Steps), err)
	}
	var said []string
	calls, changes := 0, 0
	for i, s := range a.Steps {
		if s.Digest != records[i].Digest {
			t.Errorf("step %d is another record", i)
		}
		for _, m := range s.Said {
			said = append(said, string(m.Role)+" "+m.Plain())
		}
		for _, e := range s.Executions {
			if calls++; e.Name != "count" || e.TraceID.IsZero() {
				t.Errorf("the call is %+v", e)
			}
		}
		if s.Transaction != nil {
			changes += len(s.Transaction.Changes)
		}
	}
	if got := strings.Join(said, "; "); got != "user call count {}; assistant ; tool {\"n\":1}" || calls != 1 || changes != 2 {
		t.Errorf("said %q, %d calls, %d changes", got, calls, changes)
	}
	if !a.Ended || a.Failed || a.Next != res.InteractionID || !a.Previous.IsZero() || a.Usage.Total != 15 {
		t.Errorf("%+v", a.Listed)
	}
	if last, err := turn.Tell(t.Context(), w.db, res.InteractionID); err != nil || last.Previous != res.InvocationID || !last.Next.IsZero() {
		t.Errorf("the last turn: %v", err)
	}
	if _, err := turn.Tell(t.Context(), w.db, tga.ID{1}); tga.CodeOf(err) != tga.NotFound {
		t.Errorf("a turn that there is not: %v", err)
	}
}

// TestListHasEveryTurn: the list also has the turns that have ended, and nothing else that a
// store keeps in its streams. A turn whose journal does not verify is listed with the reason; the
// others are listed completely.
func TestListHasEveryTurn(t *testing.T) {
	w := newWorld(t)
	want := map[tga.ID]bool{}
	for _, text := range []string{"call count {}", "done x"} {
		res := w.run(text)
		want[res.InvocationID], want[res.InteractionID] = true, true
	}
	all, err := turn.List(context.Background(), w.db)
	if err != nil || len(all) != len(want) {
		t.Fatalf("%d turns, want %d, %v", len(all), len(want), err)
	}
	for _, l := range all {
		if !want[l.InteractionID] || l.Err != nil || !l.Ended || l.Failed || l.Agent != "helper" || l.SessionID != "s" {
			t.Errorf("%+v", l)
		}
	}
	for name, damage := range map[string]func([]byte) []byte{
		"changed": func(b []byte) []byte { b[len(b)-3]++; return b }, "none": nil,
	} {
		broken, err := turn.List(context.Background(), &damaged{Store: w.db, number: 3, damage: damage})
		if err != nil || len(broken) != len(want) {
			t.Fatalf("%s: %d turns, %v", name, len(broken), err)
		}
		for _, l := range broken {
			if !want[l.InteractionID] || l.Err == nil {
				t.Errorf("%s: %+v", name, l)
			}
		}
	}
}

// TestOneDamagedJournalHidesNoOtherTurn: the open turns are listed, the damaged one with the reason,
// and another one is found by its call.
func TestOneDamagedJournalHidesNoOtherTurn(t *testing.T) {
	w := newWorld(t, func(w *world) { w.supervisor = asks("echo") })
	one, two := w.run("call echo {}"), w.run("call echo {}")
	store := &damaged{Store: w.db, id: one.InteractionID, number: 3, damage: func(b []byte) []byte { b[len(b)-3]++; return b }}
	open, err := turn.ListOpen(t.Context(), store)
	if err != nil || len(open) != 2 || open[0].InteractionID != one.InteractionID || open[0].Waiting != tga.StateChecksumMismatch || open[1].Waiting != tga.EscalationRequired {
		t.Errorf("%+v, %v", open, err)
	}
	if id, err := turn.Of(t.Context(), store, two.Waiting.TraceID); err != nil || id != two.InteractionID {
		t.Errorf("%v, %v", id, err)
	}
	if _, err := turn.ListOpen(t.Context(), &failing{w.db, 1, t}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("%v", err)
	}
}

// TestRollbackGoesToASavepoint: only to one that was made, and not to one that an earlier rollback
// has undone.
func TestRollbackGoesToASavepoint(t *testing.T) {
	w := newWorld(t)
	w.tool("try", func(ctx context.Context, _ string) (string, error) {
		v, _ := turn.StateFrom(ctx)
		set := func(key string) { must(0, v.Set(key, json.RawMessage("1"), 0)) }
		back := func(to string, code tga.Code) {
			if err := v.Rollback(to); tga.CodeOf(err) != code {
				t.Errorf("back to %q: %v", to, err)
			}
		}
		set("a")
		back("0", tga.NotFound)
		back("1", tga.NotFound)
		one := must(v.Checkpoint())
		set("b")
		two := must(v.Checkpoint())
		set("c")
		back(one, "")
		back(two, tga.NotFound)
		set("d")
		back(one, "")
		set("e")
		return "{}", nil
	})
	if res := w.run("call try {}"); res.Status != turn.Completed {
		t.Fatalf("%+v", res)
	}
	if got := w.read("a", "b", "c", "d", "e"); len(got) != 2 || got["a"] == nil || got["e"] == nil {
		t.Errorf("%s", got)
	}
}
