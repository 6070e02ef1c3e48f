package serving_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/engine/postgres/internal/serving"
	"github.com/tgad/tgad/internal/chaintest"
	"github.com/tgad/tgad/internal/search"
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

// TestAllStoresSayWhatIsMissing: a shard is away when a daemon of all stores starts. What it says of all of them is refused: without
// that shard it would look whole, and a store that nobody has looked at would count as verified.
func TestAllStoresSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	one, two := twoShards(t)
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	shards, err := postgres.OpenShards(t.Context(), pgserver.DSN(one), postgres.Options{Patience: time.Second, Logger: slog.New(slog.DiscardHandler)})
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
	all := serving.All(stores)
	_, verified := all.Check(t.Context())
	var listed error
	for _, err := range all.Traces(t.Context(), tga.ID{}) {
		listed = errors.Join(listed, err)
	}
	_, found := all.(interface{ Lists() search.Lists }).Lists().Find(t.Context(), search.Query{Limit: 1})
	for what, err := range map[string]error{"verify": verified, "traces": listed, "the newest traces": found} {
		if tga.CodeOf(err) != tga.StoreUnavailable || !strings.Contains(err.Error(), `shard "two"`) {
			t.Errorf("%s: %v, and a store is missing", what, err)
		}
	}
}

// TestStoresOfAShardTakeTheTimeOfOne: a shard with many stores stands still. What is asked of all stores takes the patience of one of
// them, and so does the end.
func TestStoresOfAShardTakeTheTimeOfOne(t *testing.T) {
	t.Parallel()
	one, two := twoShards(t)
	o := postgres.Options{Patience: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	for i := range 8 {
		if _, err := postgres.Place(t.Context(), pgserver.DSN(one), o, postgres.Placing{Namespace: fmt.Sprint("away ", i), Shard: "two"}); err != nil {
			t.Fatal(err)
		}
	}
	shards, err := postgres.OpenShards(t.Context(), pgserver.DSN(one), o)
	if err != nil {
		t.Fatal(err)
	}
	stores, err := shards.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := serving.All(stores)
	two.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { two.Signal(syscall.SIGCONT) })
	answered(t, "what is left", func() {
		_, _ = all.(interface {
			Left(context.Context) ([]tga.ID, error)
		}).Left(context.Background())
	})
	answered(t, "the traces", func() {
		for range all.Traces(context.Background(), tga.ID{}) {
		}
	})
	answered(t, "the end", func() { _ = stores.Close() })
}

// answered waits until a question is answered.
func answered(t *testing.T, what string, ask func()) {
	t.Helper()
	var is atomic.Bool
	go func() {
		ask()
		is.Store(true)
	}()
	until(t, what, is.Load)
}
