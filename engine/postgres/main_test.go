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
	os.Exit(common.Main(m))
}

// common is a server for the tests that do no harm to it. Each takes a shard of its own.
var common = pgserver.Common{Prepare: func(s *pgserver.Server) error { return postgres.Migrate(bg, pgserver.DSN(s)) }}

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
