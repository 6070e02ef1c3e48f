package postgres_test

import (
	"testing"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// TestStoreThatIsNotOpenIsMissed: a shard is away when a process opens all stores of the fleet. What is asked of all stores is
// refused then, because the answer would look whole; calls of the other stores go on.
func TestStoreThatIsNotOpenIsMissed(t *testing.T) {
	t.Parallel()
	one, two := migrated(t), migrated(t)
	for _, a := range []postgres.AddingShard{
		{DSN: pgserver.DSN(one), Name: "one", URL: pgserver.DSN(one)}, {DSN: pgserver.DSN(two), Name: "two", URL: pgserver.DSN(two), Of: pgserver.DSN(one)},
	} {
		if _, err := postgres.AddShard(bg, quiet, a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := postgres.Place(bg, pgserver.DSN(one), quiet, postgres.Placing{Namespace: "b", Shard: "two"}); err != nil {
		t.Fatal(err)
	}
	all := allOf(t, pgserver.DSN(one))
	b := storetest.New(t)
	b.Namespace = "b"
	lease, err := all.Acquire(runtime.InNamespace(bg, "b"), b.TraceID)
	if err == nil {
		_, err = all.Append(bg, lease, b.Begin(""))
	}
	if err != nil {
		t.Fatal(err)
	}
	// The store of the rest has refused the trace: a lease is left of it.
	if lease, err = all.Rest().Acquire(bg, b.TraceID); err != nil {
		t.Fatal(err)
	}
	all.Rest().Release(lease)
	if err := all.Close(); err != nil {
		t.Fatal(err)
	}
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	all = allOf(t, pgserver.DSN(one))
	var lists error
	for _, err := range all.OpenTraces(bg) {
		if err != nil {
			lists = err
		}
	}
	var attachments error
	for _, err := range all.Attachments(bg, chain.AttachTimer, nil) {
		if err != nil {
			attachments = err
		}
	}
	_, load := all.Load(bg, b.TraceID)
	_, attachment := all.Attachment(bg, chain.AttachBlob, make([]byte, 32))
	for what, err := range map[string]error{"open traces": lists, "attachments": attachments, "a trace": load, "an attachment": attachment} {
		if tga.CodeOf(err) != tga.StoreUnavailable {
			t.Errorf("%s: %v, and a store is missing", what, err)
		}
	}
	if at := all.NewestTS(); at != tga.LastMillis {
		t.Errorf("the newest time of all is %d, and a store is missing", at)
	}
	res, err := governed(t, all, &outside{sends: map[string]int{}}).Call(runtime.InNamespace(bg, ""), runtime.Request{Server: "payments", Tool: "charge", Key: "k"})
	if err != nil || res.State != tga.Completed {
		t.Errorf("a call of another store: %v, %v", res.State, err)
	}
}

// TestNamespaceIsPlacedOnOneShard: a placement ends after the shard has made the store of the namespace, and before the shard of the
// rest knows. Then somebody names another shard. The namespace gets no second store there.
func TestNamespaceIsPlacedOnOneShard(t *testing.T) {
	t.Parallel()
	one, two := migrated(t), migrated(t)
	for _, a := range []postgres.AddingShard{
		{DSN: pgserver.DSN(one), Name: "one", URL: pgserver.DSN(one)}, {DSN: pgserver.DSN(two), Name: "two", URL: pgserver.DSN(two), Of: pgserver.DSN(one)},
	} {
		if _, err := postgres.AddShard(bg, quiet, a); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Exec("CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''the placement ends here''; END'",
		"CREATE TRIGGER no BEFORE INSERT ON tgad.placements FOR EACH ROW EXECUTE FUNCTION public.no()"); err != nil {
		t.Fatal(err)
	}
	place := func(shard string) error {
		_, err := postgres.Place(bg, pgserver.DSN(one), quiet, postgres.Placing{Namespace: "b", Shard: shard})
		return err
	}
	if err := place("two"); err == nil {
		t.Fatal("the placement has not ended early")
	}
	if err := one.Exec("DROP TRIGGER no ON tgad.placements"); err != nil {
		t.Fatal(err)
	}
	if err := place("one"); tga.CodeOf(err) != tga.ValidationError {
		t.Errorf("another shard: %v", err)
	}
	if err := place("two"); err != nil {
		t.Errorf("the same shard: %v", err)
	}
	for name, s := range map[string]*pgserver.Server{"one": one, "two": two} {
		if n := query(t, s, "SELECT count(*)::text FROM tgad.placements WHERE owner = 'two' AND store = 1"); n != "1" {
			t.Errorf("shard %s has the store on shard two: %s", name, n)
		}
	}
}
