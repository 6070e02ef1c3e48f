package engine_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// The rule under the key's lock, for a second trace that wants a used key.
func TestLedgerRule(t *testing.T) {
	first := spec{trace: id(1), key: "k"}
	with := func(s spec, change func(*spec)) spec { change(&s); return s }
	settled := func(status, class, code string) func(testing.TB, *engine.DB) {
		return func(t testing.TB, db *engine.DB) {
			run(t, db, with(first, func(s *spec) { s.status, s.class, s.code = status, class, code }))
		}
	}
	reserved := func(t testing.TB, db *engine.DB) {
		lease := acquire(t, db, first.trace)
		append_(t, db, lease, first.make(t).begin())
	}
	none := func(testing.TB, *engine.DB) {}
	both := func(m made) chain.Batch { return m.batch(m.request, m.decision, m.call, m.effect) }
	begin := made.begin
	for _, c := range []struct {
		name   string
		before func(testing.TB, *engine.DB)
		second func(*spec)
		batch  func(made) chain.Batch
		code   tga.Code // "" = committed
		names  bool     // the error names the first trace
	}{
		{"free key", none, func(*spec) {}, begin, "", false},
		{"other request, reserved", reserved, func(s *spec) { s.args = `{"amount":13}` }, begin, tga.IdempotencyKeyConflict, true},
		{"other request, settled", settled("", "", ""), func(s *spec) { s.args = `{"amount":13}` }, begin, tga.IdempotencyKeyConflict, true},
		{"reserved", reserved, func(*spec) {}, begin, tga.IdempotencyKeyInFlight, true},
		{"settled", settled("", "", ""), func(*spec) {}, begin, tga.IdempotencyKeyInFlight, true},
		{"other namespace", settled("", "", ""), func(s *spec) { s.namespace = "other" }, begin, "", false},
		{"retryable, not asked", settled("ERROR", "retryable_failure", ""), func(*spec) {}, begin, tga.IdempotencyKeyInFlight, true},
		{"retryable, retry of it", settled("ERROR", "retryable_failure", ""), func(s *spec) { s.retryOf = id(1) }, begin, "", false},
		{"retryable, retry of another", settled("ERROR", "retryable_failure", ""), func(s *spec) { s.retryOf = id(8) }, begin, tga.IdempotencyKeyInFlight, true},
		{"permanent, retry of it", settled("ERROR", "permanent_failure", ""), func(s *spec) { s.retryOf = id(1) }, begin, tga.IdempotencyKeyInFlight, true},
		{"abandoned", settled("ERROR", "permanent_failure", "EFFECT_IN_DOUBT"), func(s *spec) { s.retryOf = id(1) }, begin, tga.EffectInDoubt, true},

		{"served", settled("", "", ""), func(s *spec) { s.attempt, s.replayed = "none", id(1) }, both, "", false},
		{"served, other status", settled("FAILURE", "", ""), func(s *spec) { s.attempt, s.replayed = "none", id(1) }, both, tga.StateInvalidTransition, false},
		{"served from another trace", settled("", "", ""), func(s *spec) { s.attempt, s.replayed = "none", id(8) }, both, tga.StateInvalidTransition, false},
		{"served, other request", settled("", "", ""), func(s *spec) { s.attempt, s.replayed, s.args = "none", id(1), `{"amount":13}` }, both, tga.StateInvalidTransition, false},
		{"served, not settled", reserved, func(s *spec) { s.attempt, s.replayed = "none", id(1) }, both, tga.StateInvalidTransition, false},
		{"served, no record", none, func(s *spec) { s.attempt, s.replayed = "none", id(1) }, both, tga.StateInvalidTransition, false},
		{"invented success", settled("", "", ""), func(s *spec) { s.attempt = "none" }, both, tga.StateInvalidTransition, false},
		{"refusal of its own", settled("", "", ""), func(s *spec) { s.attempt, s.status, s.code = "none", "ERROR", "CIRCUIT_OPEN" }, both, "", false},
		{"never sent, no effect", none, func(s *spec) { s.attempt = "none" }, begin, tga.StateInvalidTransition, false},
		{"sent and effect at once", none, func(s *spec) {}, both, tga.StateInvalidTransition, false},
		{"apart and effect at once", none, func(s *spec) { s.attempt = "apart" }, both, tga.StateInvalidTransition, false},
		{"unknown attempt", none, func(s *spec) { s.attempt = "later" }, begin, tga.ValidationError, false},
		{"external without permit", none, func(s *spec) { s.attempt = "external" }, begin, tga.ValidationError, false},
		{"external", none, func(s *spec) { s.attempt, s.permit = "external", tga.Sum(nil).String() }, begin, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := mem(t)
			c.before(t, db)
			second := spec{trace: id(2), key: "k"}
			c.second(&second)
			m := second.make(t)
			lease := acquire(t, db, second.trace)
			before := db.Dump()
			recordBefore, err := db.Record(context.Background(), second.ledgerKey())
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.Append(context.Background(), lease, c.batch(m))
			wantCode(t, err, c.code)
			if c.code != "" && !maps.Equal(before, db.Dump()) {
				t.Error("a refused append changed the store")
			}
			var e *tga.Error
			if c.names && (!errors.As(err, &e) || e.TraceID != first.trace) {
				t.Errorf("error %v does not name the first trace", err)
			}
			recordAfter, err := db.Record(context.Background(), second.ledgerKey())
			if err != nil {
				t.Fatal(err)
			}
			if second.attempt == "none" && c.code == "" && recordBefore != nil && *recordBefore != *recordAfter {
				t.Errorf("a call never sent changed the record to %+v", recordAfter)
			}
		})
	}
}

// Attempts sent apart are notes; each changes the record in its own append.
func TestAttemptNotesAreTheRecord(t *testing.T) {
	db := mem(t)
	ctx := context.Background()
	s := spec{trace: id(1), attempt: "apart"}
	m := s.make(t)
	lease := acquire(t, db, s.trace)
	mark := func(n uint32, epoch chain.Epoch) chain.NewNote {
		return chain.NewNote{Kind: tga.NoteAttempt, Who: "tgad", Body: ledger.Mark{Attempt: n, Epoch: uint64(epoch)}.Body()}
	}
	notSent := func(n uint32) chain.NewNote {
		return chain.NewNote{Kind: tga.NoteNotSent, Who: "tgad", Body: ledger.NotSent{Attempt: n, Reason: "dial"}.Body()}
	}
	steps := []struct {
		name          string
		batch         chain.Batch
		code          tga.Code
		count, unsent uint32
	}{
		{"attempt before the call", chain.Batch{Artifacts: m.batch(m.request).Artifacts, Notes: []chain.NewNote{mark(1, lease.Epoch)}}, tga.StateInvalidTransition, 0, 0},
		{"begin", m.begin(), "", 0, 0},
		{"old epoch", chain.Batch{Notes: []chain.NewNote{mark(1, lease.Epoch-1)}}, tga.StateConcurrentExecution, 0, 0},
		{"second first", chain.Batch{Notes: []chain.NewNote{mark(2, lease.Epoch)}}, tga.StateSequenceGap, 0, 0},
		{"first", chain.Batch{Notes: []chain.NewNote{mark(1, lease.Epoch)}}, "", 1, 0},
		{"not sent", chain.Batch{Notes: []chain.NewNote{notSent(1)}}, "", 1, 1},
		{"not sent twice", chain.Batch{Notes: []chain.NewNote{notSent(1)}}, tga.StateInvalidTransition, 1, 1},
		{"second", chain.Batch{Notes: []chain.NewNote{mark(2, lease.Epoch)}}, "", 2, 1},
		{"end", m.end(), "", 2, 1},
		{"after the end", chain.Batch{Notes: []chain.NewNote{mark(3, lease.Epoch)}}, tga.StateInvalidTransition, 2, 1},
	}
	for _, step := range steps {
		before := db.Dump()
		_, err := db.Append(ctx, lease, step.batch)
		wantCode(t, err, step.code)
		if step.code != "" && !maps.Equal(before, db.Dump()) {
			t.Errorf("%s: a refused append changed the store", step.name)
		}
		rec, err := db.Record(ctx, s.ledgerKey())
		if err != nil {
			t.Fatal(err)
		}
		if rec != nil && (rec.Attempts.Count != step.count || rec.Attempts.Unsent != step.unsent) {
			t.Errorf("%s: %+v", step.name, rec.Attempts)
		}
		check(t, db)
	}
}

// Many traces try to reserve one key at the same time; exactly one gets it.
func TestOneReservationAmongRacers(t *testing.T) {
	db := mem(t)
	for round := range uint64(20) {
		var won, refused atomic.Int32
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for i := range uint64(16) {
			s := spec{trace: id(1 + round*100 + i), key: "k" + id(round).String()}
			m := s.make(t)
			lease := acquire(t, db, s.trace)
			wg.Go(func() {
				<-gate
				_, err := db.Append(context.Background(), lease, m.begin())
				switch {
				case err == nil:
					won.Add(1)
				case tga.CodeOf(err) == tga.IdempotencyKeyInFlight:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		close(gate)
		wg.Wait()
		if won.Load() != 1 || refused.Load() != 15 {
			t.Errorf("%d reserved the key, %d were refused", won.Load(), refused.Load())
		}
	}
}
