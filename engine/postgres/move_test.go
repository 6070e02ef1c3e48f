package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// charge is a call of the namespace.
func (x *moving) charge(key string) runtime.Request {
	return runtime.Request{Namespace: x.namespace, Server: "payments", Tool: "charge", Key: key}
}

// signed keeps evidence of a store.
func (x *moving) signed(s *postgres.Store) {
	x.t.Helper()
	e := s.Fleet().Evidence()
	epoch, err := e.Lead(bg)
	var leaves []chain.Leaf
	for until := time.Now().Add(time.Minute); err == nil && len(leaves) == 0 && time.Now().Before(until); time.Sleep(time.Millisecond) {
		leaves, err = e.Leaves(bg, 0, 1)
	}
	kept, nerr := e.Notes(bg, 1, 100)
	if err = errors.Join(err, nerr); err == nil && len(leaves) == 1 {
		err = e.Keep(bg, postgres.Keeping{Epoch: epoch, After: int64(len(kept)), Kind: 1, Size: 1, Leaf: leaves[0], Key: "key", Note: []byte("origin\n1\nhead\n\n"), Tiles: []postgres.Tile{{Hashes: make([]byte, 8192)}}})
	}
	if err != nil {
		x.t.Fatalf("%d leaves, %v", len(leaves), err)
	}
}

// fill makes calls of every kind in the store: ended, in doubt, begun by an executor, with a checkpoint, an attachment of each
// of two kinds, and one that was erased.
func (x *moving) fill(s *postgres.Store, tools *outside, keys ...string) (permit runtime.Begun) {
	x.t.Helper()
	rt := governed(x.t, s, tools)
	for _, key := range keys {
		if res, err := rt.Call(bg, x.charge(key)); err != nil || res.State != tga.Completed {
			x.t.Fatalf("%s: %v, %v", key, res.State, err)
		}
	}
	permit, err := rt.Begin(bg, runtime.BeginRequest{Request: x.charge(keys[0] + " begun"), BeginID: keys[0]})
	if err != nil {
		x.t.Fatal(err)
	}
	stream := storetest.NewID()
	lease, err := s.Acquire(bg, stream)
	if err == nil {
		_, err = s.Append(bg, lease, chain.Batch{Attachments: []chain.Attachment{
			{Kind: chain.AttachStream, Key: keyspace.StreamKey(stream, 1), Value: []byte("the first")},
			{Kind: chain.AttachBlob, Key: keyspace.DigestKey(tga.Sum([]byte(keys[0]))), Value: []byte(keys[0])},
		}})
	}
	if err != nil {
		x.t.Fatal(err)
	}
	s.Release(lease)
	x.signed(s)
	b, lease := x.begun(s)
	if _, err := s.WriteCheckpoint(bg, lease); err != nil {
		x.t.Fatal(err)
	}
	s.Release(lease)
	if err := x.one.Exec(fmt.Sprintf("UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = %d AND trace = '%s' AND seq = 2", x.store, b.TraceID)); err != nil {
		x.t.Fatal(err)
	}
	return permit
}

// TestMovedStoreIsTheSame: a store moves to another shard and back, with calls made in between at either. It is the same store
// wherever it is: same rows, same id, the permits of begun calls are good, and used keys stay used.
func TestMovedStoreIsTheSame(t *testing.T) {
	t.Parallel()
	x := newMoving(t)
	tools := &outside{sends: map[string]int{}}
	_, s := x.routed()
	id := s.ID()
	permit := x.fill(s, tools, "a", "b", "c")
	rt := governed(t, s, tools)
	at := []*pgserver.Server{x.two, x.one}
	moves := []postgres.Moving{x.there(), x.back()}
	if serial.Whole() {
		moves = append(moves, x.there())
	}
	for i, m := range moves {
		var fenced string
		m.Step = func(step string) error {
			if step == "compare" {
				fenced = x.rows(at[(i+1)%2])
			}
			if step == "take" {
				if is := x.rows(at[i%2]); is != fenced {
					t.Errorf("move %d: the rows are\n%s\nand were\n%s", i, is, fenced)
				}
			}
			return nil
		}
		if done := x.moved(m); done.Epoch != int64(i+2) || done.Rows == 0 {
			t.Errorf("move %d: %+v", i, done)
		}
		other := governed(t, x.bound(at[i%2]), tools)
		for _, key := range []string{"a", "b", "c"} {
			for _, rt := range []*runtime.Runtime{rt, other} {
				if res, err := rt.Call(bg, x.charge(key)); err != nil || res.State != tga.Completed || tools.of(key) != 1 {
					t.Errorf("move %d, %s: %v, %v, sent %d times", i, key, res.State, err, tools.of(key))
				}
			}
		}
		fresh := fmt.Sprint("key ", i)
		if res, err := rt.Call(bg, x.charge(fresh)); err != nil || res.State != tga.Completed || tools.of(fresh) != 1 {
			t.Errorf("move %d: a new key: %v, %v", i, res.State, err)
		}
		if i == 0 { // the old copy on shard one has more from now on
			if err := x.two.Exec(fmt.Sprintf("UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = %d AND seq = 2", x.store),
				fmt.Sprintf("DELETE FROM tgad.attachments WHERE shard = %d AND kind = %d AND value = 'the first'", x.store, chain.AttachStream)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.ID() != id || x.bound(at[(len(moves)+1)%2]).ID() != id {
		t.Errorf("the store's id was %s, and is %s in the process that had it open", id, s.ID())
	}
	if _, err := rt.Finish(bg, permit.Result.TraceID, permit.Permit, runtime.Finished{Reply: runtime.Reply{Status: tga.StatusSuccess, Result: []byte(`1`)}}); err != nil {
		t.Errorf("a permit from before the moves: %v", err)
	}
	if rep, err := s.Fleet().Check(bg); err != nil || len(rep.Problems) > 0 || rep.Records == 0 {
		t.Errorf("check: %+v, %v", rep, err)
	}
}

// standing is a mover that waits before a step. goOn lets it continue, and returns how it ended.
func (x *moving) standing(m postgres.Moving, before string) (goOn func() error) {
	reached, going, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	told := m.Step
	m.Step = func(step string) error {
		if told != nil {
			if err := told(step); err != nil {
				return err
			}
		}
		if step == before {
			close(reached)
			<-going
		}
		return nil
	}
	go func() {
		_, err := postgres.Move(bg, quiet, m)
		ended <- err
	}()
	select {
	case <-reached:
	case err := <-ended:
		x.t.Fatalf("move up to %q: %v", before, err)
	}
	return func() error {
		close(going)
		return <-ended
	}
}

// TestMoverThatComesLate: a mover hangs in the middle of a move, and another mover completes the move. Every later step of the first
// mover is refused: it changes no row of a store that is served, fences nothing and takes nothing.
func TestMoverThatComesLate(t *testing.T) {
	steps := []string{"fence", "copy", "take"}
	if serial.Whole() {
		steps = append(steps, "prepare", "follow", "leave", "compare")
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			x := newMoving(t)
			tools := &outside{sends: map[string]int{}}
			all, s := x.routed()
			x.fill(s, tools, "a")
			goOn := x.standing(x.there(), step)
			x.moved(x.there())
			switch step { // the store goes on at the other shard
			case "copy": // with nothing in the log that is new
				if _, err := s.Acquire(bg, storetest.NewID()); err != nil {
					t.Fatal(err)
				}
			case "take":
				x.moved(x.back())
				x.moved(x.there())
				fallthrough
			default:
				x.fill(s, tools, "b")
			}
			if err := all.Close(); err != nil { // what its sessions do by themselves is not meant
				t.Error(err)
			}
			rows, one, two := x.rows(x.two), x.placed(x.one), x.placed(x.two)
			if err := goOn(); err == nil && step != "take" || err != nil && !errors.Is(err, tga.StateConflict) && !errors.Is(err, tga.StateChecksumMismatch) {
				t.Errorf("the late mover: %v", err)
			}
			if is := x.rows(x.two); is != rows {
				t.Errorf("the late mover has changed rows of the store:\n%s\nwere\n%s", is, rows)
			}
			if a, b := x.placed(x.one), x.placed(x.two); a != one || b != two {
				t.Errorf("the shards say %q and %q, and said %q and %q", a, b, one, two)
			}
		})
	}
}

// TestCopyIsCompared: what is not the same on both sides is never served.
func TestCopyIsCompared(t *testing.T) {
	for name, spoil := range map[string]string{
		"an entry":      "INSERT INTO tgad.entries VALUES (%d, '01936a8b-4c2d-7000-8000-000000000001', 1, 'x', 'x', NULL)",
		"a note":        "INSERT INTO tgad.notes VALUES (%d, '01936a8b-4c2d-7000-8000-000000000001', 1, 'x')",
		"a ledger row":  "INSERT INTO tgad.ledger VALUES (%d, 'x', 'x')",
		"an order":      "INSERT INTO tgad.leaves VALUES (%d, 100000, '01936a8b-4c2d-7000-8000-000000000001', 0, 0, 0, 0, '', '', 0, 0)",
		"what is to be": "INSERT INTO tgad.pending (shard, trace, first_seq, entries, first_note, notes, digest, note_digest, committed, newest) VALUES (%d, '01936a8b-4c2d-7000-8000-000000000001', 0, 0, 0, 0, '', '', 0, 0)",
	} {
		if name != "an entry" && name != "a ledger row" && !serial.Whole() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newMoving(t)
			_, s := x.routed()
			x.fill(s, &outside{sends: map[string]int{}}, "a")
			m := x.there()
			m.Step = func(step string) error {
				if step != "copy" {
					return nil
				}
				return x.two.Exec(fmt.Sprintf(spoil, x.store))
			}
			if _, err := postgres.Move(bg, quiet, m); !errors.Is(err, tga.StateChecksumMismatch) {
				t.Errorf("move: %v", err)
			}
			if _, err := postgres.Move(bg, quiet, x.there()); !errors.Is(err, tga.StateChecksumMismatch) { // nor the second time
				t.Errorf("move again: %v", err)
			}
			if got := x.placed(x.two); got != "one 1 arriving" {
				t.Errorf("shard two says %q", got)
			}
			_, err := postgres.Open(bg, pgserver.DSN(x.two), postgres.Options{Shard: x.store, Logger: quiet.Logger})
			wantElsewhere(t, "open the copy", err, "one", 1)

			// It is served again from where it was.
			if _, err := postgres.StopMoving(bg, quiet, x.there()); err != nil {
				t.Fatalf("stop: %v", err)
			}
			if got := x.placed(x.one) + ", " + x.placed(x.two); got != "one 3 here, one 3 elsewhere" {
				t.Errorf("the shards say %q", got)
			}
			if res, err := governed(t, s, &outside{sends: map[string]int{}}).Call(bg, x.charge("more")); err != nil {
				t.Errorf("a call: %v, %v", res.State, err)
			}
		})
	}
}

// TestStoppedMove: a move is given up at each of its steps, and the store is served from where it was. A mover that goes on later
// does nothing.
func TestStoppedMove(t *testing.T) {
	steps := []string{"fence", "copy"}
	if serial.Whole() {
		steps = append(steps, "prepare", "follow", "leave", "take")
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			x := newMoving(t)
			tools := &outside{sends: map[string]int{}}
			s := x.bound(x.one)
			x.fill(s, tools, "a")
			goOn := x.standing(x.there(), step)
			if _, err := postgres.StopMoving(bg, quiet, x.there()); err != nil {
				t.Fatalf("stop: %v", err)
			}
			if _, err := governed(t, s, tools).Call(bg, x.charge("b")); err != nil {
				t.Errorf("a call: %v", err)
			}
			if step != "prepare" { // else it has not begun
				if err := goOn(); !errors.Is(err, tga.StateConflict) {
					t.Errorf("the mover that goes on: %v", err)
				}
			}
			if got := x.placed(x.one); !strings.HasPrefix(got, "one") || !strings.HasSuffix(got, "here") {
				t.Errorf("shard one says %q", got)
			}
			if _, err := governed(t, s, tools).Call(bg, x.charge("c")); err != nil || tools.of("a")+tools.of("b")+tools.of("c") != 3 {
				t.Errorf("a call: %v; sends %v", err, tools.sends)
			}
			x.moved(x.there()) // another move
			if step == "prepare" {
				_ = goOn()
			}
			if h := x.bound(x.two).Holder(storetest.NewID()); h != ledger.HolderGone {
				t.Errorf("the store on shard two: %v", h)
			}
		})
	}
}

// TestMoveIsStoppedWithoutTheOther: the new shard is lost for good after the fence. An operator who asserts that gets the store
// served from the old shard again, once the sends from before the fence are over. A mover that continues later takes nothing.
func TestMoveIsStoppedWithoutTheOther(t *testing.T) {
	t.Parallel()
	x := newMoving(t)
	tools := &outside{sends: map[string]int{}}
	s := x.bound(x.one)
	x.fill(s, tools, "a")
	lost := x.there()
	lost.To, lost.Lost = "", true
	if _, err := postgres.StopMoving(bg, quiet, lost); !errors.Is(err, tga.ValidationError) {
		t.Errorf("a store that does not move: %v", err)
	}
	m := x.there()
	var fenced time.Time
	m.Step = func(step string) error {
		if step == "copy" {
			fenced = time.Now()
		}
		return nil
	}
	goOn := x.standing(m, "wait")
	if done, err := postgres.StopMoving(bg, quiet, lost); err != nil || done.Epoch != 3 {
		t.Fatalf("stop: %+v, %v", done, err)
	}
	if time.Since(fenced) < shortLease*9/10 {
		t.Error("the store is served while a send from before the fence may be under way")
	}
	if err := goOn(); err == nil {
		t.Error("the mover that goes on takes the store")
	}
	if a, b := x.placed(x.one), x.placed(x.two); a != "one 3 here" || b != "one 1 arriving" {
		t.Errorf("the shards say %q and %q", a, b)
	}
	if _, err := governed(t, s, tools).Call(bg, x.charge("b")); err != nil || tools.of("b") != 1 {
		t.Errorf("a call: %v", err)
	}
}

// TestPinnedStoreStays: a pinned store moves only if the mover asks for that explicitly.
func TestPinnedStoreStays(t *testing.T) {
	x := newMoving(t)
	x.namespace += "-pinned"
	r, err := postgres.Place(bg, pgserver.DSN(x.one), quiet, postgres.Placing{Namespace: x.namespace, Shard: "one", Pinned: true})
	if err != nil {
		t.Fatal(err)
	}
	x.store = r.Namespaces[x.namespace]
	if _, err := postgres.Move(bg, quiet, x.there()); !errors.Is(err, tga.ValidationError) {
		t.Errorf("move: %v", err)
	}
	if got := x.placed(x.one); got != "one 1 here" {
		t.Errorf("shard one says %q", got)
	}
	m := x.there()
	m.Pinned = true
	x.moved(m)
	if _, err := postgres.Move(bg, quiet, x.back()); !errors.Is(err, tga.ValidationError) { // it is pinned there now
		t.Errorf("move back: %v", err)
	}
}

// TestMoveRefusesWhatItDoesNotKnow: each with the reason, and nothing is changed.
func TestMoveRefusesWhatItDoesNotKnow(t *testing.T) {
	x := newMoving(t)
	dsn, _ := database(t)
	for what, change := range map[string]func(*postgres.Moving){
		"a namespace of the rest":           func(m *postgres.Moving) { m.Namespace = "of-nobody" },
		"to the shard that has it":          func(m *postgres.Moving) { m.To = m.From },
		"to a database that is of no fleet": func(m *postgres.Moving) { m.To = dsn },
	} {
		m := x.there()
		change(&m)
		if _, err := postgres.Move(bg, quiet, m); !errors.Is(err, tga.ValidationError) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if a, b := x.placed(x.one), x.placed(x.two); a != "one 1 here" || b != "one 1 elsewhere" {
		t.Errorf("the shards say %q and %q", a, b)
	}
	ctx, cancel := context.WithTimeout(bg, time.Second)
	defer cancel()
	if _, err := postgres.OpenShards(ctx, dsn, quiet); !errors.Is(err, tga.ValidationError) {
		t.Errorf("the stores of a fleet, at a database that is of none: %v", err)
	}
}
