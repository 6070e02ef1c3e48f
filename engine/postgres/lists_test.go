package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/search"
	"github.com/tgad/tgad/internal/search/searchtest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// listing is a process with a store and its lists.
type listing struct {
	*postgres.Store
	lists *postgres.Lists
	stop  func() // ends keeping
}

func (p *listing) keep() {
	ctx, cancel := context.WithCancel(bg)
	var over sync.WaitGroup
	p.lists = p.Fleet().Lists()
	over.Go(func() { p.lists.Run(ctx) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		over.Wait()
	})
}

// listed is a store with lists, and the processes that have it.
type listed struct {
	searchtest.Stand
	dsn   string
	shard int32
	db    *pgx.Conn
	all   []*listing
}

func newListed(t *testing.T, processes int) *listed {
	s := &listed{}
	s.dsn, s.shard = database(t)
	s.db = connect(t, s.dsn)
	s.Stand = searchtest.Stand{T: t, Now: searchtest.Start, Each: 12, Limits: []int{3, 1000}, Stored: s.log, Lists: func() (all []search.Lists) {
		for _, p := range s.all {
			all = append(all, p.lists)
		}
		return all
	}}
	for range processes {
		p := &listing{Store: open(t, s.dsn, postgres.Options{Shard: s.shard, Lease: time.Second, Clock: func() time.Time { return s.Now.Time() }, MaxSkew: -1})}
		p.keep()
		t.Cleanup(func() { p.stop() })
		s.all = append(s.all, p)
	}
	if len(s.all) > 0 {
		s.Store = s.all[0]
	}
	return s
}

// log reads the log as a process does that remembers nothing.
func (s *listed) log() (all []*chain.Trace) {
	s.Helper()
	fresh, err := postgres.Open(bg, s.dsn, postgres.Options{Shard: s.shard})
	if err != nil {
		s.Fatal(err)
	}
	defer fresh.Close()
	for l, err := range fresh.Fleet().Traces(bg, tga.ID{}) {
		if err == nil {
			err = l.Err
		}
		if err != nil {
			s.Fatal(err)
		}
		t, err := fresh.Load(bg, l.TraceID)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, t)
	}
	return all
}

func (s *listed) exec(statement string, args ...any) {
	s.Helper()
	if _, err := s.db.Exec(bg, statement, args...); err != nil {
		s.Fatalf("%s: %v", statement, err)
	}
}

// spoil changes how far the lists say that they are. Who keeps them finds it when it writes again.
func (s *listed) spoil(set string) {
	s.Helper()
	s.exec("UPDATE tgad.lists_standing SET version = version + 1, "+set+" WHERE shard = $1", s.shard)
}

// erase erases what entries of traces carry, as who has the role for it does.
func (s *listed) erase(ids ...tga.ID) {
	s.Helper()
	for _, id := range ids {
		s.exec("UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2", s.shard, [16]byte(id))
	}
}

func (s *listed) stop() {
	for _, p := range s.all {
		p.stop()
	}
}

func (s *listed) start() {
	for _, p := range s.all {
		p.keep()
	}
}

// caughtUp waits until the lists have everything.
func (s *listed) caughtUp() {
	s.Helper()
	searchtest.Until(s, "the lists have everything", func() bool {
		_, err := searchtest.Find(bg, s.all[0].lists, search.Query{Tool: "x", Limit: 1})
		var behind bool
		if err == nil {
			err = s.db.QueryRow(bg, `SELECT EXISTS (SELECT 1 FROM tgad.pending WHERE shard = $1) OR EXISTS (SELECT 1 FROM tgad.lists_again WHERE shard = $1)
				OR (SELECT position FROM tgad.lists_standing WHERE shard = $1) IS DISTINCT FROM (SELECT last FROM tgad.order_state WHERE shard = $1)`, s.shard).Scan(&behind)
		}
		if err != nil {
			s.Fatal(err)
		}
		return !behind
	})
}

// copied copies the lists, and returns a function that restores the copy, as if a killed server had lost the later changes.
func (s *listed) copied() (back func()) {
	s.caughtUp()
	for _, table := range []string{"lists", "lists_standing"} {
		s.exec(fmt.Sprintf("CREATE TEMP TABLE old_%s AS SELECT * FROM tgad.%s WHERE shard = %d", table, table, s.shard))
	}
	return func() {
		tx, err := s.db.Begin(bg)
		if err != nil {
			s.Fatal(err)
		}
		defer tx.Rollback(bg)
		for _, table := range []string{"lists_standing", "lists"} {
			for _, statement := range []string{"DELETE FROM tgad.%[1]s WHERE shard = %[2]d", "INSERT INTO tgad.%[1]s SELECT * FROM old_%[1]s", "DROP TABLE old_%[1]s"} {
				if _, err := tx.Exec(bg, fmt.Sprintf(statement, table, s.shard)); err != nil {
					s.Fatal(err)
				}
			}
		}
		if err := tx.Commit(bg); err != nil {
			s.Fatal(err)
		}
	}
}

// TestListsAreAFunctionOfTheLog: whatever happens to the lists, to the process that maintains them and to the store, every process
// gets lists that agree with the log.
func TestListsAreAFunctionOfTheLog(t *testing.T) {
	t.Parallel()
	s := newListed(t, 2)
	do := func(f func()) func(*searchtest.Stand, []tga.ID) { return func(*searchtest.Stand, []tga.ID) { f() } }
	searchtest.FunctionOfTheLog(&s.Stand, []searchtest.Step{
		{Name: "no process keeps them for a while", Do: do(func() { s.stop(); s.Some(8); s.start() })},
		{Name: "another process keeps them", Do: do(func() {
			s.all[0].stop()
			s.Agrees(search.Query{Limit: 1000})
			s.all[0].keep()
			s.all[1].stop()
			s.Some(3)
			s.all[1].keep()
		})},
		{Name: "the session of who keeps them is over", Do: do(func() {
			s.caughtUp()
			late(t, s.dsn, s.shard, "lists")
			s.Some(3)
			// Its process may have gone off duty before another one ended it. It renews what ends at once, without end.
			s.exec("UPDATE tgad.sessions SET ended = true WHERE shard = $1 AND lease = '0'", s.shard)
		})},
		{Name: "rows are lost", Do: do(func() {
			s.spoil("position = NULL")
			s.exec("DELETE FROM tgad.lists WHERE shard = $1 AND state = 4", s.shard)
		})},
		{Name: "all are lost", Do: do(func() {
			s.exec("DELETE FROM tgad.lists_standing WHERE shard = $1", s.shard)
			s.exec("DELETE FROM tgad.lists WHERE shard = $1", s.shard)
			s.Some(1)
		})},
		{Name: "they are of another store", Do: do(func() {
			s.exec("UPDATE tgad.lists SET tool = 'charge', since = since + 1 WHERE shard = $1", s.shard)
			s.spoil("leaf = 'another'")
			s.Some(1)
		})},
		{Name: "they are ahead of the store", Do: do(func() {
			s.exec("UPDATE tgad.lists SET tool = 'charge', since = since + 1 WHERE shard = $1", s.shard)
			s.spoil("position = position + 1000")
			s.Some(1)
		})},
		{Name: "they are of an older program", Do: do(func() {
			s.exec("UPDATE tgad.lists SET tool = 'charge', since = since + 1 WHERE shard = $1", s.shard)
			s.spoil("format = 0")
			s.Some(1)
		})},
		{Name: "the server forgot the newest rows", Do: do(func() { back := s.copied(); s.Some(6); s.caughtUp(); back(); s.Some(1) })},
		{Name: "the server forgot rows while who keeps them stood", Do: do(func() {
			back := s.copied()
			s.Some(6)
			s.caughtUp()
			s.stop()
			back()
			s.start()
		})},
		{Name: "an erasure", Do: func(_ *searchtest.Stand, finished []tga.ID) { s.erase(finished[0]) }},
		{Name: "an erasure of part of a trace", Do: func(_ *searchtest.Stand, finished []tga.ID) {
			s.exec("UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2 AND seq = 4", s.shard, [16]byte(finished[1]))
		}},
		{Name: "an erasure while nobody keeps them", Do: func(_ *searchtest.Stand, finished []tga.ID) {
			s.caughtUp()
			s.stop()
			s.erase(finished[2:4]...)
			s.start()
		}},
		{Name: "a whole erasure", Do: func(_ *searchtest.Stand, finished []tga.ID) { s.erase(finished...) }},
		{Name: "they are removed", Do: do(func() { s.stop(); s.removed(); s.start() })},
	}...)
}

// removed has a process that does not ask for lists remove them.
func (s *listed) removed() {
	s.Helper()
	if err := s.all[len(s.all)-1].Fleet().RemoveLists(bg); err != nil {
		s.Fatal(err)
	}
	for _, table := range []string{"lists", "lists_standing", "lists_again"} {
		var n int
		if err := s.db.QueryRow(bg, "SELECT count(*) FROM tgad."+table+" WHERE shard = $1", s.shard).Scan(&n); err != nil || n > 0 {
			s.Errorf("%d rows are left in %s, %v", n, table, err)
		}
	}
}

// TestListsThatAreKeptAreNotRemoved by a process that asks for none.
func TestListsThatAreKeptAreNotRemoved(t *testing.T) {
	t.Parallel()
	s := newListed(t, 2)
	s.Some(3)
	s.caughtUp()
	s.all[1].stop()
	s.caughtUp()
	ctx, cancel := context.WithTimeout(bg, time.Second)
	defer cancel()
	if err := s.all[1].Fleet().RemoveLists(ctx); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	s.Agrees(search.Query{Limit: 100})
	s.all[0].stop()
	s.removed()
}

// TestListHasWhatWasAppendedBefore, whichever process is asked: also what has no number of the order yet.
func TestListHasWhatWasAppendedBefore(t *testing.T) {
	t.Parallel()
	s := newListed(t, 2)
	s.caughtUp()
	for range 4 {
		for i, p := range s.all {
			id := s.Add(chaintest.Options{Entries: 1})
			if page, err := p.lists.Find(bg, search.Query{Limit: 1}); err != nil || len(page) != 1 || page[0].Trace != id {
				t.Errorf("process %d: %v, %v, want %s", i, page, err, id)
			}
		}
	}
}

// TestListsTakeALongNamespace: an index of PostgreSQL has no row for it, and the lists must not stop at it for ever.
func TestListsTakeALongNamespace(t *testing.T) {
	t.Parallel()
	s := newListed(t, 1)
	long := make([]byte, 9000) // which PostgreSQL cannot make much smaller
	for i := range long {
		long[i] = byte(' ' + rand.IntN(90))
	}
	for _, namespace := range []string{string(long), string(long[:1024])} {
		s.Add(chaintest.Options{Meta: tga.Meta{tga.MetaNamespace: namespace}})
		s.Some(2)
		s.Agrees(search.Query{Limit: 100}, search.Query{Namespace: namespace, Limit: 100})
	}
}

// TestNamespaceWithAZeroByteIsRefused: PostgreSQL has no such text. The caller must not try it again for ever.
func TestNamespaceWithAZeroByteIsRefused(t *testing.T) {
	t.Parallel()
	dsn, shard := database(t)
	s := open(t, dsn, postgres.Options{Shard: shard})
	lease, err := s.Acquire(bg, chaintest.ID(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	request := chaintest.Artifacts(chaintest.Options{Seed: 1, Meta: tga.Meta{tga.MetaNamespace: "a\x00b"}})[0]
	if _, err := s.Append(bg, lease, chain.Batch{Artifacts: []chain.NewArtifact{{Artifact: request}}}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("error %v", err)
	}
}

// TestListsOfANewerProgramAreLeft: a process of an older version neither reads nor replaces them.
func TestListsOfANewerProgramAreLeft(t *testing.T) {
	t.Parallel()
	s := newListed(t, 1)
	s.Some(2)
	s.caughtUp()
	s.spoil("format = 1000")
	s.Some(1)
	searchtest.Until(t, "it says so", func() bool {
		_, err := s.all[0].lists.Find(bg, search.Query{Limit: 1})
		return tga.CodeOf(err) == tga.StoreUnavailable
	})
	time.Sleep(500 * time.Millisecond)
	var format int
	if err := s.db.QueryRow(bg, "SELECT format FROM tgad.lists_standing WHERE shard = $1", s.shard).Scan(&format); err != nil || format != 1000 {
		t.Errorf("an older program has replaced them: format %d, %v", format, err)
	}
	if mine := taken(t, s.all[0].Fleet().Duty("lists")); mine != "" {
		t.Errorf("kept %q", mine)
	}
}

// TestHalfListsAreNotShown: lists are not shown while they are being made, because they would lack traces.
func TestHalfListsAreNotShown(t *testing.T) {
	t.Parallel()
	s := newListed(t, 1)
	s.Some(3)
	s.caughtUp()
	s.stop()
	s.spoil("position = NULL")
	if page, err := s.all[0].lists.Find(bg, search.Query{Limit: 1}); tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("%v, %v, want %s", page, err, tga.StoreUnavailable)
	}
}

// TestListsAreMadeWhereTheStoreComes: on the shard to which a store moves the lists are made of its log. Where the store was there
// before they go on, without what was erased meanwhile.
func TestListsAreMadeWhereTheStoreComes(t *testing.T) {
	t.Parallel()
	x := newMoving(t)
	tools := &outside{sends: map[string]int{}}
	s := x.bound(x.one)
	x.fill(s, tools, "a", "b")
	kept := func(s *postgres.Store) (*postgres.Lists, func()) {
		p := &listing{Store: s}
		p.keep()
		t.Cleanup(func() { p.stop() })
		return p.lists, p.stop
	}
	agrees := func(s *postgres.Store, lists *postgres.Lists) (page []search.Mark) {
		t.Helper()
		n, tool := 0, search.Query{Tool: "charge", Limit: 100}
		for l, err := range s.Fleet().Traces(bg, tga.ID{}) {
			if err != nil || l.Err != nil {
				t.Fatal(err, l.Err)
			}
			if l.Tool == tool.Tool {
				n++
			}
		}
		page, err := searchtest.Find(bg, lists, tool)
		if err != nil || len(page) != n {
			t.Fatalf("%d of %d, %v", len(page), n, err)
		}
		return page
	}
	lists, stop := kept(s)
	erased := agrees(s, lists)[1].Trace // a finished one: the newest call has only begun
	stop()
	x.moved(x.there())
	there := x.bound(x.two)
	lists, stop = kept(there)
	agrees(there, lists)
	if _, err := connect(t, pgserver.DSN(x.two)).Exec(bg, "UPDATE tgad.entries SET parts = NULL, spill = NULL WHERE shard = $1 AND trace = $2", x.store, [16]byte(erased)); err != nil {
		t.Fatal(err)
	}
	stop()
	x.moved(x.back())
	back := x.bound(x.one)
	lists, _ = kept(back)
	for _, m := range agrees(back, lists) {
		if m.Trace == erased {
			t.Error("it is found by what was erased on the other shard")
		}
	}
}

// TestListsOfHalfACopyAreNotMade: no lists are made of an incomplete copy, because it has appends whose traces are not copied yet.
func TestListsOfHalfACopyAreNotMade(t *testing.T) {
	t.Parallel()
	s := newListed(t, 0)
	s.exec("INSERT INTO tgad.meta VALUES ($1, 'copying', 'another')", s.shard)
	p := &listing{Store: open(t, s.dsn, postgres.Options{Shard: s.shard, Lease: time.Second})}
	p.keep()
	time.Sleep(500 * time.Millisecond)
	p.stop()
	var made bool
	if err := s.db.QueryRow(bg, "SELECT EXISTS (SELECT 1 FROM tgad.lists_standing WHERE shard = $1)", s.shard).Scan(&made); err != nil || made {
		t.Errorf("made: %v, %v", made, err)
	}
}

// TestListWaitsForNoStandby: no process keeps the lists, no standby is there, and a commit with a notification waits for one, as numbers
// of the order do. Other notifications wait for that commit. A list is behind, asks for the lists in vain, and is answered with what
// there is, as with a standby.
func TestListWaitsForNoStandby(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	a := &listing{Store: open(t, pgserver.DSN(p), postgres.Options{Lease: time.Second, Logger: quiet.Logger})}
	a.keep()
	begun(t, a.Store)
	find := func() (int, error) {
		ctx, cancel := context.WithTimeout(bg, 20*time.Second)
		defer cancel()
		page, err := a.lists.Find(ctx, search.Query{Limit: 10})
		return len(page), err
	}
	until(t, "the lists", func() bool { n, err := find(); return err == nil && n == 1 })
	a.stop()
	begun(t, a.Store)
	until(t, "the number of the append", func() bool { return query(t, p, "SELECT last::text FROM tgad.order_state") == "2" })
	var connected sync.WaitGroup
	for range 8 { // a new connection would wait for the standby
		connected.Go(func() { _, _ = find() })
	}
	connected.Wait()
	standby := func(name string) {
		if err := p.SyncStandbys(name); err != nil {
			t.Fatal(err)
		}
	}
	notifier, waits := connect(t, pgserver.DSN(p)), make(chan error, 1)
	standby("ghost")
	defer func() {
		standby("")
		if err := <-waits; err != nil {
			t.Error(err)
		}
	}()
	go func() {
		_, err := notifier.Exec(bg, "SELECT pg_logical_emit_message(true, 'x', ''), pg_notify('x', '')")
		waits <- err
	}()
	until(t, "the wait for a standby", func() bool {
		return query(t, p, "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
	})
	for range 3 {
		if n, err := find(); err != nil || n != 1 {
			t.Errorf("%d calls, %v", n, err)
		}
	}
	if n := query(t, p, "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE 'SELECT pg_notify%' AND state = 'active'"); n > "1" {
		t.Errorf("%s connections wait to ask for the lists", n)
	}
}
