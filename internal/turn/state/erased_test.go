package state_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/turn/state"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
)

var (
	kept     = state.Scope{Mode: state.Persistent, ID: "helper"}
	ofHelper = state.Scope{Mode: state.Session, ID: "helper\x00s"}
)

// sealedWorld is a world whose store has a key ring, or none.
func sealedWorld(t testing.TB, sealed bool) (*world, *chaintest.Ring) {
	t.Helper()
	w, ring := newWorld(t), new(chaintest.Ring)
	if sealed {
		w.close()
		w.ring = ring
		w.open()
	}
	return w, ring
}

func (w *world) erase(s ...engine.AgentState) engine.Erased {
	w.Helper()
	done, err := w.db.Erase(bg, engine.Erasure{Agents: s, Who: "operator", Reason: "r"})
	must(w, err)
	return done
}

func (w *world) storedIn(scope state.Scope, key, want string) {
	w.Helper()
	t := w.begin(scope, state.ReadCommitted)
	defer t.Discard()
	t.wants(key, want)
}

// TestErasedScopeBeginsAnew: nothing of it can be read, at any level or in any way, and it
// accepts values like a new scope. Another scope is unchanged. The same holds in a store from
// before the erasure.
func TestErasedScopeBeginsAnew(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		t.Run(fmt.Sprint("sealed ", sealed), func(t *testing.T) {
			w, ring := sealedWorld(t, sealed)
			for _, s := range []state.Scope{kept, ofHelper} {
				w.begin(s, "").set("a", "1").set("b", "2").add("l", "3").commit()
				w.begin(s, "").set("a", "2").del("b").commit()
			}
			must(t, w.db.Backup(bg, "backup"))
			for _, c := range []struct {
				what engine.AgentState
				name state.Scope
			}{{engine.AgentState{Agent: "helper"}, kept}, {engine.AgentState{Agent: "helper", Session: "s"}, ofHelper}} {
				if got, want := keyspace.AgentStream(c.what.Agent, c.what.Session), keyspace.ScopeStream(string(c.name.Mode), c.name.ID); got != want {
					t.Errorf("%+v is stream %s, the scope is %s", c.what, got, want)
				}
				if done := w.erase(c.what); done.States != 1 || (done.Keys == 1) != sealed {
					t.Errorf("erased %+v", done)
				}
				for range 2 {
					begun(t, w, c.name)
					if done := w.erase(c.what); done.States != 1 || len(ring.Destroyed) > 0 != sealed {
						t.Errorf("erased again %+v", done)
					}
					w.reopen()
				}
				all, err := state.Stored(bg, w.db)
				must(t, err)
				if slices.Contains(all, c.name) || slices.Contains(all, ofHelper) != (c.name == kept) {
					t.Errorf("scopes %+v", all)
				}
				if c.name == kept {
					w.storedIn(ofHelper, "a", "2")
				}
			}
			if !sealed {
				return
			}
			w.close()
			must(t, engine.Restore(bg, "backup", "store2", w.options()))
			w.dir = "store2"
			w.open()
			must(t, w.db.Unfreeze(bg, true, "operator"))
			begun(t, w, kept)
			w.reopen()
			begun(t, w, kept)
		})
	}
}

// begun fails the test unless a scope is empty or has only what an earlier call left. Then it
// uses the scope.
func begun(t *testing.T, w *world, s state.Scope) {
	t.Helper()
	for _, level := range allLevels {
		a := w.begin(s, level)
		a.wants("a", "")
		a.wants("l", "")
		keys, err := a.Keys()
		must(t, err)
		if len(keys) > 0 && !slices.Equal(keys, []string{"c"}) {
			t.Errorf("keys %q at level %s", keys, level)
		}
		a.Discard()
	}
	w.begin(s, "").set("c", "4").add("l", "5").commit()
	w.storedIn(s, "l", "[5]")
	a := w.begin(s, "")
	keys, err := a.Keys()
	must(t, err)
	if !slices.Equal(keys, []string{"c", "l"}) {
		t.Errorf("keys %q", keys)
	}
	a.del("l").commit()
	w.storedIn(s, "c", "4")
}

// TestErasedWhileATransactionIsOpen: a transaction that has read the erased state commits
// nothing, whether it runs or was parked meanwhile, because no version number is used again.
func TestErasedWhileATransactionIsOpen(t *testing.T) {
	w, _ := sealedWorld(t, true)
	w.begin(kept, "").set("a", "1").commit()
	for _, s := range []string{`"x"`, `"y"`} {
		w.begin(kept, "").set("a", s).commit()
	}
	open := w.begin(kept, "")
	mark := open.Mark()
	open.wants("a", `"y"`)
	ops := open.Since(mark)
	open.set("b", "2")
	w.erase(engine.AgentState{Agent: "helper"})
	if err := open.try(); err == nil {
		t.Error("a transaction that has read what was erased is committed")
	}
	open.Discard()
	for n := range 5 {
		parked := w.begin(kept, "")
		if err := parked.Apply(ops); err == nil {
			parked.set("b", "2")
			err = parked.try()
			if !errors.Is(err, tga.StateConflict) {
				t.Errorf("after %d commits a turn goes on with what was erased: %v", n, err)
			}
		}
		parked.Discard()
		w.begin(kept, "").set("a", fmt.Sprint(n)).commit()
	}
	w.storedIn(kept, "b", "")
}

// TestScopeWhoseKeyCannotBeHad: values whose key is unavailable are neither absent nor erased,
// and nothing is committed over them.
func TestScopeWhoseKeyCannotBeHad(t *testing.T) {
	w, ring := sealedWorld(t, true)
	w.begin(kept, "").set("a", "1").commit()
	a := w.begin(kept, "")
	ring.Err = tga.Errorf(tga.StoreUnavailable, "the ring is down")
	_, err := a.Get("a")
	wantCode(t, err, tga.StoreUnavailable)
	_, err = a.Keys()
	wantCode(t, err, tga.StoreUnavailable)
	wantCode(t, a.set("b", "2").try(), tga.StoreUnavailable)
	ring.Err = nil
	a.Discard()
	w.reopen()
	w.storedIn(kept, "a", "1")
	w.storedIn(kept, "b", "")
}

// silent is a store that cannot tell its newest time.
type silent struct{ runtime.Store }

func (silent) NewestTS() tga.Millis { return tga.LastMillis }

// TestErasedScopeWaitsForTheNewestTime: the answer of a store that cannot tell its newest time does not number a
// version. A later erasure would begin with a smaller number.
func TestErasedScopeWaitsForTheNewestTime(t *testing.T) {
	w, _ := sealedWorld(t, false)
	w.begin(kept, "").set("a", "1").commit()
	w.erase(engine.AgentState{Agent: "helper"})
	w.use(silent{w.db})
	x := w.begin(kept, "").set("a", "2")
	if err := x.try(); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("committed: %v", err)
	}
	x.Discard()
	w.use(w.db)
	w.begin(kept, "").set("a", "3").commit()
	w.storedIn(kept, "a", "3")
}
