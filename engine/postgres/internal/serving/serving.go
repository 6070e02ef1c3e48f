// Package serving implements the verbs of tgad for tgad-postgres: it lets the daemon serve a store
// in PostgreSQL.
package serving

import (
	"bytes"
	"context"
	"errors"
	"log/slog"

	"github.com/tgad/tgad/engine"
	"github.com/tgad/tgad/engine/postgres"
	"github.com/tgad/tgad/internal/assemble"
	"github.com/tgad/tgad/internal/cli"
	"github.com/tgad/tgad/internal/config"
	"github.com/tgad/tgad/internal/daemon"
	"github.com/tgad/tgad/internal/evidence"
	"github.com/tgad/tgad/internal/keyring"
	"github.com/tgad/tgad/internal/secretfile"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Database has the functions that the verbs call.
var Database = cli.Database{Open: Open, Migrate: migrate, Copy: copyStore, Retire: retire, Shards: shardVerbs}

// Open opens the store for a daemon. For a fleet of several shards it opens all stores, or the one that the configuration names.
func Open(ctx context.Context, o daemon.Options) (daemon.Store, error) {
	ring, err := ringOf(o.Config)
	if err != nil {
		return nil, err
	}
	s, err := openWith(ctx, o, ring)
	if err != nil {
		return nil, errors.Join(err, ring.Close())
	}
	return s, nil
}

// ringed is the key ring of a store, which other processes may have open too. Ring is nil if there is none.
type ringed struct{ *keyring.Ring }

// ringOf opens the ring that a configuration names.
func ringOf(c *config.Config) (ringed, error) {
	r, err := assemble.Keyring(c, "")
	return ringed{r}, err
}

// Close closes the ring. Close the store that seals with it first.
func (r ringed) Close() error {
	if r.Ring == nil {
		return nil
	}
	return r.Ring.Close()
}

// to sets the ring in the options of a store, if there is a ring.
func (r ringed) to(o *postgres.Options) {
	if r.Ring != nil {
		o.Keyring = r.Ring
	}
}

func openWith(ctx context.Context, o daemon.Options, ring ringed) (daemon.Store, error) {
	store, c := optionsOf(o.Config, o.Logger), o.Config.Store
	store.Clock = o.Clock
	ring.to(&store)
	if c.Namespace == "" && store.Shard == 0 {
		fleet, err := openFleet(ctx, o, store)
		if fleet != nil || err != nil {
			return fleet, err
		}
	}
	s, err := openOne(ctx, o, store)
	if err != nil {
		return nil, err
	}
	if err := isNamed(s.ID(), o.Config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return served{s, s.Fleet(), ring}, nil
}

// openOne opens one store. In a fleet of several shards it finds the store on any shard and follows its moves.
func openOne(ctx context.Context, o daemon.Options, store postgres.Options) (*postgres.Store, error) {
	namespace := o.Config.Store.Namespace
	shards, err := postgres.OpenShards(ctx, o.URL, store)
	switch {
	case err == nil && namespace != "":
		return shards.Store(ctx, namespace)
	case err == nil:
		return shards.Numbered(ctx, store.Shard)
	case errors.Is(err, tga.ValidationError) && namespace == "": // the database belongs to no fleet
		return postgres.Open(ctx, o.URL, store)
	}
	return nil, err
}

// openFleet opens all stores of a fleet. It returns nil if the database is no shard of a fleet.
func openFleet(ctx context.Context, o daemon.Options, store postgres.Options) (daemon.Store, error) {
	shards, err := postgres.OpenShards(ctx, o.URL, store)
	if errors.Is(err, tga.ValidationError) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if store.Keyring != nil {
		return nil, errors.Join(tga.Errorf(tga.ValidationError, "[keyring] is of a daemon of one store: name the store in [store] namespace. One daemon of all stores of a fleet seals nothing"), shards.Close())
	}
	stores, err := shards.All(ctx)
	if err != nil {
		return nil, errors.Join(err, shards.Close())
	}
	if err := isNamed(stores.Rest().ID(), o.Config); err != nil {
		return nil, errors.Join(err, stores.Close())
	}
	return all{stores, store.Logger}, nil
}

// isNamed refuses a store other than the one that the configuration names.
func isNamed(has tga.ID, c *config.Config) error {
	// The configuration was checked when it was read, so a set id is valid.
	if id, err := tga.ParseID(c.Store.ID); err == nil && id != has {
		return tga.Errorf(tga.NotFound, "open: the database has store %s, and [store] id names %s", has, id)
	}
	return nil
}

// optionsOf returns the options of the store that a configuration file sets.
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

// served presents a store in PostgreSQL to the daemon.
type served struct {
	*postgres.Store
	postgres.Fleet
	ring ringed
}

// Close closes the store, and then its key ring.
func (s served) Close() error { return errors.Join(s.Store.Close(), s.ring.Close()) }

var _ daemon.Shared = served{}

// Missing implements [daemon.Shared]: it is one store, and open.
func (s served) Missing() error { return nil }

// Submit implements [daemon.Store]. The append is durable when Submit returns, so the next append to the
// same trace is checked against its result.
func (s served) Submit(ctx context.Context, lease chain.Lease, b chain.Batch) (daemon.Submitted, error) {
	done, err := s.Append(ctx, lease, b)
	return ended(done), err
}

// ended is a durable append.
type ended chain.Appended

// Wait implements [daemon.Submitted].
func (e ended) Wait() (chain.Appended, error) { return chain.Appended(e), nil }

// Check implements [daemon.Store].
func (s served) Check(ctx context.Context) (engine.Report, error) { return check(ctx, s.Store) }

func check(ctx context.Context, s *postgres.Store) (engine.Report, error) {
	r, err := s.Fleet().Check(ctx)
	all := engine.Report{Traces: r.Traces, Entries: r.Entries, Notes: r.Notes, Records: r.Records, Leaves: r.Leaves, Unread: r.Unread}
	for _, p := range r.Problems {
		all.Problems = append(all.Problems, engine.Problem{TraceID: p.TraceID, Err: p.Err})
	}
	if err == nil {
		err = evidence.CheckTables(ctx, tables{s.Fleet().Evidence()}, func(err error) { all.Problems = append(all.Problems, engine.Problem{Err: err}) })
	}
	return all, err
}

// Stats implements [daemon.Store].
func (s served) Stats() engine.Stats { return stats(s.Store) }

func stats(s *postgres.Store) engine.Stats {
	x := s.Fleet().Stats()
	all := engine.Stats{
		StoreID: x.StoreID, Incarnation: x.Session, Cursor: x.Cursor, NewestTS: x.NewestTS,
		Appends: x.Appends, Replayed: x.Replayed, Entries: x.Entries, Notes: x.Notes, Leases: x.Leases, Frozen: x.Frozen,
	}
	_, all.MissingKeys = s.Fleet().UnderRing()
	if q, in := s.Fleet().Quarantine(); in {
		quarantine := engine.Quarantine(q)
		all.Quarantine = &quarantine
	}
	return all
}

func migrate(ctx context.Context, url string, months int) (cli.Migrated, error) {
	done, err := postgres.MigrateUntil(ctx, url, months)
	return cli.Migrated{From: done.From, To: done.To, Until: done.Until}, err
}
