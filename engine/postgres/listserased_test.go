package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/internal/search/searchtest"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestErasedNamesLeaveTheLists: from the moment of an erasure on, no query finds a trace by its erased contents. That holds whichever
// process erases, however it reads the database, and whether or not a process maintains the lists. Later no row has the contents.
func TestErasedNamesLeaveTheLists(t *testing.T) {
	t.Parallel()
	const secret = "a-tool-named-after-somebody"
	s := newListed(t, 1)
	s.Some(3)
	has := func() (n int) {
		if err := s.db.QueryRow(bg, "SELECT count(*) FROM tgad.lists WHERE shard = $1 AND tool = $2", s.shard, []byte(secret)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	isolated := func(level string) func(tga.ID) {
		return func(id tga.ID) {
			tx, err := s.db.BeginTx(bg, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
			if err == nil {
				_, err = tx.Exec(bg, "UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2", s.shard, [16]byte(id))
			}
			if err == nil {
				err = tx.Commit(bg)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, do := range map[string]func(id tga.ID){
		"at once":                  func(id tga.ID) { s.erase(id) },
		"of an old state":          isolated("repeatable read"),
		"one by one":               isolated("serializable"),
		"while nobody keeps them":  func(id tga.ID) { s.stop(); s.erase(id) },
		"beside who makes them":    func(id tga.ID) { s.beside(id, "read committed") },
		"of old, beside who makes": func(id tga.ID) { s.beside(id, "repeatable read") },
		"of before the lists":      s.before,
		"then something is added":  s.added,
	} {
		id := s.Add(chaintest.Options{Tool: secret})
		s.caughtUp()
		if has() != 1 {
			t.Fatalf("%s: it was never in the lists", name)
		}
		do(id)
		if page, err := searchtest.Find(bg, s.all[0].lists, search.Query{Tool: secret, Limit: 10}); err != nil || len(page) > 0 {
			t.Errorf("%s: found by what was erased: %v, %v", name, page, err)
		}
		s.stop()
		s.start()
		searchtest.Until(t, name+": no row has it", func() bool { return has() == 0 })
		s.Agrees(search.Query{Tool: secret, Limit: 10}, search.Query{Limit: 100})
	}
}

// beside erases a trace while the lists are made that had none before: the erasure is under way when they are begun.
func (s *listed) beside(id tga.ID, level string) {
	s.Helper()
	s.stop()
	s.removed()
	tx, err := s.db.BeginTx(bg, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
	if err == nil {
		_, err = tx.Exec(bg, "UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2", s.shard, [16]byte(id))
	}
	if err != nil {
		s.Fatal(err)
	}
	s.start()
	time.Sleep(300 * time.Millisecond) // for who would read the trace as it was
	if err := tx.Commit(bg); err != nil {
		s.Fatal(err)
	}
}

// added erases a trace that its process remembers, and appends to it once the lists are those of the log again.
func (s *listed) added(id tga.ID) {
	s.Helper()
	s.erase(id)
	s.caughtUp()
	lease, err := s.Store.Acquire(bg, id)
	if err == nil {
		_, err = s.Store.Append(bg, lease, chain.Batch{Notes: []chain.NewNote{{Kind: tga.NoteLateReply, Who: "test", Body: []byte(`{}`)}}})
		s.Store.Release(lease)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.caughtUp()
}

// before erases a trace in a transaction that sees the database as it was before there were lists.
func (s *listed) before(id tga.ID) {
	s.Helper()
	s.stop()
	s.removed()
	tx, err := s.db.BeginTx(bg, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		_, err = tx.Exec(bg, "SELECT 1 FROM tgad.lists_standing")
	}
	if err != nil {
		s.Fatal(err)
	}
	s.start()
	if _, err := searchtest.Find(bg, s.all[0].lists, search.Query{Limit: 1}); err != nil {
		s.Fatal(err)
	}
	if _, err := tx.Exec(bg, "UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2", s.shard, [16]byte(id)); err != nil {
		s.Fatal(err)
	}
	if err := tx.Commit(bg); err != nil {
		s.Fatal(err)
	}
}

// TestRetiredMonthLeavesTheLists: from the moment at which a month is retired, no query finds a call by the dropped contents. The calls
// of the month stay in the lists.
func TestRetiredMonthLeavesTheLists(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	query(t, p, "SELECT coalesce(tgad.make_partition('2024-03-01')::text, '')")
	s := &listing{Store: open(t, pgserver.DSN(p), postgres.Options{Lease: time.Second})}
	rt := governed(t, s.Store, &outside{sends: map[string]int{}})
	for _, id := range []tga.ID{beganIn(2024, time.March), beganIn(2024, time.March), storetest.NewID()} {
		if _, err := rt.Call(bg, runtime.Request{TraceID: id, Server: "payments", Tool: "charge", Key: id.String()}); err != nil {
			t.Fatal(err)
		}
	}
	s.keep()
	t.Cleanup(func() { s.stop() })
	find := func(q search.Query) int {
		t.Helper()
		q.Limit = 10
		page, err := searchtest.Find(bg, s.lists, q)
		if err != nil {
			t.Fatal(err)
		}
		return len(page)
	}
	if n := find(search.Query{Tool: "charge"}); n != 3 {
		t.Fatalf("%d calls", n)
	}
	for _, kept := range []bool{false, true} { // at once, and then by its rows
		if !kept {
			s.stop()
			if done, err := postgres.Retire(bg, pgserver.DSN(p), postgres.Options{}, postgres.Retiring{Year: 2024, Month: time.March, Archive: all}); err != nil || done.Traces != 2 {
				t.Fatalf("%+v, %v", done, err)
			}
		} else {
			s.keep()
			searchtest.Until(t, "all are looked at", func() bool { return query(t, p, "SELECT count(*)::text FROM tgad.lists_again") == "0" })
		}
		for what, n := range map[string]int{"tool": find(search.Query{Tool: "charge"}), "class": find(search.Query{Class: ledger.ClassCommitted})} {
			if n != 1 {
				t.Errorf("by %s, the lists are kept: %v: %d calls, want 1", what, kept, n)
			}
		}
		if n := find(search.Query{States: []tga.State{tga.Completed}}); n != 3 {
			t.Errorf("the lists are kept: %v: %d calls, want 3", kept, n)
		}
	}
}
