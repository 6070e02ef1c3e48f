package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/engine/postgres/internal/pgserver"
	"github.com/tgad/tgad/internal/serial"
	"github.com/tgad/tgad/ledger"
	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/runtime/storetest"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// allOf are all stores of the fleet that the database at a DSN is a shard of.
func allOf(t testing.TB, dsn string) *postgres.AllStores {
	t.Helper()
	shards, err := postgres.OpenShards(bg, dsn, postgres.Options{Lease: shortLease, Patience: 3 * time.Second, Logger: quiet.Logger})
	if err != nil {
		t.Fatal(err)
	}
	all, err := shards.All(bg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := all.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return all
}

// TestAllStoresAreAStore: all stores of a fleet, as one, pass the suite that every store passes.
func TestAllStoresAreAStore(t *testing.T) {
	serial.Long(t)
	p := migrated(t)
	if err := p.Exec("CREATE DATABASE blank", "ALTER DATABASE blank ALLOW_CONNECTIONS true"); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return strings.Replace(pgserver.DSN(p), "/postgres?", "/"+name+"?", 1) }
	if err := postgres.Migrate(bg, at("blank")); err != nil {
		t.Fatal(err)
	}
	n := 0
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		n++
		dsn := at(fmt.Sprint("d", n))
		if err := p.Exec(fmt.Sprintf("CREATE DATABASE d%d TEMPLATE blank", n)); err != nil {
			t.Fatal(err)
		}
		if _, err := postgres.AddShard(bg, quiet, postgres.AddingShard{DSN: dsn, Name: "one", URL: dsn}); err != nil {
			t.Fatal(err)
		}
		for _, namespace := range []string{"x", "y"} {
			if _, err := postgres.Place(bg, dsn, quiet, postgres.Placing{Namespace: namespace, Shard: "one"}); err != nil {
				t.Fatal(err)
			}
		}
		s := allOf(t, dsn)
		return storetest.Harness{Store: s, Reopen: func() runtime.Store {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			s = allOf(t, dsn)
			return s
		}}
	})
}

// TestAllStoresKeepNamespacesApart: each request goes to the store of its namespace, or to the store that has the trace. If a
// namespace has got a store of its own meanwhile, requests go there. A store that does not answer stops no other store.
func TestAllStoresKeepNamespacesApart(t *testing.T) {
	x := newMoving(t)
	all := allOf(t, pgserver.DSN(x.two))
	tools := &outside{sends: map[string]int{}}
	rt := governed(t, all, tools)
	other := x.namespace + "-other"
	x.place(other, "two")
	ids := map[string]tga.ID{}
	for _, namespace := range []string{x.namespace, "rest of " + x.namespace, other} { // the last has a store that this process has not heard of
		r := x.charge("key of " + x.namespace)
		r.Namespace = namespace
		var res runtime.Result
		until(t, namespace, func() bool {
			var err error
			res, err = rt.Call(bg, r)
			return err == nil && res.State == tga.Completed
		})
		ids[namespace] = res.TraceID
		r.TraceID = storetest.NewID()
		if again, err := rt.Call(bg, r); err != nil || again.State != tga.Completed {
			t.Errorf("%s: %v, %v", namespace, again.State, err)
		}
	}
	if n := tools.of("key of " + x.namespace); n != 3 {
		t.Errorf("the key of three namespaces was sent %d times", n)
	}
	fresh := allOf(t, pgserver.DSN(x.one))
	for namespace, id := range ids {
		if tr, err := fresh.Load(bg, id); err != nil || tr.Namespace != namespace {
			t.Errorf("trace of %s: %v", namespace, err)
		}
		if _, err := fresh.Load(runtime.InNamespace(bg, "another"), storetest.NewID()); !errors.Is(err, tga.NotFound) {
			t.Errorf("a trace that nobody has: %v", err)
		}
		key := ledger.Key{Namespace: namespace, Server: "payments", Tool: "charge", Key: "key of " + x.namespace}
		if r, err := fresh.Record(bg, key); err != nil || r == nil || r.TraceID != id {
			t.Errorf("record of %s: %+v, %v", namespace, r, err)
		}
	}

	// The same id in two stores: whoever names the namespace gets its own, and nobody gets the other's.
	b := storetest.New(t)
	for _, namespace := range []string{x.namespace, other} {
		b.Namespace, b.Request, b.Decision, b.Call = namespace, nil, nil, nil
		s, err := postgres.OpenShards(bg, pgserver.DSN(x.one), quiet)
		if err != nil {
			t.Fatal(err)
		}
		own, err := s.Store(bg, namespace)
		if err == nil {
			var lease chain.Lease
			if lease, err = own.Acquire(bg, b.TraceID); err == nil {
				_, err = own.Append(bg, lease, b.Begin(""))
			}
		}
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fresh.Load(bg, b.TraceID); !errors.Is(err, tga.StateConflict) {
		t.Errorf("an id that two stores have: %v", err)
	}
	if tr, err := fresh.Load(runtime.InNamespace(bg, other), b.TraceID); err != nil || tr.Namespace != other {
		t.Errorf("with its namespace: %v", err)
	}
	for _, namespace := range []string{x.namespace, other, x.namespace} { // whichever this process has heard of before
		ctx := runtime.InNamespace(bg, namespace)
		if tr, err := fresh.Load(ctx, b.TraceID); err != nil || tr.Namespace != namespace {
			t.Errorf("the trace of %s: %+v, %v", namespace, tr, err)
		}
		for e, err := range fresh.Entries(ctx, b.TraceID, 0) {
			if err != nil || e.Type == tga.RequestType && e.Artifact.Meta.String(tga.MetaNamespace) != namespace {
				t.Errorf("entry %d of the trace of %s: %v, %v", e.Seq, namespace, e.Artifact, err)
			}
		}
	}
	if _, err := fresh.Acquire(runtime.InNamespace(context.Background(), x.namespace), b.TraceID); !errors.Is(err, tga.NotFound) {
		t.Errorf("the lease of the other: %v", err)
	}
}
