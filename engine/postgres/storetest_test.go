package postgres_test

import (
	"testing"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
)

// open opens a store and closes it with the test.
func open(t testing.TB, dsn string, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(bg, dsn, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		dsn, shard := database(t)
		o := postgres.Options{Shard: shard}
		s := open(t, dsn, o)
		return storetest.Harness{Store: s, Reopen: func() runtime.Store {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			s = open(t, dsn, o)
			return s
		}}
	})
}
