package state_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// TestOperations: the result of each operation in the transaction and after its commit, with the
// changes that it records.
func TestOperations(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("a", `{"n": 1, "b": "<"}`).set("b", "[1]").set("d", "1").set("null", "null").commit()
	a := w.begin(session, "")
	a.wants("a", `{"b":"<","n":1}`)
	a.wants("null", "null")
	if a.exists("c") || !a.exists("null") {
		t.Error("c exists, or null does not")
	}
	a.set("a", "2").add("b", "2").add("b", `"x"`).add("c", "{}").del("d").del("e").set("f", "[]").add("f", "1")
	got, err := a.GetMany([]string{"a", "b", "c", "d", "e", "f"})
	must(t, err)
	want := map[string]json.RawMessage{"a": raw("2"), "b": raw(`[1,2,"x"]`), "c": raw("[{}]"), "f": raw("[1]")}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	keys, err := a.Keys()
	if err != nil || !slices.Equal(keys, []string{"a", "b", "c", "f", "null"}) {
		t.Errorf("keys %q, %v", keys, err)
	}
	changes := []state.Change{
		{"a", raw(`{"b":"<","n":1}`), raw("2"), state.Set},
		{"b", raw("[1]"), raw(`[1,2,"x"]`), state.Append},
		{"c", nil, raw("[{}]"), state.Append},
		{"d", raw("1"), nil, state.Delete},
		{"e", nil, nil, state.Delete},
		{"f", nil, raw("[1]"), state.Set},
	}
	wantRecord(t, a.Tx, state.Transaction{ID: a.ID(), StartedAt: 1_000_000, Changes: changes, Status: state.Pending})
	a.commit()
	wantRecord(t, a.Tx, state.Transaction{ID: a.ID(), StartedAt: 1_000_000, Changes: changes, Status: state.Committed})
	w.reopen()
	b := w.begin(session, "")
	for key, v := range want {
		b.wants(key, string(v))
	}
	b.wants("d", "")
	b.Discard()
	wantRecord(t, b.Tx, state.Transaction{ID: b.ID(), StartedAt: 1_000_000, Changes: []state.Change{}, Status: state.RolledBack})
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func wantRecord(t *testing.T, tx *state.Tx, want state.Transaction) {
	t.Helper()
	got, err := tx.Transaction()
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestChangeIsInOSSAForm: the names of OSSA's StateChange and StateTransaction.
func TestChangeIsInOSSAForm(t *testing.T) {
	w := newWorld(t)
	a := w.begin(session, "")
	defer a.Discard()
	a.set("k", "1")
	r, err := a.Transaction()
	must(t, err)
	got, err := json.Marshal(r)
	must(t, err)
	want := fmt.Sprintf(`{"id":%q,"started_at":%q,"changes":[{"key":"k","previous_value":null,"new_value":1,"operation":"set"}],"status":"pending"}`,
		a.ID(), tga.Millis(1_000_000))
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestScopesAreApart: sessions, agents and turns do not see each other, however their ids are
// spelled. A turn's own state ends with the turn.
func TestScopesAreApart(t *testing.T) {
	w := newWorld(t)
	scopes := []state.Scope{session, {Mode: state.Session, ID: "sk"}, {Mode: state.Persistent, ID: "s"}}
	for i, s := range scopes {
		w.begin(s, "").set("k", fmt.Sprint(i)).commit()
	}
	w.reopen()
	for i, s := range scopes {
		a := w.begin(s, "")
		a.wants("k", fmt.Sprint(i))
		a.Discard()
	}
	before := w.items()
	none := state.Scope{Mode: state.None}
	a := w.begin(none, "")
	sp, err := a.set("k", "1").Checkpoint()
	must(t, err)
	a.set("k", "2").add("l", "1")
	must(t, a.Rollback(sp))
	a.wants("k", "1")
	a.wants("l", "")
	b := w.begin(none, state.ReadUncommitted)
	b.wants("k", "")
	b.Discard()
	a.commit()
	wantRecord(t, a.Tx, state.Transaction{ID: a.ID(), StartedAt: 1_000_000, Changes: []state.Change{{"k", nil, raw("1"), state.Set}}, Status: state.Committed})
	c := w.begin(none, "")
	c.wants("k", "")
	c.Discard()
	if got := w.items(); got != before {
		t.Errorf("state of a turn alone: %d items in the store, %d before", got, before)
	}
}

// TestExpiry: a value is absent from its expiry on, also after a reopen. The next commit that
// touches its key drops it.
func TestExpiry(t *testing.T) {
	w := newWorld(t)
	a := w.begin(session, "")
	a.setFor("k", "1", 1000*time.Millisecond).setFor("soon", "1", 1).set("stays", "1").setFor("list", "[1]", time.Second)
	w.advance(time.Millisecond)
	a.wants("soon", "")
	a.commit()
	w.begin(session, "").add("list", "2").commit()
	w.advance(998 * time.Millisecond)
	w.stored("k", "1")
	w.stored("list", "[1,2]")
	w.advance(time.Millisecond)
	w.reopen()
	for _, level := range allLevels {
		b := w.begin(session, level)
		for _, key := range []string{"k", "list", "soon"} {
			if b.wants(key, ""); b.exists(key) {
				t.Errorf("%s exists", key)
			}
		}
		b.wants("stays", "1")
		if keys, err := b.Keys(); err != nil || !slices.Equal(keys, []string{"stays"}) {
			t.Errorf("keys %q, %v", keys, err)
		}
		b.Discard()
	}
	b := w.begin(session, "").add("list", "3").add("k", "2")
	changes, err := b.Changes()
	must(t, err)
	if d := cmp.Diff([]state.Change{{"k", nil, raw("[2]"), state.Append}, {"list", nil, raw("[3]"), state.Append}}, changes); d != "" {
		t.Error(d)
	}
	b.commit()
	w.advance(time.Hour)
	w.stored("list", "[3]")
}

// TestExpiryAndRepeatedReads: a value that expires between two reads of a transaction is still
// there at levels with repeatable reads. A serializable commit that builds on it is refused.
func TestExpiryAndRepeatedReads(t *testing.T) {
	w := newWorld(t)
	for _, level := range allLevels {
		w.begin(session, "").setFor("k", "1", time.Second).commit()
		a, other, same := w.begin(session, level), w.begin(session, level), w.begin(session, level)
		a.wants("k", "1")
		other.wants("k", "1")
		same.wants("k", "1")
		w.advance(time.Second)
		want := ""
		if level == state.RepeatableRead || level == state.Serializable {
			want = "1"
		}
		a.wants("k", want)
		a.commit()
		if err := other.set("l", "1").try(); level == state.Serializable {
			wantConflict(t, err, "k")
		} else {
			must(t, err)
		}
		if err := same.set("k", "2").try(); want == "1" {
			wantConflict(t, err, "k")
		} else {
			must(t, err)
		}
		other.Discard()
		same.Discard()
	}
}

// TestSavepoints: a rollback undoes what was written since a savepoint and keeps the rest. The
// savepoint stays, later ones go.
func TestSavepoints(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("k", "[0]").commit()
	a := w.begin(session, "").set("x", "0").add("k", "1")
	first, err := a.Checkpoint()
	must(t, err)
	a.set("x", "1").del("k").set("new", "1")
	second, err := a.Checkpoint()
	must(t, err)
	a.set("x", "2").add("k", "2")
	must(t, a.Rollback(second))
	a.wants("x", "1")
	a.wants("k", "")
	a.set("x", "3")
	must(t, a.Rollback(second))
	a.wants("x", "1")
	must(t, a.Rollback(first))
	a.wants("x", "0")
	a.wants("k", "[0,1]")
	a.wants("new", "")
	wantCode(t, a.Rollback(second), tga.NotFound)
	wantCode(t, a.Rollback("elsewhere"), tga.NotFound)
	must(t, a.Rollback(""))
	a.wants("x", "")
	a.wants("k", "[0]")
	wantCode(t, a.Rollback(first), tga.NotFound)
	a.add("k", "9").commit()
	w.stored("k", "[0,9]")
	w.stored("x", "")
}

// TestReadUncommittedHasNoRollback but for the one that follows an error.
func TestReadUncommittedHasNoRollback(t *testing.T) {
	w := newWorld(t)
	a := w.begin(session, state.ReadUncommitted).set("k", "1")
	_, err := a.Checkpoint()
	wantCode(t, err, tga.ValidationError)
	wantCode(t, a.Rollback(""), tga.ValidationError)
	a.wants("k", "1")
	a.Discard()
	w.stored("k", "")
}

// TestEndedTransactionIsRefused: nothing is read or written through one.
func TestEndedTransactionIsRefused(t *testing.T) {
	w := newWorld(t)
	for _, end := range []func(*tx){(*tx).commit, func(a *tx) { a.Discard(); a.Discard() }} {
		a := w.begin(session, "").set("k", "1")
		end(a)
		_, err := a.Get("k")
		wantCode(t, err, tga.StateInvalidTransition)
		_, err = a.Checkpoint()
		wantCode(t, err, tga.StateInvalidTransition)
		_, err = a.Keys()
		wantCode(t, err, tga.StateInvalidTransition)
		for _, err := range []error{a.Set("k", raw("1"), 0), a.Delete("k"), a.Append("k", raw("1")), a.Rollback(""), a.try(), a.Apply(nil)} {
			wantCode(t, err, tga.StateInvalidTransition)
		}
	}
	w.stored("k", "1")
}

// TestBadInputIsRefused, and leaves the transaction as it was.
func TestBadInputIsRefused(t *testing.T) {
	w := newWorld(t)
	for name, err := range map[string]error{
		"mode":       second(w.space.Begin(bg, state.Scope{Mode: "forever", ID: "s"}, "")),
		"level":      second(w.space.Begin(bg, session, "snapshot")),
		"no id":      second(w.space.Begin(bg, state.Scope{Mode: state.Persistent}, "")),
		"long id":    second(w.space.Begin(bg, state.Scope{Mode: state.Session, ID: strings.Repeat("i", 256)}, "")),
		"id not utf": second(w.space.Begin(bg, state.Scope{ID: "\xff"}, "")),
	} {
		if tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantCode(t, state.Isolation("x").Check(), tga.ValidationError)
	wantCode(t, state.Mode("x").Check(), tga.ValidationError)
	a := w.begin(session, "").set("text", `"t"`)
	for name, err := range map[string]error{
		"json":            a.Set("k", raw("{"), 0),
		"no json":         a.Set("k", nil, 0),
		"unsafe number":   a.Set("k", raw("9007199254740993"), 0),
		"ttl":             a.Set("k", raw("1"), -1),
		"key":             a.Set("", raw("1"), 0),
		"key not utf":     a.Set("\xff", raw("1"), 0),
		"deleted key":     a.Delete(""),
		"appended json":   a.Append("k", raw("[")),
		"append to text":  a.Append("text", raw("1")),
		"append to empty": a.Append("", raw("1")),
		"get":             second(a.Get("")),
		"get many":        second(a.GetMany([]string{"k", ""})),
		"exists":          second(a.Exists("\xff")),
	} {
		if tga.CodeOf(err) != tga.ValidationError {
			t.Errorf("%s: %v", name, err)
		}
	}
	changes, err := a.Changes()
	must(t, err)
	if d := cmp.Diff([]state.Change{{"text", nil, raw(`"t"`), state.Set}}, changes); d != "" {
		t.Error(d)
	}
	a.commit()
	b := w.begin(session, "")
	wantCode(t, b.Append("text", raw("1")), tga.ValidationError)
	b.Discard()
}

func second[T any](_ T, err error) error { return err }
