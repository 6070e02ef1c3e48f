// Package serving is what tgad-postgres does for the verbs of tgad: it makes a store in PostgreSQL
// one that the daemon serves.
package serving

import (
	"bytes"
	"context"
	"errors"
	"log/slog"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Database is what the verbs ask of this program.
var Database = cli.Database{Open: Open, Migrate: migrate, Copy: copyStore, Retire: retire}

// Open opens the store that a daemon is to serve.
func Open(ctx context.Context, o daemon.Options) (daemon.Store, error) {
	store := optionsOf(o.Config, o.Logger)
	store.Clock = o.Clock
	s, err := postgres.Open(ctx, o.URL, store)
	if err != nil {
		return nil, err
	}
	// The configuration was read: an id that is there is one.
	if id, err := tga.ParseID(o.Config.Store.ID); err == nil && id != s.ID() {
		err := tga.Errorf(tga.NotFound, "open: the database has store %s, and [store] id names %s", s.ID(), id)
		return nil, errors.Join(err, s.Close())
	}
	return served{s, s.Fleet()}, nil
}

// optionsOf are the options of the store that a file sets.
func optionsOf(c *config.Config, log *slog.Logger) postgres.Options {
	s := c.Store
	o := postgres.Options{Shard: s.Shard, Lease: s.Lease.D, RequireSync: s.RequireSync, Patience: s.Patience.D, Logger: log}
	if s.PasswordFile != "" {
		path := c.Path(s.PasswordFile)
		o.Password = func() (string, error) {
			raw, err := secretfile.Read(path)
			if err != nil {
				return "", tga.Errorf(tga.ValidationError, "[store] password_file: %w", err)
			}
			return string(bytes.TrimRight(raw, "\r\n")), nil
		}
	}
	return o
}

// served is a store in PostgreSQL as the daemon asks for it.
type served struct {
	*postgres.Store
	postgres.Fleet
}

var _ daemon.Shared = served{}

// Submit implements [daemon.Store]. The append is made before it returns: what a batch appends to
// one trace is looked at as the append before it left the trace.
func (s served) Submit(ctx context.Context, lease chain.Lease, b chain.Batch) (daemon.Submitted, error) {
	done, err := s.Append(ctx, lease, b)
	return ended(done), err
}

// ended is an append that is durable.
type ended chain.Appended

// Wait implements [daemon.Submitted].
func (e ended) Wait() (chain.Appended, error) { return chain.Appended(e), nil }

// Check implements [daemon.Store].
func (s served) Check(ctx context.Context) (engine.Report, error) {
	r, err := s.Fleet.Check(ctx)
	all := engine.Report{Traces: r.Traces, Entries: r.Entries, Notes: r.Notes, Records: r.Records, Leaves: r.Leaves}
	for _, p := range r.Problems {
		all.Problems = append(all.Problems, engine.Problem{TraceID: p.TraceID, Err: p.Err})
	}
	return all, err
}

// Stats implements [daemon.Store].
func (s served) Stats() engine.Stats {
	x := s.Fleet.Stats()
	return engine.Stats{
		StoreID: x.StoreID, Incarnation: x.Session, Cursor: x.Cursor, NewestTS: x.NewestTS,
		Appends: x.Appends, Replayed: x.Replayed, Entries: x.Entries, Notes: x.Notes, Leases: x.Leases, Frozen: x.Frozen,
	}
}

func migrate(ctx context.Context, url string, months int) (cli.Migrated, error) {
	done, err := postgres.MigrateUntil(ctx, url, months)
	return cli.Migrated{From: done.From, To: done.To, Until: done.Until}, err
}
