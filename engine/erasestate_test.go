package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// someState is a state of the tests: of an agent, or a working state.
type someState struct {
	id     tga.ID
	values []chain.Batch // that it has
	had    []chain.Batch // that were replaced or deleted
	head   chain.Batch
}

func (s *someState) item(stream tga.ID, n uint64, value []byte) chain.Batch {
	return chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, n), Value: value, Owner: s.id}}}
}

// deleted is what deletes the values of batches.
func deleted(batches ...chain.Batch) (b chain.Batch) {
	for _, x := range batches {
		a := x.Attachments[0]
		a.Value = nil
		b.Attachments = append(b.Attachments, a)
	}
	return b
}

// layScope writes the state of an agent as package internal/turn/state does: a value, one that was replaced,
// and a key that was deleted, whose stream no list names any more.
// before is called before anything is replaced or deleted.
func layScope(t testing.TB, db *engine.DB, what engine.AgentState, text string, before ...func()) *someState {
	t.Helper()
	s := &someState{id: keyspace.AgentStream(what.Agent, what.Session)}
	list := func(key string) chain.Batch {
		raw, err := json.Marshal([]string{key})
		if err != nil {
			t.Fatal(err)
		}
		return s.item(s.id, keyspace.ListItem(key), raw)
	}
	stays, gone := keyspace.ValueStream(s.id, "stays"), keyspace.ValueStream(s.id, "gone")
	s.head = chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StreamKey(s.id, 0), Value: []byte(`{"format":1,"version":3}`)}}}
	s.had = []chain.Batch{s.item(stays, 1, []byte("1 "+text)), s.item(gone, 1, []byte("gone "+text)), list("gone")}
	s.values = []chain.Batch{s.item(stays, 2, []byte("2 "+text)), list("stays")}
	s.lay(t, db, id(900), s.item(gone, 2, []byte("gone 2 "+text)), before)
	return s
}

// layFamily writes a working state as package internal/workstate does: a head, boundaries, a fork, nodes, of
// which some were dropped.
func layFamily(t testing.TB, db *engine.DB, family tga.ID, text string, before ...func()) *someState {
	t.Helper()
	s := &someState{id: family}
	node := func(n string) chain.Batch {
		key := keyspace.NodeKey(family, tga.Sum([]byte(n+text)))
		return chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachBlob, Key: keyspace.DigestKey(key), Value: []byte(n + text), Owner: family}}}
	}
	s.head = chain.Batch{Attachments: []chain.Attachment{{Kind: chain.AttachStream, Key: keyspace.StateKey(family, 0, 0), Value: []byte(`{"version":1}`), Owner: family}}}
	s.had = []chain.Batch{node("dropped "), s.item(family, 1, []byte("boundary 1 "+text))}
	s.values = []chain.Batch{node("a "), node("b "), s.item(family, 2, []byte("boundary 2 "+text)), s.item(family, 1<<40, []byte("a fork's head "+text))}
	s.lay(t, db, family, node("dropped too "), before)
	return s
}

// lay writes the state under a lease, and alone, between calls of before, something that is deleted with the rest
// of what it had: a segment of the log then has that of it and nothing else.
func (s *someState) lay(t testing.TB, db *engine.DB, lease tga.ID, alone chain.Batch, before []func()) {
	t.Helper()
	lay(t, db, lease, append(append([]chain.Batch{s.head}, s.had...), s.values...)...)
	for _, f := range before {
		f()
	}
	lay(t, db, lease, alone)
	for _, f := range before {
		f()
	}
	s.had = append(s.had, alone)
	lay(t, db, lease, deleted(s.had...))
}

// packs writes the segments of a log anew, so that what is in them is not written anew for another reason.
func packs(t testing.TB, db *engine.DB) {
	t.Helper()
	if err := db.NextSegment(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Rewrite(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless the state is there, or erased.
func (s *someState) want(t testing.TB, db *engine.DB, erased bool) {
	t.Helper()
	for _, b := range s.values {
		wantBeside(t, db, b, !erased)
	}
	raw, err := db.Attachment(t.Context(), chain.AttachStream, keyspace.StreamKey(s.id, 0))
	was, bad := chain.ReadStateErasure(raw)
	if err != nil || bad != nil || (was != nil) != erased || !erased && !bytes.Equal(raw, s.head.Attachments[0].Value) {
		t.Errorf("the head of state %s is %q, %v %v; erased: %v", s.id, raw, err, bad, erased)
	}
	if erased && (was == nil || was.Who != "operator" || was.Reason != "the customer asked for it" || was.At != start) {
		t.Errorf("the erasure of state %s is %+v", s.id, was)
	}
}

// TestStateIsSealedUnderOneKey: all that a state has and had is sealed under one key, whatever is deleted and
// however often the store is opened: one key is all that an erasure needs to destroy.
func TestStateIsSealedUnderOneKey(t *testing.T) {
	agents := []engine.AgentState{{Agent: "helper"}}
	for name, c := range map[string]struct {
		lay  func(testing.TB, *engine.DB) *someState
		what engine.Erasure
	}{
		"of an agent":   {func(t testing.TB, db *engine.DB) *someState { return layScope(t, db, agents[0], secret) }, engine.Erasure{Agents: agents}},
		"working state": {func(t testing.TB, db *engine.DB) *someState { return layFamily(t, db, id(70), secret) }, engine.Erasure{States: []tga.ID{id(70)}}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, ring := vfs.NewMem(), new(chaintest.Ring)
			o := withRing(fs, ring)
			db := open(t, "store", o)
			s := c.lay(t, db)
			keys := map[chain.KeyID]int{}
			count := func() {
				t.Helper()
				if err := db.Bodies(func(key, body []byte) {
					if k := engine.ValueKey(body); k != 0 && (key[0] == 't' || key[0] == 'w') {
						keys[k]++
					}
				}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				lay(t, db, s.id, deleted(s.values...)) // nothing of it is left that says its key
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = open(t, "store", o)
				lay(t, db, s.id, s.values...)
				s.want(t, db, false)
			}
			count()
			if found := filesWith(t, fs, "store", secret); found != nil {
				t.Errorf("it stands in %v", found)
			}
			if len(keys) != 1 {
				t.Errorf("values by key: %v", keys)
			}
			if done := erase(t, db, c.what); !same(done, engine.Erased{States: 1, Keys: 1}) {
				t.Errorf("erased %+v", done)
			}
		})
	}
}

// TestErasedState: nothing of what a state has, and had, stands anywhere; its head says who erased it, when
// and why, and is a leaf of the order. Others stay, what comes after is another key's and no part of
// the erasure, and a state that somebody is at, or that never was, is not erased.
func TestErasedState(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("sealed %v, packed %v", sealed, packed), func(t *testing.T) { erasedState(t, sealed, packed) })
		}
	}
}

func erasedState(t *testing.T, sealed, packed bool) {
	fs, ring := &burying{FS: vfs.NewMem()}, new(chaintest.Ring)
	o := withRing(fs, ring)
	if !sealed {
		o.Keyring = nil
	}
	db := open(t, "store", o)
	text := strings.Repeat(secret+" ", 500)
	agent := engine.AgentState{Agent: "helper", Session: "s"}
	pack := func() {
		if packed {
			packs(t, db)
		}
	}
	gone := []*someState{layScope(t, db, agent, text, pack), layFamily(t, db, id(70), text, pack)}
	stay := []*someState{
		layScope(t, db, engine.AgentState{Agent: "helper"}, "of the agent"), layScope(t, db, engine.AgentState{Agent: "helper", Session: "t"}, "of another session"),
		layFamily(t, db, id(71), "another one"),
	}
	what := engine.Erasure{Agents: []engine.AgentState{agent, agent}, States: []tga.ID{id(70), id(70)}, Who: "operator", Reason: "r"}
	for _, s := range gone {
		held := acquire(t, db, s.id)
		_, err := db.Erase(t.Context(), what)
		wantCode(t, err, tga.StateLockAcquireFailed)
		db.Release(held)
	}
	for _, nothing := range []engine.Erasure{{Agents: []engine.AgentState{{Agent: "s"}}}, {States: []tga.ID{id(72)}}} {
		nothing.Who, nothing.Reason = "operator", "r"
		_, err := db.Erase(t.Context(), nothing)
		wantCode(t, err, tga.NotFound)
	}
	_, err := db.Erase(t.Context(), engine.Erasure{Agents: []engine.AgentState{{Session: "s"}}, Who: "operator", Reason: "r"})
	wantCode(t, err, tga.ValidationError)
	for _, s := range append(gone, stay...) {
		s.want(t, db, false)
	}
	if err := db.NextSegment(); err != nil {
		t.Fatal(err)
	}
	var unwiped []string
	fs.looks = func(name string, b []byte) {
		if bytes.Contains(b, []byte(secret)) {
			unwiped = append(unwiped, name)
		}
	}
	leaves := db.Stats().Cursor
	want := engine.Erased{States: 2, Keys: 2}
	if !sealed {
		want.Keys, want.Unsealed = 0, 2
	}
	if done := erase(t, db, what); !same(done, want) || len(ring.Destroyed) != want.Keys {
		t.Errorf("erased %+v, destroyed %v, want %+v", done, ring.Destroyed, want)
	}
	if n := db.Stats().Cursor - leaves; n != 2 {
		t.Errorf("%d leaves are of the erasure, want 2", n)
	}
	for range 2 {
		for _, s := range gone {
			s.want(t, db, true)
		}
		for _, s := range stay {
			s.want(t, db, false)
		}
		if n := bodiesWith(t, db, secret); n > 0 {
			t.Errorf("%d bodies have it", n)
		}
		if found := filesWith(t, fs, "store", secret); found != nil {
			t.Errorf("it stands in %v", found)
		}
		if done := erase(t, db, what); !same(done, engine.Erased{Already: 2}) {
			t.Errorf("again: %+v", done)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = open(t, "store", o)
	}
	if sealed && len(unwiped) > 0 {
		t.Errorf("%v are removed with the value in them", unwiped)
	}
	again := []*someState{layScope(t, db, agent, "since"), layFamily(t, db, id(70), "since")}
	for _, s := range again {
		s.want(t, db, false)
	}
	check(t, db)
	if done := erase(t, db, what); done.States != 2 || sealed && done.Keys != 2 {
		t.Errorf("what was written since: %+v", done)
	}
	for _, s := range []*someState{layScope(t, db, agent, "once more"), layFamily(t, db, id(70), "once more")} {
		s.want(t, db, false)
	}
}

// TestStateWhoseKeyWasDestroyed: in a backup from before, what was erased is not there, and the state takes
// values under another key. There too it can be erased.
func TestStateWhoseKeyWasDestroyed(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	o := withRing(fs, ring)
	db := open(t, "store", o)
	agent := engine.AgentState{Agent: "helper"}
	states := []*someState{layScope(t, db, agent, secret), layFamily(t, db, id(70), secret)}
	if err := db.Backup(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	what := engine.Erasure{Agents: []engine.AgentState{agent}, States: []tga.ID{id(70)}}
	erase(t, db, what)
	if err := engine.Restore(t.Context(), "backup", "restored", o); err != nil {
		t.Fatal(err)
	}
	db = open(t, "restored", o)
	for _, s := range states {
		wantBeside(t, db, s.head, true)
		for _, b := range s.values {
			a := b.Attachments[0]
			got, err := db.Attachment(t.Context(), a.Kind, a.Key)
			if err != nil || len(got) > 0 || (got != nil) != (a.Kind == chain.AttachStream) {
				t.Errorf("%c %x is %q, %v", a.Kind, a.Key, got, err)
			}
		}
	}
	if err := db.Unfreeze(t.Context(), true, "operator"); err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		lay(t, db, s.id, s.values[0])
		wantBeside(t, db, s.values[0], true)
	}
	check(t, db)
	if done := erase(t, db, what); done.States != 2 || len(ring.Destroyed) != 4 {
		t.Errorf("erased %+v, destroyed %v", done, ring.Destroyed)
	}
	check(t, db)
}

// TestStateWhoseKeyCannotBeHad: a key that is only out of reach is neither an erasure nor taken for one. The
// state is unavailable, takes no value, is not erased, and is what it was once the key is back.
func TestStateWhoseKeyCannotBeHad(t *testing.T) {
	fs, ring := vfs.NewMem(), &lacking{Ring: new(chaintest.Ring)}
	o := options(fs)
	o.Keyring = ring
	db := open(t, "store", o)
	agent := engine.AgentState{Agent: "helper"}
	states := []*someState{layScope(t, db, agent, secret), layFamily(t, db, id(70), secret)}
	for i, what := range []engine.Erasure{{Agents: []engine.AgentState{agent}}, {States: []tga.ID{id(70)}}} {
		s := states[i]
		a := s.values[0].Attachments[0]
		ring.lost = engine.ValueKey([]byte(db.Dump()[string(append([]byte{byte(a.Kind)}, a.Key...))]))
		_, err := db.Attachment(t.Context(), a.Kind, a.Key)
		wantCode(t, err, tga.StoreUnavailable)
		what.Who, what.Reason = "operator", "r"
		_, err = db.Erase(t.Context(), what)
		wantCode(t, err, tga.StoreUnavailable)
		states[1-i].want(t, db, false)
		ring.lost = 0
		s.want(t, db, false)
	}
	if len(ring.Destroyed) > 0 {
		t.Errorf("destroyed: %v", ring.Destroyed)
	}
}

// TestListWhoseKeyCannotBeHad: the list of a state's keys, where it has a key of its own, names what is to be erased. While
// that key is out of reach nothing is erased; nobody knows what the list names.
func TestListWhoseKeyCannotBeHad(t *testing.T) {
	ring := &lacking{Ring: new(chaintest.Ring)}
	o := options(vfs.NewMem())
	o.Keyring = ring
	db := open(t, "store", o)
	agent := engine.AgentState{Agent: "helper"}
	s := layScope(t, open(t, "another", withRing(vfs.NewMem(), new(chaintest.Ring))), agent, secret)
	for _, b := range append([]chain.Batch{s.head}, s.values...) {
		b.Attachments[0].Owner = tga.ID{} // as an earlier version laid it
		lay(t, db, id(900), b)
	}
	list := s.values[1].Attachments[0]
	ring.lost = engine.ValueKey([]byte(db.Dump()[string(append([]byte{byte(list.Kind)}, list.Key...))]))
	what := engine.Erasure{Agents: []engine.AgentState{agent}, Who: "operator", Reason: "the customer asked for it"}
	_, err := db.Erase(t.Context(), what)
	wantCode(t, err, tga.StoreUnavailable)
	if len(ring.Destroyed) > 0 {
		t.Errorf("destroyed: %v", ring.Destroyed)
	}
	ring.lost = 0
	s.want(t, db, false)
	erase(t, db, what)
	s.want(t, db, true)
}

// TestStateOfAnEarlierVersion: it sealed the streams and the nodes of a state under keys of their own. All of that is
// read, new values get one key, and an erasure destroys every key that a value says.
func TestStateOfAnEarlierVersion(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	db := open(t, "store", withRing(fs, ring))
	agent := engine.AgentState{Agent: "helper"}
	of := func(s *someState) {
		for _, b := range append([]chain.Batch{s.head}, s.values...) {
			b.Attachments[0].Owner = tga.ID{}
			lay(t, db, id(900), b)
			b.Attachments[0].Owner = s.id
		}
	}
	scope, family := layScope(t, open(t, "another", withRing(fs, new(chaintest.Ring))), agent, secret), layFamily(t, open(t, "a third", withRing(fs, new(chaintest.Ring))), id(70), secret)
	of(scope)
	of(family)
	earlier, _ := ring.Key("", "")
	for range 2 {
		for _, s := range []*someState{scope, family} {
			s.want(t, db, false)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = open(t, "store", withRing(fs, ring))
	}
	more := scope.item(keyspace.ValueStream(scope.id, "stays"), 3, []byte("3 "+secret))
	lay(t, db, id(900), more)
	wantBeside(t, db, more, true)
	// The list of the scope and its key have one each, the family's items and nodes one each.
	if done := erase(t, db, engine.Erasure{Agents: []engine.AgentState{agent}, States: []tga.ID{id(70)}}); done.States != 2 || done.Keys != int(earlier)-1 || done.Keys != 4 || done.Unsealed != 0 {
		t.Errorf("erased %+v, %d keys were used", done, earlier-1)
	}
	for _, s := range []*someState{scope, family} {
		s.want(t, db, true)
	}
	wantBeside(t, db, more, false)
	if n := bodiesWith(t, db, secret); n > 0 {
		t.Errorf("%d bodies have it", n)
	}
}

// TestManyStatesAreErasedInFewRecords: each record of an erasure has all that is left of it, so what an erasure writes would
// grow with the square of the states if each had a record of its own.
func TestManyStatesAreErasedInFewRecords(t *testing.T) {
	db := open(t, "store", readable(vfs.NewMem()))
	var all []*someState
	what := engine.Erasure{States: []tga.ID{}}
	for n := range uint64(150) {
		family := id(1000 + n)
		all, what.States = append(all, layFamily(t, db, family, fmt.Sprint("state ", n))), append(what.States, family)
	}
	before := db.Stats()
	if done := erase(t, db, what); done.States != len(all) {
		t.Errorf("erased %+v", done)
	}
	if n := db.Stats().Commits - before.Commits; n > 20 {
		t.Errorf("%d records", n)
	}
	if n := db.Stats().Cursor - before.Cursor; n != uint64(len(all)) {
		t.Errorf("%d leaves", n)
	}
	for _, s := range all {
		s.want(t, db, true)
	}
	if done := erase(t, db, what); !same(done, engine.Erased{Already: len(all)}) {
		t.Errorf("again: %+v", done)
	}
}
