package postgres_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/sealrules/sealtest"
	"github.com/tgad/tgad/wal/chain"
)

func TestSealedStore(t *testing.T) {
	sealtest.Run(t, func(t *testing.T) sealtest.Harness {
		dsn, shard := database(t)
		return sealtest.Harness{
			Open: func(ring chain.Keyring) (sealtest.Store, error) {
				s, err := postgres.Open(bg, dsn, postgres.Options{Shard: shard, Keyring: ring})
				if err != nil {
					return nil, err
				}
				return both{s, s.Fleet()}, nil
			},
			Has:   func(text string) []string { return rowsWith(t, dsn, shard, text) },
			Check: func(s sealtest.Store) { checked(t, s.(both).Store) },
		}
	})
}

// both is a store with what its processes can.
type both struct {
	*postgres.Store
	postgres.Fleet
}

// checked fails the test where a store disagrees with itself.
func checked(t testing.TB, s *postgres.Store) postgres.Report {
	t.Helper()
	rep, err := s.Fleet().Check(bg)
	if err != nil || len(rep.Problems) > 0 {
		t.Errorf("check: %+v, %v", rep, err)
	}
	return rep
}

// rowsWith lists the rows of a store in which a text stands, in any table.
func rowsWith(t testing.TB, dsn string, shard int32, text string) (found []string) {
	t.Helper()
	conn := connect(t, dsn)
	rows, err := conn.Query(bg, "SELECT table_name::text FROM information_schema.columns WHERE table_schema = 'tgad' AND column_name = 'shard' ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 15 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		if strings.HasPrefix(table, "entries_") || strings.HasPrefix(table, "notes_") {
			continue // partitions
		}
		n := 0
		if err := conn.QueryRow(bg, fmt.Sprintf("SELECT count(*) FROM tgad.%s t WHERE shard = $1 AND (strpos(t::text, $2) > 0 OR strpos(t::text, $3) > 0)", table),
			shard, hex.EncodeToString([]byte(text)), strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "?")).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("%d rows of %s", n, table))
		}
	}
	return found
}
