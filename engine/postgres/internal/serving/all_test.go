package serving_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/engine/postgres/internal/serving"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
)

// TestAllStoresTellOfEach: what one store of a fleet tells of itself is told by all stores together, also where it is not the
// store of the namespaces without one of their own: a quarantine, and traces whose keys are not available.
func TestAllStoresTellOfEach(t *testing.T) {
	s := newServer(t)
	dsn, ring := pgserver.DSN(s), new(chaintest.Ring)
	o := postgres.Options{Logger: slog.New(slog.DiscardHandler), Keyring: ring}
	if _, err := postgres.AddShard(t.Context(), o, postgres.AddingShard{DSN: dsn, Name: "one", URL: dsn}); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Place(t.Context(), dsn, o, postgres.Placing{Namespace: "x", Shard: "one"}); err != nil {
		t.Fatal(err)
	}
	shards, err := postgres.OpenShards(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	stores, err := shards.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stores.Close(); err != nil {
			t.Error(err)
		}
	}()
	x, err := shards.Store(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	b := storetest.New(t)
	b.Namespace = "x"
	lease, err := x.Acquire(t.Context(), b.TraceID)
	if err == nil {
		_, err = x.Append(t.Context(), lease, b.Begin(""))
	}
	if err != nil {
		t.Fatal(err)
	}
	tr, err := x.Load(t.Context(), b.TraceID)
	if err != nil {
		t.Fatal(err)
	}
	all := serving.All(stores)
	if got := all.Stats(); got.Quarantine != nil {
		t.Errorf("in quarantine: %+v", got.Quarantine)
	}
	if err := x.Fleet().Freeze("a reason"); err != nil {
		t.Fatal(err)
	}
	if err := x.Fleet().Unfreeze(t.Context(), true, "somebody"); err != nil {
		t.Fatal(err)
	}
	if got := all.Stats().Quarantine; got == nil || !strings.Contains(got.Reason, "a reason") {
		t.Errorf("in quarantine: %+v", got)
	}
	ring.Lose(tr.Key)
	if rep, err := all.Check(t.Context()); err != nil || rep.Unread != 1 {
		t.Errorf("checked: %+v, %v", rep, err)
	}
	ring.Lose(0)
	if rep, err := all.Check(t.Context()); tga.CodeOf(err) != "" || rep.Unread != 0 || len(rep.Problems) > 0 {
		t.Errorf("checked with all keys: %+v, %v", rep, err)
	}
}
