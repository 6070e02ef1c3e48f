package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// halfway runs statements in a transaction that is still to commit, then does something that must wait for it.
func halfway(t *testing.T, s *pgserver.Server, what string, do func() error, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(bg, pgserver.DSN(s))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(bg)
	tx, err := conn.Begin(bg)
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range statements {
		if _, err := tx.Exec(bg, st); err != nil {
			t.Fatalf("%s: %v", st, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		t.Errorf("%s does not wait: %v", what, err)
		done <- err
	case <-time.After(300 * time.Millisecond):
	}
	if err := tx.Commit(bg); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// TestFenceWaitsForGrants: a lease is being granted, or a session begins, when the fence is made. The fence waits for it, and
// ends it too.
func TestFenceWaitsForGrants(t *testing.T) {
	x := newMoving(t)
	s := x.bound(x.one)
	x.begun(s)
	x.before(x.there(), "fence")
	known := storetest.NewID()
	session := query(t, x.one, "SELECT max(session)::text FROM tgad.sessions WHERE shard = $1", x.store)
	if err := x.one.Exec(fmt.Sprintf("UPDATE tgad.placements SET state = 'here' WHERE store = %d", x.store), // a new trace is granted too
		fmt.Sprintf("SELECT tgad.acquire(%d, %s, '%s', 4000000000, 1, 0::int2)", x.store, session, known),
		fmt.Sprintf("SELECT tgad.release(%d, %s, ARRAY['%s'::uuid], ARRAY[4000000000])", x.store, session, known)); err != nil {
		t.Fatal(err)
	}
	trace := storetest.NewID()
	halfway(t, x.one, "the fence", func() error { return x.one.Exec(fmt.Sprintf("SELECT tgad.fence(%d, 1, 'two')", x.store)) },
		fmt.Sprintf("SELECT tgad.acquire(%d, %s, '%s', 4000000010, 2, 0::int2)", x.store, session, trace),
		fmt.Sprintf("SELECT tgad.acquire(%d, %s, '%s', 4000000020, 3, 0::int2)", x.store, session, known))
	if n := query(t, x.one, "SELECT count(*)::text FROM tgad.heads WHERE shard = $1 AND trace IN ($2, $3) AND epoch IN (4000000010, 4000000020)", x.store, [16]byte(trace), [16]byte(known)); n != "0" {
		t.Errorf("%s leases that were granted beside the fence stand", n)
	}

	y := newMoving(t)
	y.before(y.there(), "fence")
	halfway(t, y.one, "the fence", func() error { return y.one.Exec(fmt.Sprintf("SELECT tgad.fence(%d, 1, 'two')", y.store)) },
		fmt.Sprintf("SELECT tgad.open_session(%d, 'beside', interval '1 hour')", y.store))
	if n := query(t, y.one, "SELECT count(*)::text FROM tgad.sessions WHERE shard = $1 AND NOT ended", y.store); n != "0" {
		t.Errorf("%s sessions that began beside the fence go on", n)
	}
	if ok := query(t, y.one, "SELECT (until > clock_timestamp() + interval '59 minutes')::text FROM tgad.placements WHERE store = $1", y.store); ok != "true" {
		t.Error("a send under the session that began beside the fence is not waited for")
	}
}

// TestFenceWaitsForAppends: an append is under way, which has the lock of its head, while the fence comes.
func TestFenceWaitsForAppends(t *testing.T) {
	x := newMoving(t)
	b, _ := x.begun(x.bound(x.one))
	x.before(x.there(), "fence")
	halfway(t, x.one, "the fence", func() error { return x.one.Exec(fmt.Sprintf("SELECT tgad.fence(%d, 1, 'two')", x.store)) },
		fmt.Sprintf("SELECT 1 FROM tgad.heads WHERE shard = %d AND trace = '%s' FOR UPDATE", x.store, b.TraceID))
}

// TestLeavingTakesNoNewTrace: a store that is about to move lets calls under way end, and takes no new ones.
func TestLeavingTakesNoNewTrace(t *testing.T) {
	t.Parallel()
	x := newMoving(t)
	s := x.bound(x.one)
	b, lease := x.begun(s)
	x.before(x.there(), "fence")
	if _, err := s.Append(bg, lease, b.End(tga.StatusSuccess)); err != nil {
		t.Errorf("a call under way: %v", err)
	}
	_, err := s.Acquire(bg, storetest.NewID())
	var e *postgres.Elsewhere
	if !errors.As(err, &e) || e.State != postgres.Leaving || tga.CodeOf(err) != tga.StoreUnavailable {
		t.Errorf("a new trace: %v", err)
	}
	if _, err := postgres.StopMoving(bg, quiet, x.there()); err != nil {
		t.Fatal(err)
	}
	x.begun(s)
}

// TestHalfACopyIsNotRead: until the new shard has the store, a process reads from the old shard.
func TestHalfACopyIsNotRead(t *testing.T) {
	t.Parallel()
	x := newMoving(t)
	_, s := x.routed()
	b, _ := x.begun(s)
	x.before(x.there(), "copy")
	until(t, "the process knows that its session is over", func() bool {
		_, left := s.Acquire(canceled(time.Now().Add(50*time.Millisecond)), b.TraceID)
		return left != nil
	})
	time.Sleep(shortLease / 2) // it has looked where the store is
	ctx := canceled(time.Now().Add(shortLease))
	n := 0
	for _, err := range s.Entries(ctx, b.TraceID, 0) {
		if err != nil {
			t.Fatalf("entries: %v", err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d entries", n)
	}
	x.moved(x.there())
}

func canceled(at time.Time) context.Context {
	ctx, cancel := context.WithDeadline(bg, at)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// TestWarningsAreHeardAfterAMove: on the shard to which the store has moved, a commit with a warning is looked after too.
func TestWarningsAreHeardAfterAMove(t *testing.T) {
	x := newMoving(t)
	_, s := x.routed()
	x.moved(x.there())
	b, lease := x.begun(s)
	if err := x.two.Exec(`CREATE FUNCTION tgad.warns() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'not everywhere'; RETURN NEW; END $$`,
		fmt.Sprintf("CREATE TRIGGER warns AFTER INSERT ON tgad.pending FOR EACH ROW WHEN (NEW.shard = %d) EXECUTE FUNCTION tgad.warns()", x.store)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.two.Exec("DROP FUNCTION tgad.warns CASCADE"); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Append(bg, lease, b.End(tga.StatusSuccess)); err != nil {
		t.Error(err)
	}
	if v := query(t, x.two, "SELECT version::text FROM tgad.heads WHERE shard = $1 AND trace = $2", x.store, [16]byte(b.TraceID)); v != "3" {
		t.Errorf("version %s after two appends and a look", v)
	}
}

// TestFenceMustBeDurable: the commit of the fence ended with a warning, as one does that no standby has. The move ends there, and
// goes on once the shard says that it is durable.
func TestFenceMustBeDurable(t *testing.T) {
	x := newMoving(t)
	x.begun(x.bound(x.one))
	x.before(x.there(), "fence")
	const warns = "CREATE OR REPLACE FUNCTION tgad.warns_too() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'not everywhere'; RETURN NEW; END $$"
	if err := x.one.Exec(warns, fmt.Sprintf("CREATE TRIGGER warns_too AFTER UPDATE ON tgad.placements FOR EACH ROW WHEN (NEW.store = %d AND NEW.state = 'gone') EXECUTE FUNCTION tgad.warns_too()", x.store)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.one.Exec("DROP FUNCTION tgad.warns_too CASCADE"); err != nil {
			t.Error(err)
		}
	}()
	if _, err := postgres.Move(bg, quiet, x.there()); !errors.Is(err, tga.StoreUnavailable) {
		t.Errorf("move: %v", err)
	}
	if a, b := x.placed(x.one), x.placed(x.two); a != "two 2 gone" || b != "one 1 arriving" {
		t.Errorf("the shards say %q and %q", a, b)
	}
	x.moved(x.there())
}

// TestShardThatLostAppendsFreezesTheStore: the shard to which a store has moved lacks an append that this process was told is
// durable.
func TestShardThatLostAppendsFreezesTheStore(t *testing.T) {
	t.Parallel()
	x := newMoving(t)
	_, s := x.routed()
	b, _ := x.begun(s)
	x.before(x.there(), "take")
	if err := x.two.Exec(fmt.Sprintf("DELETE FROM tgad.heads WHERE shard = %d AND trace = '%s'", x.store, b.TraceID), fmt.Sprintf("SELECT tgad.take(%d, 1)", x.store)); err != nil {
		t.Fatal(err)
	}
	until(t, "the store is frozen", func() bool { return s.Fleet().Stats().Frozen != "" })
}

// TestNamespaceBeginsInItsStore: a trace begins only in the store of its namespace, also while the namespace is given one.
func TestNamespaceBeginsInItsStore(t *testing.T) {
	x := newMoving(t)
	rest := open(t, pgserver.DSN(x.one), quiet)
	own := x.bound(x.one)
	for _, c := range []struct {
		s         *postgres.Store
		namespace string
		may       bool
	}{
		{rest, "", true}, {rest, "of-nobody", true}, {rest, x.namespace, false},
		{own, x.namespace, true}, {own, "", false}, {own, "of-nobody", false},
	} {
		b := storetest.New(t)
		b.Namespace = c.namespace
		lease, err := c.s.Acquire(bg, b.TraceID)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.s.Append(bg, lease, b.Begin(""))
		if c.may != (err == nil) || !c.may && !errors.Is(err, tga.NotFound) {
			t.Errorf("namespace %q begins in the store of the rest %v: %v", c.namespace, c.s == rest, err)
		}
	}

	used := fmt.Sprint(x.namespace, "-used")
	if _, err := governed(t, rest, &outside{sends: map[string]int{}}).Call(bg, runtime.Request{Namespace: used, Server: "payments", Tool: "charge", Key: used}); err != nil {
		t.Fatal(err)
	}
	_, err := postgres.Place(bg, pgserver.DSN(x.one), quiet, postgres.Placing{Namespace: used, Shard: "two"})
	if !errors.Is(err, tga.ValidationError) {
		t.Errorf("a namespace that has calls is given another store: %v", err)
	}
	numberLeftBehind(t, x.one, rest, used)
	fresh := fmt.Sprint(x.namespace, "-fresh")
	halfway(t, x.one, "place", func() error {
		_, err := postgres.Place(bg, pgserver.DSN(x.one), quiet, postgres.Placing{Namespace: fresh, Shard: "two"})
		return err
	}, fmt.Sprintf("SELECT tgad.serves(0, '%s')", fresh))
	if ok := query(t, x.one, "SELECT tgad.serves(0, $1)::text", fresh); ok != "false" {
		t.Error("the store of the rest still takes the namespace")
	}
	if _, err := postgres.Place(bg, pgserver.DSN(x.one), quiet, postgres.Placing{Namespace: fresh, Shard: "two"}); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := postgres.Place(bg, pgserver.DSN(x.one), quiet, postgres.Placing{Namespace: fresh, Shard: "one"}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("placed on another shard: %v", err)
	}
}

// numberLeftBehind is a namespace that was given a number although it has calls, by a run that was broken off there. The next one
// gives the number back, and calls go on in the store of the rest.
func numberLeftBehind(t *testing.T, one *pgserver.Server, rest *postgres.Store, namespace string) {
	t.Helper()
	if err := one.Exec(fmt.Sprintf("INSERT INTO tgad.namespaces VALUES ('%s', 9999)", namespace)); err != nil {
		t.Fatal(err)
	}
	var err error
	for _, err = range allOf(t, pgserver.DSN(one)).Attachments(runtime.InNamespace(bg, namespace), chain.AttachStream, nil) {
		if err != nil {
			break
		}
	}
	if err == nil {
		t.Error("no shard has the store, and what all others keep is listed as what it keeps")
	}
	if _, err := postgres.Place(bg, pgserver.DSN(one), quiet, postgres.Placing{Namespace: namespace, Shard: "two"}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("place: %v", err)
	}
	if n := query(t, one, "SELECT count(*)::text FROM tgad.namespaces WHERE namespace = $1", namespace); n != "0" {
		t.Error("the namespace has kept the number of a store that is not there")
	}
	if _, err := governed(t, rest, &outside{sends: map[string]int{}}).Call(bg, runtime.Request{Namespace: namespace, Server: "payments", Tool: "charge", Key: "after"}); err != nil {
		t.Errorf("a call: %v", err)
	}
	// Nobody who means such a namespace ends a move of all others.
	if err := one.Exec("UPDATE tgad.placements SET target = 'two' WHERE store = 0"); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.StopMoving(bg, quiet, postgres.Moving{Namespace: namespace, From: pgserver.DSN(one), Lost: true}); !errors.Is(err, tga.ValidationError) {
		t.Errorf("stop: %v", err)
	}
	if to := query(t, one, "SELECT coalesce(target, '') FROM tgad.placements WHERE store = 0"); to != "two" {
		t.Error("the move of the rest was given up")
	}
	if err := one.Exec("UPDATE tgad.placements SET target = NULL WHERE store = 0"); err != nil {
		t.Fatal(err)
	}
}

// TestNumberOfANamespaceMustBeDurable: the standby is lost while a namespace is given a number, and somebody ends each wait for
// it. Then no shard gets a store under the number: a standby without it that is promoted would let calls of the namespace begin in
// the store of the rest.
func TestNumberOfANamespaceMustBeDurable(t *testing.T) {
	t.Parallel()
	one, two := migrated(t), migrated(t)
	for _, a := range []postgres.AddingShard{
		{DSN: pgserver.DSN(one), Name: "one", URL: pgserver.DSN(one)},
		{DSN: pgserver.DSN(two), Name: "two", URL: pgserver.DSN(two), Of: pgserver.DSN(one)},
	} {
		if _, err := postgres.AddShard(bg, quiet, a); err != nil {
			t.Fatal(err)
		}
	}
	place := func() error {
		_, err := postgres.Place(bg, pgserver.DSN(one), quiet, postgres.Placing{Namespace: "n", Shard: "two"})
		return err
	}
	standby := func(name string) {
		if err := one.SyncStandbys(name); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	waiting := func(event string) string {
		return query(t, one, "SELECT count(pg_cancel_backend(CASE WHEN $1 = 'SyncRep' THEN pid END))::text || count(*) FROM pg_stat_activity WHERE wait_event = $1", event)
	}
	// It is connected when it meets the lock, and the standby goes then.
	holder, err := pgx.Connect(bg, pgserver.DSN(one))
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(bg)
	if _, err := holder.Exec(bg, "BEGIN; LOCK TABLE tgad.namespaces IN EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- place() }()
	until(t, "the lock", func() bool { return waiting("relation") == "01" })
	standby("ghost")
	if _, err := holder.Exec(bg, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	until(t, "the end", func() bool {
		waiting("SyncRep")
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})
	if n := query(t, two, "SELECT count(*)::text FROM tgad.placements WHERE store <> 0"); err == nil || n != "0" {
		t.Errorf("%s stores under a number that no standby has: %v", n, err)
	}
	standby("")
	if err := place(); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestOldRoutesAreRefused: a shard takes over the routes of another shard only with a higher epoch, and never becomes an owner by
// them. A shard that was restored to a time before a move learns that it is not the owner.
func TestOldRoutesAreRefused(t *testing.T) {
	x := newMoving(t)
	s := x.bound(x.one)
	x.begun(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	x.moved(x.there())
	for _, c := range []struct {
		server *pgserver.Server
		epoch  int
		owner  string
		takes  bool
	}{
		{x.one, 1, "one", false}, {x.one, 3, "one", false}, {x.one, 2, "three", false},
		{x.two, 1, "one", false}, {x.two, 2, "one", false},
		{x.one, 3, "three", true}, {x.one, 2, "two", false},
	} {
		if got := query(t, c.server, "SELECT tgad.learn($1, $2, $3, false)::text", x.store, c.epoch, c.owner) == "true"; got != c.takes {
			t.Errorf("told that %s has the store, epoch %d: taken %v", c.owner, c.epoch, got)
		}
	}
	if got := x.placed(x.two); got != "two 2 here" {
		t.Errorf("shard two says %q", got)
	}
	for _, change := range []string{"epoch = 1", "state = 'here'", "state = 'leaving'"} {
		if err := x.one.Exec(fmt.Sprintf("UPDATE tgad.placements SET %s WHERE store = %d", change, x.store)); err == nil {
			t.Errorf("%s is taken", change)
		}
	}

	// As a restore to a time before the move leaves it.
	if err := x.one.Exec("ALTER TABLE tgad.placements DISABLE TRIGGER goes_on",
		fmt.Sprintf("UPDATE tgad.placements SET epoch = 1, owner = 'one', state = 'here', target = NULL, until = NULL WHERE store = %d", x.store),
		fmt.Sprintf("UPDATE tgad.sessions SET ended = false, expires = now() + interval '1 hour' WHERE shard = %d", x.store),
		"ALTER TABLE tgad.placements ENABLE TRIGGER goes_on"); err != nil {
		t.Fatal(err)
	}
	all, own := x.routed() // the routes with the higher epoch count
	if r := all.Routes(); r.Placements[x.store].Owner != "two" {
		t.Errorf("the store is taken to be on %+v", r.Placements[x.store])
	}
	x.begun(own)
	x.place(x.namespace+"-next", "two") // whatever is told next tells this too
	if err := x.one.Exec(fmt.Sprintf("SELECT tgad.learn(%d, 2, 'two', false)", x.store)); err != nil {
		t.Fatal(err)
	}
	if got, open := x.placed(x.one), query(t, x.one, "SELECT count(*)::text FROM tgad.sessions WHERE shard = $1 AND NOT ended", x.store); got != "two 2 elsewhere" || open != "0" {
		t.Errorf("the restored shard says %q, and has %s sessions", got, open)
	}
}

// TestFenceStandsBeforeRareChanges: the store is fenced and its copy is being compared. A process that still knows the old shard goes
// off duty, ends a quarantine, and erases a subject. Each is refused, and no row changes.
func TestFenceStandsBeforeRareChanges(t *testing.T) {
	t.Parallel()
	x := newMoving(t)
	path, ring := ringFile(t, true)
	s := open(t, pgserver.DSN(x.one), postgres.Options{Shard: x.store, Lease: time.Second, Keyring: ring(path), Logger: quiet.Logger})
	made(t, s, "alice", x.namespace)
	if err := errors.Join(s.Fleet().Freeze("a checkpoint says so"), s.Fleet().Unfreeze(bg, true, "somebody")); err != nil {
		t.Fatal(err)
	}
	duty := s.Fleet().Duty("some")
	if _, mine, err := duty.Take(bg); err != nil || !mine {
		t.Fatalf("take: %v, %v", mine, err)
	}
	x.before(x.there(), "compare")
	rows := x.rows(x.one)
	_, erased := s.Fleet().Erase(bg, byOperator(chain.Erasure{Namespace: x.namespace, Subject: "alice"}))
	for what, err := range map[string]error{"off duty": duty.Leave(bg), "end of the quarantine": s.Fleet().EndQuarantine(bg, "somebody"), "erasure": erased} {
		if e := new(postgres.Elsewhere); !errors.As(err, &e) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if is := x.rows(x.one); is != rows {
		t.Errorf("the rows are\n%s\nand were\n%s", is, rows)
	}
}
