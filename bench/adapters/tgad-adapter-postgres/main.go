// Command tgad-adapter-postgres is the adapter of tgad with its store in PostgreSQL.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/tgad/tgad/bench/adapters/internal/pgserver"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/killtest/adapter"
	"github.com/tgad/tgad/internal/killtest/engines"
)

// lease is short, so that the next process need not wait long for the traces of the one that was killed.
const lease = time.Second

func main() {
	adapter.Main(adapter.Engine{
		Name: "tgad, store in PostgreSQL",
		Servers: func(ctx context.Context, dir string) (func() error, error) {
			stop, err := pgserver.Start(ctx, dir)
			if err != nil {
				return nil, err
			}
			if err := postgres.Migrate(ctx, pgserver.URL(dir)); err != nil {
				return nil, errors.Join(err, stop())
			}
			return stop, nil
		},
		Start: func(ctx context.Context, dir string, world adapter.World) (adapter.Worker, error) {
			store, err := postgres.Open(ctx, pgserver.URL(dir), postgres.Options{Lease: lease, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				return nil, err
			}
			return engines.NewTgad(ctx, store, world)
		},
	})
}
