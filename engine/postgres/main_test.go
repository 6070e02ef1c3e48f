package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(replicaEnv); text != "" {
		if err := replica(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(first.Main(runs(func() int { return second.Main(runs(func() int { return common.Main(m) })) })))
}

// common is a server for the tests that do no harm to it. Each takes a shard of its own.
var common = pgserver.Common{Prepare: func(s *pgserver.Server) error { return postgres.Migrate(bg, pgserver.DSN(s)) }}

// first and second are the shards of a fleet, for the tests that do no harm to them. Each takes a namespace of its own.
var (
	first  = pgserver.Common{Prepare: shard("one", nil)}
	second = pgserver.Common{Prepare: shard("two", &first)}
)

// shard makes a server a shard of the fleet that another one is a shard of.
func shard(name string, of *pgserver.Common) func(*pgserver.Server) error {
	return func(s *pgserver.Server) error {
		a := postgres.AddingShard{DSN: pgserver.DSN(s), Name: name, URL: pgserver.DSN(s)}
		if of != nil {
			other, err := of.Server()
			if err != nil {
				return err
			}
			a.Of = pgserver.DSN(other)
		}
		if err := postgres.Migrate(bg, pgserver.DSN(s)); err != nil {
			return err
		}
		_, err := postgres.AddShard(bg, postgres.Options{}, a)
		return err
	}
}

type runs func() int

// Run is as that of [testing.M].
func (r runs) Run() int { return r() }

var shards atomic.Int32

// database returns a DSN and a shard that nobody else uses.
func database(t testing.TB) (dsn string, shard int32) {
	t.Helper()
	s, err := common.Server()
	if err != nil {
		t.Fatal(err)
	}
	return pgserver.DSN(s), shards.Add(1)
}

// tempDir is a directory for a server that does not exist yet.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := pgserver.Place()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "s")
}
