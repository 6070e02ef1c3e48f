package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/schemas/tga"
)

// TestErasedSubject: every trace of the subject goes, with its key, and none of another's; the
// subject's next call has a key that works.
func TestErasedSubject(t *testing.T) {
	for name, c := range map[string]struct {
		ring engine.Keyring
		keys int
	}{
		"a key of the subject": {&chaintest.Ring{BySubject: true}, 1},
		"keys of traces":       {&chaintest.Ring{}, 3},
		"no ring":              {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			o := options(fs)
			o.Keyring = c.ring
			db := open(t, "store", o)
			of := func(n uint64, namespace, subject string) spec {
				s := secretive(n, 100)
				s.namespace, s.subject = namespace, subject
				return s
			}
			alice := []spec{of(1, "", "alice"), of(2, "default", "alice"), of(5, "", "alice")}
			others := []spec{of(3, "", "bob"), of(4, "tenant", "alice"), of(6, "", "")}
			run(t, db, alice[:2]...)
			run(t, db, others...)
			if _, err := db.SealTraces(t.Context(), start+1e9); err != nil {
				t.Fatal(err)
			}
			run(t, db, alice[2])
			open2 := of(7, "", "alice")
			lease := acquire(t, db, open2.trace)
			append_(t, db, lease, open2.make(t).begin())
			_, err := db.Erase(t.Context(), engine.Erasure{Subject: "alice", Who: "w", Reason: "r"})
			wantCode(t, err, tga.StateInvalidTransition)
			append_(t, db, lease, open2.make(t).end())
			db.Release(lease)
			alice = append(alice, open2)
			if c.ring != nil && c.keys > 1 {
				c.keys++
			}
			done := erase(t, db, engine.Erasure{Subject: "alice"})
			if done.Traces != 4 || done.Keys != c.keys || done.Shared != 0 || (done.Unsealed == 4) != (c.ring == nil) {
				t.Errorf("erased %+v", done)
			}
			for _, s := range alice {
				wantErased(t, db, s)
			}
			for _, s := range others {
				if tr, err := db.Load(t.Context(), s.trace); err != nil || tr.Effect == nil {
					t.Errorf("another's trace: %+v, %v", tr, err)
				}
			}
			next := of(8, "", "alice")
			run(t, db, next)
			if tr, err := db.Load(t.Context(), next.trace); err != nil || tr.Effect == nil {
				t.Errorf("the next call: %+v, %v", tr, err)
			}
			if done := erase(t, db, engine.Erasure{Subject: "nobody"}); !same(done, engine.Erased{}) {
				t.Errorf("of nobody %+v are erased", done)
			}
		})
	}
}

// TestTraceOfASubjectIsErasedOnThisDisk: the key is that of others too, so it stays, and the
// caller is told.
func TestTraceOfASubjectIsErasedOnThisDisk(t *testing.T) {
	ring := &chaintest.Ring{BySubject: true}
	db := open(t, "store", withRing(vfs.NewMem(), ring))
	run(t, db, spec{trace: id(1), subject: "alice"}, spec{trace: id(2), subject: "alice"})
	if done := erase(t, db, engine.Erasure{Traces: []tga.ID{id(1)}}); !same(done, engine.Erased{Traces: 1, Shared: 1}) || len(ring.Destroyed) > 0 {
		t.Errorf("erased %+v, destroyed %v", done, ring.Destroyed)
	}
	wantErased(t, db, spec{trace: id(1), subject: "alice"})
	if tr, err := db.Load(t.Context(), id(2)); err != nil || tr.Request == nil {
		t.Errorf("%+v, %v", tr, err)
	}
}

// TestNoCallIsLostToAnErasure: while a subject is erased its calls go on. Each call is erased
// whole, or refused the erasure, or can be read.
func TestNoCallIsLostToAnErasure(t *testing.T) {
	ring := &chaintest.Ring{BySubject: true}
	db := open(t, "store", withRing(vfs.NewMem(), ring))
	const calls = 60
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range uint64(calls) {
			s := spec{trace: id(n + 1), subject: "alice"}
			m := s.make(t)
			lease, err := db.Acquire(context.Background(), s.trace)
			if err == nil {
				_, err = db.Append(context.Background(), lease, m.begin())
			}
			if err == nil {
				_, err = db.Append(context.Background(), lease, m.end())
			}
			if err != nil {
				t.Errorf("call %d: %v", n, err)
			}
			db.Release(lease)
		}
	}()
	erased := 0
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		out, err := db.Erase(context.Background(), engine.Erasure{Subject: "alice", Who: "operator", Reason: "r"})
		if err != nil && tga.CodeOf(err) != tga.StateInvalidTransition && tga.CodeOf(err) != tga.StateLockAcquireFailed {
			t.Fatal(err)
		}
		if err == nil {
			erased += out.Traces
		}
	}
	gone := 0
	for n := range uint64(calls) {
		tr, err := db.Load(context.Background(), id(n+1))
		if err != nil {
			t.Fatal(err)
		}
		if tr.Effect == nil {
			gone++
			if last := len(tr.Notes); last != 1 || tr.Notes[0].Kind != tga.NoteErased {
				t.Errorf("call %d cannot be read, and was not erased: %+v", n, tr)
			}
		}
	}
	if gone != erased || gone == 0 {
		t.Errorf("%d calls are gone, %d were erased", gone, erased)
	}
}

// subjectUnderWay begins a call of alice, a second one that is held up, and then an erasure of
// alice. When the erasure has come as far as it can, the second call goes on.
func subjectUnderWay(t *testing.T, underway func(db *engine.DB) bool, holdUp func(db *engine.DB, fs *faultFS, s spec) (letGo func())) {
	t.Helper()
	ring := &chaintest.Ring{BySubject: true}
	fs := &faultFS{FS: vfs.NewMem(), log: true}
	db := open(t, "store", withRing(fs, ring))
	run(t, db, spec{trace: id(1), subject: "alice"})
	second := spec{trace: id(2), subject: "alice"}
	lease := acquire(t, db, second.trace)
	letGo := holdUp(db, fs, second)
	appended := make(chan error, 1)
	go func() {
		_, err := db.Append(context.Background(), lease, second.make(t).begin())
		appended <- err
	}()
	until(t, "the call to be under way", func() bool { return underway(db) })
	erased := make(chan error, 1)
	go func() {
		_, err := db.Erase(context.Background(), engine.Erasure{Subject: "alice", Who: "operator", Reason: "r"})
		erased <- err
	}()
	select {
	case err := <-erased:
		t.Errorf("alice was erased beside a call of hers: %v", err)
		erased <- err
	case <-time.After(100 * time.Millisecond): // it waits
	}
	letGo()
	if err := <-appended; err != nil {
		t.Errorf("the call: %v", err)
	}
	wantCode(t, <-erased, tga.StateInvalidTransition)
	if tr, err := db.Load(context.Background(), second.trace); err != nil || tr.Call == nil {
		t.Errorf("the call is lost: %+v, %v", tr, err)
	}
	append_(t, db, lease, second.make(t).end())
}

// TestErasureWaitsForCallsUnderWay: a call whose key was chosen before is found, though it is
// not queued yet, or not durable.
func TestErasureWaitsForCallsUnderWay(t *testing.T) {
	t.Run("not queued", func(t *testing.T) {
		subjectUnderWay(t, func(db *engine.DB) bool { return db.Locked() > 1 }, func(db *engine.DB, _ *faultFS, s spec) func() {
			return db.LockKey(s.ledgerKey().Hash())
		})
	})
	t.Run("not durable", func(t *testing.T) {
		subjectUnderWay(t, func(db *engine.DB) bool { return db.Underway() > 0 }, func(_ *engine.DB, fs *faultFS, _ spec) func() {
			hold := make(chan struct{})
			fs.onSync(func(real func() error) error {
				<-hold
				return real()
			})
			return func() { close(hold) }
		})
	})
}
