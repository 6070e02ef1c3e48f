package postgres_test

import (
	"context"
	"errors"
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
