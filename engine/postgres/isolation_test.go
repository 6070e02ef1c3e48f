package postgres_test

import (
	"sync"
	"testing"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
)

// TestIsolationOfTheServerIsNotTaken: the database or the role has another default isolation. A statement that has waited for a lock
// sees all the same what its holder has committed: two namespaces that are placed at the same moment get two stores.
func TestIsolationOfTheServerIsNotTaken(t *testing.T) {
	t.Parallel()
	p := migrated(t, "default_transaction_isolation=repeatable read")
	if _, err := postgres.AddShard(bg, quiet, postgres.AddingShard{DSN: pgserver.DSN(p), Name: "one", URL: pgserver.DSN(p)}); err != nil {
		t.Fatal(err)
	}
	tx, err := connect(t, pgserver.DSN(p)).Begin(bg)
	if err == nil {
		_, err = tx.Exec(bg, "SELECT 1 FROM tgad.fleet FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	var placed sync.WaitGroup
	for _, namespace := range []string{"a", "b"} {
		placed.Go(func() {
			if _, err := postgres.Place(bg, pgserver.DSN(p), quiet, postgres.Placing{Namespace: namespace, Shard: "one"}); err != nil {
				t.Errorf("place %s: %v", namespace, err)
			}
		})
	}
	until(t, "both wait", func() bool {
		return query(t, p, "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%tgad.fleet FOR UPDATE%'") == "2"
	})
	if err := tx.Rollback(bg); err != nil {
		t.Fatal(err)
	}
	placed.Wait()
	if n := query(t, p, "SELECT count(DISTINCT store)::text FROM tgad.namespaces"); n != "2" {
		t.Errorf("the two namespaces have %s stores", n)
	}
}
