package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/schemas/tga"
)

// restored returns a list of operations after it was stored and read back.
func restored(t *testing.T, ops []state.Op) (out []state.Op) {
	t.Helper()
	text, err := json.Marshal(ops)
	must(t, err)
	must(t, json.Unmarshal(text, &out))
	return out
}

// aTool does one of each operation on the state, with an advancing clock.
func aTool(w *world, a *tx) {
	a.setFor("ends", "[1]", time.Second).add("ends", "2")
	w.advance(time.Second)
	a.add("ends", "3").set("html", `"<&>"`).add("list", "2").wants("read", "1")
	a.exists("absent")
	if a.level() == state.ReadUncommitted {
		a.del("gone").setFor("later", "1", time.Minute)
		return
	}
	sp, err := a.set("x", "1").Checkpoint()
	must(w, err)
	a.set("x", "2").del("html").add("list", "9")
	must(w, a.Rollback(sp))
	a.del("gone").setFor("later", "1", time.Minute)
	_, err = a.Keys()
	must(w, err)
}

func (t *tx) level() state.Isolation { return state.Level(t.Tx) }

// TestOperationsRepeatAfterACrash: a later transaction of another process repeats what a tool did
// and makes the same changes. The tool's reads are checked at the commit as if that transaction
// had made them.
func TestOperationsRepeatAfterACrash(t *testing.T) {
	serial.Test(t)
	for _, level := range allLevels {
		for _, change := range []string{"", "read", "absent", "list", "new"} {
			t.Run(fmt.Sprintf("%s/%s", level, change), func(t *testing.T) {
				w := newWorld(t)
				w.begin(session, "").set("list", "[1]").set("gone", "1").set("read", "1").commit()
				a := w.begin(session, level).set("not the tool's", "1")
				mark := a.Mark()
				aTool(w, a)
				ops := restored(t, a.Since(mark))
				want, err := a.Changes()
				must(t, err)
				w.reopen()
				if change != "" {
					w.begin(session, "").set(change, "[7]").commit()
				}
				w.advance(10 * time.Second)

				b := w.begin(session, level)
				must(t, b.Apply(ops))
				b.set("not the tool's", "1")
				if change == "" {
					got, err := b.Changes()
					must(t, err)
					if d := cmp.Diff(want, got); d != "" {
						t.Error(d)
					}
				}
				if d := cmp.Diff(numberless(ops), numberless(restored(t, b.Since(0)[:len(ops)]))); d != "" {
					t.Errorf("repeated operations can't be repeated again: %s", d)
				}
				err = b.try()
				// Under repeatable read only keys that are also written count: Keys read them.
				if level == state.Serializable && change != "" || level == state.RepeatableRead && change == "list" {
					wantConflict(t, err, change)
					return
				}
				must(t, err)
				w.stored("ends", "[3]")
				w.stored("html", `"<&>"`)
				w.stored("list", map[bool]string{false: "[1,2]", true: "[7,2]"}[change == "list"])
				w.stored("later", "1")
				w.advance(time.Minute - 10*time.Second)
				w.stored("later", "")
			})
		}
	}
}

func numberless(ops []state.Op) []state.Op {
	out := append([]state.Op(nil), ops...)
	for i := range out {
		out[i].N = 0
	}
	return out
}

// TestRepeatedReadsStillRepeat: a key that a repeated operation read cannot be read with another
// value.
func TestRepeatedReadsStillRepeat(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("k", "1").commit()
	a := w.begin(session, state.RepeatableRead)
	a.wants("k", "1")
	a.wants("absent", "")
	ops := a.set("k", "2").Since(0)
	a.Discard()
	w.begin(session, "").set("k", "5").set("absent", "5").commit()

	b := w.begin(session, state.RepeatableRead)
	must(t, b.Apply(ops[:2]))
	b.wants("absent", "")
	_, err := b.Get("k")
	wantConflict(t, err, "k")
	b.set("k", "2")
	wantConflict(t, b.try(), "k")
	b.Discard()

	c := w.begin(session, state.RepeatableRead)
	c.wants("k", "5")
	wantConflict(t, c.Apply(ops), "k")
	c.wants("k", "5")
	c.Discard()
}

// TestApplyIsAllOrNothing: a list that contains an invalid operation, or one operation too many,
// leaves the transaction unchanged.
func TestApplyIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	good := []state.Op{
		{N: 1, Op: state.Read, Key: "r", Version: 1}, {N: 2, Op: state.Set, Key: "k", Value: raw("2")},
		{N: 3, Op: state.Checkpoint, Savepoint: "a"}, {N: 4, Op: state.Delete, Key: "d"}, {N: 5, Op: state.List},
	}
	for name, bad := range map[string]state.Op{
		"no operation":  {Op: "move", Key: "k"},
		"key":           {Op: state.Set, Value: raw("1")},
		"value":         {Op: state.Set, Key: "k", Value: raw("{")},
		"no value":      {Op: state.Append, Key: "k"},
		"no list":       {Op: state.Append, Key: "k", Value: raw("1")},
		"savepoint":     {Op: state.Checkpoint, Savepoint: "a"},
		"no savepoint":  {Op: state.Checkpoint},
		"read of a key": {Op: state.Read},
		"elsewhere":     {Op: state.Rollback, Savepoint: "b"},
	} {
		a := w.begin(session, "").set("k", "1").set("d", "1")
		bad.N = 9
		err := a.Apply(append([]state.Op{bad}, good...)) // in the order of their numbers
		want := tga.ValidationError
		if name == "elsewhere" {
			want = tga.NotFound
		}
		if tga.CodeOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
		a.wants("k", "1")
		a.wants("d", "1")
		if got := a.Since(0); len(got) != 2 {
			t.Errorf("%s: operations %v", name, got)
		}
		w.begin(session, "").set("r", "1").commit()
		a.commit() // neither r nor the list of keys was read
	}
	w.begin(session, "").set("n", "1").commit()
	a := w.begin(session, "")
	must(t, a.Apply(good))
	wantConflict(t, a.try(), "d", "k", "n", "r") // a list alone has read no key
	a.Discard()
}

// TestTryIsAllOrNothing: a failed Try leaves nothing in the values or the operations, and uses
// none of the transaction's limits.
func TestTryIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	sorry := errors.New("sorry")
	for _, level := range []state.Isolation{state.ReadUncommitted, state.ReadCommitted, state.RepeatableRead, state.Serializable} {
		a := w.begin(session, level).set("k", "1").add("list", "1")
		for round := range 3 { // over the limit of keys, if they were counted
			err := a.Try(func() error {
				for i := range state.MaxKeys / 2 {
					a.set(fmt.Sprint("t", round*state.MaxKeys+i), "2")
				}
				a.set("k", "2").del("list")
				return sorry
			})
			if err != sorry {
				t.Fatal(err)
			}
		}
		a.wants("k", "1")
		a.wants("list", "[1]")
		a.wants("t0", "")
		must(t, a.Try(func() error { a.set("k", "3").add("list", "2"); return nil }))
		var made []string
		for _, op := range a.Since(0) {
			if op.Op == state.Set || op.Op == state.Append || op.Op == state.Delete {
				made = append(made, string(op.Op)+" "+op.Key)
			}
		}
		if got := fmt.Sprint(made); got != "[set k append list set k append list]" {
			t.Errorf("%s: operations %s", level, got)
		}
		a.commit()
		b := w.begin(session, level)
		b.wants("k", "3")
		b.wants("list", "[1,2]")
		b.del("k").del("list").commit()
	}
}

// TestCallsSideBySide: each call's handle returns its own operations, and those of two calls
// together are repeated in the order in which they were made.
func TestCallsSideBySide(t *testing.T) {
	w := newWorld(t)
	a := w.begin(session, "").set("k", "0")
	one, two := &tx{w, a.ForCall()}, &tx{w, a.ForCall()}
	one.set("k", "1").add("list", "1")
	two.set("k", "2").add("list", "2")
	one.set("k", "3")
	two.add("list", "3").set("l", "1")
	want, err := a.Changes()
	must(t, err)
	first, second := restored(t, one.Since(0)), restored(t, two.Since(0))
	if len(first) != 3 || len(second) != 4 || len(a.Since(0)) != 1 {
		t.Errorf("operations %v and %v", first, second)
	}
	if got := a.Since(7); got != nil {
		t.Errorf("operations since a mark that is none: %v", got)
	}
	a.Discard()
	b := w.begin(session, "").set("k", "0")
	must(t, b.Apply(append(second, first...)))
	got, err := b.Changes()
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	b.Discard()
}

// TestOneTransactionManyGoroutines: concurrent tools use one transaction, and others read its
// pending writes meanwhile; nothing is lost.
func TestOneTransactionManyGoroutines(t *testing.T) {
	w := newWorld(t)
	w.begin(session, "").set("list", "[0]").commit()
	const goroutines, each = 6, 20
	a, dirty := w.begin(session, ""), w.begin(session, state.ReadUncommitted)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			call := a.ForCall()
			for i := range each {
				_, err := call.Keys()
				if err := errors.Join(err, call.Append("list", raw("1")), call.Set(fmt.Sprint(g, i), raw("1"), 0),
					second(call.Get("list")), second(call.Changes()), second(dirty.Get("list")), second(dirty.Keys())); err != nil {
					t.Error(err)
				}
			}
			if got := len(call.Since(0)); got < 2*each {
				t.Errorf("%d operations", got)
			}
		})
	}
	wg.Wait()
	dirty.Discard()
	a.commit()
	b := w.begin(session, "")
	defer b.Discard()
	if got, err := b.Keys(); err != nil || len(got) != goroutines*each+1 {
		t.Errorf("%d keys, %v", len(got), err)
	}
	if got := b.get("list"); len(got) != len("[0]")+2*goroutines*each {
		t.Errorf("the list is %s", got)
	}
}
