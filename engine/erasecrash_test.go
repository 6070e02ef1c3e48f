package engine_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/crashtest/crashmem"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/keyspace"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestRestoredBackupForgets: a backup from before an erasure, restored beside the same ring, does
// not have the value either; it verifies, and nothing is sent for the trace.
func TestRestoredBackupForgets(t *testing.T) {
	fs, ring := vfs.NewMem(), new(chaintest.Ring)
	db := open(t, "store", withRing(fs, ring))
	archived, kept, begun := secretive(1, 40<<10), secretive(2, 10), secretive(3, 10)
	run(t, db, archived)
	if _, err := db.SealTraces(t.Context(), start+1e9); err != nil {
		t.Fatal(err)
	}
	run(t, db, kept)
	lease := acquire(t, db, begun.trace)
	append_(t, db, lease, begun.make(t).begin())
	if err := db.Backup(t.Context(), "backup"); err != nil {
		t.Fatal(err)
	}
	append_(t, db, lease, begun.make(t).end())
	db.Release(lease)
	erase(t, db, engine.Erasure{Traces: []tga.ID{archived.trace, begun.trace}})
	if err := engine.Restore(t.Context(), "backup", "restored", withRing(fs, ring)); err != nil {
		t.Fatal(err)
	}
	db = open(t, "restored", withRing(fs, ring))
	for _, s := range []spec{archived, begun} {
		tr, err := db.Load(t.Context(), s.trace)
		if err != nil || tr.Request != nil || tr.Call != nil || tr.Head.Seq == 0 {
			t.Errorf("%+v, %v", tr, err)
		}
	}
	if tr, err := db.Load(t.Context(), kept.trace); err != nil || tr.Effect == nil {
		t.Errorf("%+v, %v", tr, err)
	}
	if rep := check(t, db); rep.Traces != 3 || rep.Open != 1 {
		t.Errorf("checked %+v", rep)
	}
	listed := 0
	for l, err := range db.Traces(t.Context(), tga.ID{}) {
		if listed++; err != nil || l.Err != nil {
			t.Error(err, l.Err)
		}
	}
	if listed != 3 {
		t.Errorf("%d traces are listed", listed)
	}
	if err := db.Unfreeze(t.Context(), true, "operator"); err != nil {
		t.Fatal(err)
	}
	lease = acquire(t, db, begun.trace)
	_, err := db.Append(t.Context(), lease, begun.make(t).end())
	wantCode(t, err, tga.StateInvalidTransition)
	db.Release(lease)
	if _, err := db.SealTraces(t.Context(), start+1e9); err != nil {
		t.Fatal(err)
	}
	check(t, db)
}

// TestCrashInAnErasure: the power goes at every write of an erasure. Then the trace is whole and
// its key is there, or the open finishes what was begun: nothing has the value, the key is
// destroyed, and the store agrees with itself.
func TestCrashInAnErasure(t *testing.T) {
	serial.Test(t)
	for name, c := range map[string]struct {
		ring              bool
		archived, subject bool
		beside            bool
	}{
		"sealed":               {true, false, false, true},
		"sealed, archived":     {true, true, false, true},
		"a subject":            {true, false, true, true},
		"not sealed":           {false, false, false, true},
		"not sealed, archived": {false, true, false, false},
	} {
		t.Run(name, func(t *testing.T) { crashInAnErasure(t, c.ring, c.archived, c.subject, c.beside) })
	}
}

// aside is what lies beside the traces of a store of which two are erased: what goes with them, what
// stays, and the streams that are erased with them.
type aside struct {
	gone, stays []chain.Batch
	turn, kept  tga.ID
	states      []*someState // that are erased with them: the first is of an agent
	others      []*someState
}

// layAside lays the very same evidence and questions beside each of three traces, of which the last
// one stays, and the same items into three streams.
func layAside(t *testing.T, db *engine.DB, states bool) (a aside) {
	t.Helper()
	a.turn, a.kept = id(50), keyspace.KeptStream(tga.DefaultNamespace, "payments")
	for n := range uint64(3) {
		batches := []chain.Batch{evidence(t, id(n+1), "seen "+secret), evidence(t, id(n+1), strings.Repeat(secret, 200)), question(id(n+1), "do you see "+secret)}
		lay(t, db, id(n+1), batches...)
		if n < 2 {
			a.gone = append(a.gone, batches...)
		} else {
			a.stays = append(a.stays, batches...)
		}
	}
	for _, stream := range []tga.ID{a.turn, a.kept, id(51)} {
		for n := range uint64(3) {
			b := item(stream, n+1, fmt.Sprint(n, secret))
			lay(t, db, stream, b)
			switch {
			case stream == id(51):
				a.stays = append(a.stays, b)
			case n > 0:
				a.gone = append(a.gone, b)
			}
		}
	}
	if !states {
		return a
	}
	a.states = []*someState{layScope(t, db, engine.AgentState{Agent: "helper", Session: "s"}, secret, func() { packs(t, db) }), layFamily(t, db, id(70), secret)}
	a.others = []*someState{layScope(t, db, engine.AgentState{Agent: "helper"}, "of the agent"), layFamily(t, db, id(71), "another one")}
	return a
}

// want fails the test unless all of it is there, or what was erased is gone.
func (a *aside) want(t *testing.T, db *engine.DB, erased bool) {
	t.Helper()
	for _, b := range a.gone {
		wantBeside(t, db, b, !erased)
	}
	for _, b := range a.stays {
		wantBeside(t, db, b, true)
	}
	for _, s := range a.states {
		s.want(t, db, erased)
	}
	for _, s := range a.others {
		s.want(t, db, false)
	}
	for _, stream := range []tga.ID{a.turn, a.kept} {
		if a.turn.IsZero() {
			break
		}
		raw, err := db.Attachment(t.Context(), chain.AttachStream, keyspace.StreamKey(stream, 1))
		if err != nil || raw == nil || (len(raw) == 0) != erased {
			t.Errorf("item 1 of stream %s is %q, %v", stream, raw, err)
		}
	}
}

// leaveStreams: an erasure of a subject does not reach streams and states.
func (a *aside) leaveStreams() {
	a.states, a.others = nil, append(a.others, a.states...)
	for i := 0; i < len(a.gone); i++ {
		if b := a.gone[i]; b.Attachments[0].Kind == chain.AttachStream {
			a.gone, a.stays = slices.Delete(a.gone, i, i+1), append(a.stays, b)
			i--
		}
	}
	a.turn, a.kept = tga.ID{}, tga.ID{}
}

func crashInAnErasure(t *testing.T, sealed, archived, subject, beside bool) {
	type crash struct {
		fs        *crashmem.FS
		destroyed map[chain.KeyID]bool
		op        string
	}
	var (
		mu      sync.Mutex
		crashes []crash
		on      bool
		ops     int
	)
	ring := &chaintest.Ring{BySubject: subject}
	disk, rng := crashmem.New(), rand.New(rand.NewPCG(9, 3))
	recording := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !on || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		ops++
		kepts := []int{0, 50 + 50*(ops%2)}
		if serial.Whole() {
			kepts = []int{0, 50, 100}
		}
		for _, kept := range kepts {
			crashes = append(crashes, crash{disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}), ring.Gone(), fmt.Sprintf("op %d, %d on %s, %d%% kept", ops, op.Kind, op.Path, kept)})
		}
		return nil
	}))
	opts := func(fs vfs.FS, r *chaintest.Ring) engine.Options {
		o := options(fs)
		if o.Keyring = nil; sealed {
			o.Keyring = r
		}
		return o
	}
	gone := []spec{secretive(1, 40<<10), secretive(2, 10)}
	for i := range gone {
		gone[i].subject = "alice"
	}
	db, err := engine.Open("store", opts(&burying{FS: recording}, ring))
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, append(gone, secretive(3, 10))...)
	what, by := engine.Erasure{Traces: []tga.ID{id(1), id(2)}}, aside{}
	if beside {
		by = layAside(t, db, !archived && !subject || serial.Whole())
		what.Turns, what.Kept = []tga.ID{by.turn}, []string{"payments"}
		if by.states != nil {
			what.Agents, what.States = []engine.AgentState{{Agent: "helper", Session: "s"}}, []tga.ID{by.states[1].id}
		}
	}
	if archived {
		if _, err := db.SealTraces(t.Context(), start+1e9); err != nil {
			t.Fatal(err)
		}
	}
	if subject {
		what = engine.Erasure{Subject: "alice"}
		by.leaveStreams()
	}
	mu.Lock()
	on = true
	mu.Unlock()
	erase(t, db, what)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	whole, finished := 0, 0
	for _, c := range crashes {
		ring := &chaintest.Ring{BySubject: subject, Destroyed: maps.Clone(c.destroyed)}
		var unwiped []string
		fs := &burying{FS: c.fs, looks: func(name string, b []byte) {
			if bytes.Contains(b, []byte(secret)) {
				unwiped = append(unwiped, name)
			}
		}}
		db, err := engine.Open("store", opts(fs, ring))
		if err != nil {
			t.Fatalf("%s: %v", c.op, err)
		}
		rep, err := db.Check(t.Context())
		if err != nil || len(rep.Problems) > 0 || db.Stats().Frozen != "" {
			t.Fatalf("%s: check: %v %v", c.op, rep.Problems, err)
		}
		tr, err := db.Load(t.Context(), id(1))
		if err != nil {
			t.Fatalf("%s: %v", c.op, err)
		}
		by.want(t, db, tr.Request == nil)
		if t.Failed() {
			t.Fatal(c.op)
		}
		if tr.Request != nil {
			if whole++; len(c.destroyed) > 0 || len(tr.Notes) > 0 != beside || tr.Effect == nil {
				t.Fatalf("%s: trace %+v, destroyed %v", c.op, tr, c.destroyed)
			}
		} else {
			if finished++; len(unwiped) > 0 {
				t.Fatalf("%s: the open removed %v with the value in them", c.op, unwiped)
			}
			for _, s := range gone {
				wantErased(t, db, s)
			}
			keys := 2
			if subject {
				keys = 1
			} else if beside {
				keys += 2 + len(by.states) // of the streams and states
			}
			if sealed && len(ring.Destroyed) != keys {
				t.Fatalf("%s: %d keys are destroyed, want %d", c.op, len(ring.Destroyed), keys)
			}
			if n := bodiesWith(t, db, secret, id(1), id(2), by.turn, by.kept); n != 0 {
				t.Fatalf("%s: %d bodies have it", c.op, n)
			}
			// Whatever else has it is beside what stays.
			if n, mine := bodiesWith(t, db, secret), len(by.stays)+3; sealed && n != 0 || !sealed && beside && !archived && n != mine {
				t.Fatalf("%s: %d bodies have it, want %d", c.op, n, mine)
			}
		}
		if tr, err := db.Load(t.Context(), id(3)); err != nil || tr.Effect == nil {
			t.Fatalf("%s: another's trace: %+v, %v", c.op, tr, err)
		}
		if err := db.Close(); err != nil {
			t.Fatalf("%s: %v", c.op, err)
		}
	}
	t.Logf("%d writes: %d times whole, %d times erased", ops, whole, finished)
	if whole == 0 || finished == 0 {
		t.Error("the test crashes at the wrong moments")
	}
}

// TestBackupOfLinksIsNotWiped: a backup shares files with the store where the disk can link. An
// erasure leaves them as they are: the backup is whole, and still has what it had.
func TestBackupOfLinksIsNotWiped(t *testing.T) {
	dir := t.TempDir()
	o := options(nil)
	o.FS, o.Keyring, o.LowWaterBytes = nil, nil, 1
	db := open(t, dir+"/store", o)
	s := secretive(1, 2<<20)
	run(t, db, s)
	if err := db.NextSegment(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Rewrite(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Backup(t.Context(), dir+"/backup"); err != nil {
		t.Fatal(err)
	}
	erase(t, db, engine.Erasure{Traces: []tga.ID{s.trace}})
	if found := filesWith(t, vfs.Default, dir+"/store", secret); found != nil {
		t.Errorf("it stands in %v", found)
	}
	if err := engine.Restore(t.Context(), dir+"/backup", dir+"/restored", o); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir+"/restored", o)
	if tr, err := db.Load(t.Context(), s.trace); err != nil || tr.Effect == nil {
		t.Errorf("the backup has %+v, %v", tr, err)
	}
}

// keeping is a ring that destroys nothing for a while.
type keeping struct {
	*chaintest.Ring
	down bool
}

func (r *keeping) Destroy(key chain.KeyID) error {
	if r.down {
		return tga.Errorf(tga.StoreUnavailable, "the ring is down")
	}
	return r.Ring.Destroy(key)
}

// TestErasureGoesOnOnceTheRingIsBack: while the ring destroys nothing an erasure is not done, and
// says so. The next one goes on with it, and so does an open with the ring; an open without
// the ring leaves it as it is.
func TestErasureGoesOnOnceTheRingIsBack(t *testing.T) {
	for _, reopen := range []bool{false, true} {
		fs, ring := vfs.NewMem(), &keeping{Ring: new(chaintest.Ring), down: true}
		o := options(fs)
		o.Keyring = ring
		db := open(t, "store", o)
		s := secretive(1, 10)
		run(t, db, s, spec{trace: id(2)})
		_, err := db.Erase(t.Context(), engine.Erasure{Traces: []tga.ID{s.trace}, Who: "operator", Reason: "the customer asked for it"})
		wantCode(t, err, tga.StoreUnavailable)
		if reopen {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			without := o
			without.Keyring = nil
			if err := open(t, "store", without).Close(); err != nil {
				t.Fatal(err)
			}
			if err := open(t, "store", o).Close(); err != nil { // it is still down
				t.Fatal(err)
			}
			if len(ring.Destroyed) > 0 {
				t.Fatal("without the ring the key is destroyed")
			}
			ring.down = false
			db = open(t, "store", o)
		} else {
			ring.down = false
			if done := erase(t, db, engine.Erasure{Traces: []tga.ID{s.trace}}); !same(done, engine.Erased{Already: 1}) {
				t.Errorf("erased %+v", done)
			}
		}
		wantErased(t, db, s)
		if len(ring.Destroyed) != 1 {
			t.Errorf("destroyed: %v", ring.Destroyed)
		}
	}
}
