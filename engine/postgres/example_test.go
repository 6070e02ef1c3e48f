package postgres_test

import (
	"context"
	"log"

	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/runtime"
)

// Several processes share one store. Each of them has a Runtime of its own.
func Example() {
	ctx := context.Background()
	var tools runtime.Dispatcher
	var supervisor runtime.Supervisor

	// once, with the rights to make a schema and roles; and each month, for the partitions to come
	err := postgres.Migrate(ctx, "host=a,b dbname=tgad user=admin target_session_attrs=read-write")
	if err != nil {
		log.Fatal(err)
	}

	// in each process
	store, err := postgres.Open(ctx, "host=a,b dbname=tgad user=gateway target_session_attrs=read-write",
		postgres.Options{RequireSync: true})
	if err != nil {
		log.Fatal(err)
	}
	rt, err := runtime.New(store, tools, supervisor, runtime.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := rt.RecoverAll(ctx, 8); err != nil {
		log.Fatal(err)
	}
}
