package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/schemas/tga"
)

var bg = context.Background()

// server starts one that the test may harm.
func server(t testing.TB, set ...string) *pgserver.Server {
	t.Helper()
	s, err := pgserver.New(tempDir(t), set...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(bg); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func TestMigrateCanBeRepeated(t *testing.T) {
	s := server(t)
	for range 3 {
		if err := postgres.Migrate(bg, pgserver.DSN(s)); err != nil {
			t.Fatal(err)
		}
	}
	n, err := s.Query("SELECT count(*)::text FROM pg_inherits WHERE inhparent = 'tgad.entries'::regclass")
	if err != nil || n != "4" {
		t.Errorf("%s partitions of entries, %v; want three months and the rest", n, err)
	}
}

func TestNewerTablesAreRefused(t *testing.T) {
	s := server(t)
	if err := postgres.Migrate(bg, pgserver.DSN(s)); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec("UPDATE tgad.schema SET version = 1000"); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(bg, pgserver.DSN(s)); !errors.Is(err, tga.FormatTooNew) {
		t.Errorf("migrate: %v", err)
	}
}

// TestFunctionsOfACallKeepTheirPlans: a function in SQL is planned each time that it is called. Those that a
// governed call asks for are in plpgsql, which keeps plans.
func TestFunctionsOfACallKeepTheirPlans(t *testing.T) {
	seldom := map[string]bool{"first_trace": true, "newest": true, "resign": true}
	dsn, _ := database(t)
	rows, err := connect(t, dsn).Query(bg, "SELECT p.proname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'tgad'::regnamespace AND l.lanname = 'sql'")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		if !seldom[name] {
			t.Errorf("function %s is in SQL", name)
		}
	}
}

// TestMonthInTheRestStaysThere: nobody has migrated for months, so what belongs to a month lies in the rest. It stays there, and
// the other months get their partitions.
func TestMonthInTheRestStaysThere(t *testing.T) {
	const drop = `SELECT coalesce(string_agg(format('DROP TABLE %s', inhrelid::regclass), '; '), 'SELECT 1') FROM pg_inherits
		WHERE inhparent IN ('tgad.entries'::regclass, 'tgad.notes'::regclass) AND inhrelid::regclass::text !~ '_rest$'`
	const months = `SELECT coalesce(string_agg(right(inhrelid::regclass::text, 7), ' ' ORDER BY inhrelid::regclass::text), '') FROM pg_inherits
		WHERE inhparent = 'tgad.entries'::regclass AND inhrelid::regclass::text !~ '_rest$'`
	const month = "SELECT to_char(date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => $1), 'YYYY_MM')"
	s := migrated(t)
	for _, table := range []string{"entries", "notes"} {
		for lies := range 3 {
			if err := s.Exec(query(t, s, drop), "ALTER TABLE tgad.entries DISABLE TRIGGER USER", "ALTER TABLE tgad.notes DISABLE TRIGGER USER", "DELETE FROM tgad.entries", "DELETE FROM tgad.notes",
				fmt.Sprintf("INSERT INTO tgad.%s VALUES (0, tgad.first_trace(date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + interval '%d months 3 days'), 1, '')", table, lies)); err != nil {
				t.Fatal(err)
			}
			var want []string
			for i := range 3 {
				if i != lies {
					want = append(want, query(t, s, month, i))
				}
			}
			done, err := postgres.MigrateUntil(bg, pgserver.DSN(s), 2)
			if got := query(t, s, months); err != nil || got != strings.Join(want, " ") || strings.ReplaceAll(done.Until, "-", "_") != want[1] {
				t.Errorf("%s of month %d in the rest: %+v, %v, partitions %s, want %v", table, lies, done, err, got, want)
			}
			if n := query(t, s, "SELECT count(*)::text FROM ONLY tgad."+table+"_rest"); n != "1" {
				t.Errorf("%s rows are in the rest", n)
			}
		}
	}
}

// TestNewMonthBesideALongReadHoldsNothingUp: somebody reads the entries for long, as a dump does, while a month gets its partition. Appends
// go on. The month gets its partition once the reader is gone; until then the migration says that it has to be made again.
func TestNewMonthBesideALongReadHoldsNothingUp(t *testing.T) {
	t.Parallel()
	p := migrated(t)
	s := open(t, pgserver.DSN(p), postgres.Options{})
	b := &pgx.Batch{}
	b.Queue("LOCK TABLE tgad.entries IN ACCESS SHARE MODE")
	stopped(t, p, b)
	if err := postgres.Migrate(bg, pgserver.DSN(p)); err != nil {
		t.Errorf("migrate, with every month there: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := postgres.MigrateUntil(bg, pgserver.DSN(p), 4)
		ended <- err
	}()
	until(t, "the migration waits", func() bool {
		return query(t, p, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock')::text") == "true"
	})
	begun(t, s)
	if err := <-ended; tga.CodeOf(err) != tga.StateLockAcquireFailed {
		t.Errorf("migrate: %v", err)
	}
	if err := p.Exec("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LOCK TABLE%'"); err != nil {
		t.Fatal(err)
	}
	if done, err := postgres.MigrateUntil(bg, pgserver.DSN(p), 4); err != nil || done.Until == "" {
		t.Errorf("migrate: %+v, %v", done, err)
	}
}
