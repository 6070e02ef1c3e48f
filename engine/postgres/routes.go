package postgres

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/schemas/tga"
)

// Routes are what one shard knows of its fleet: the shards, and the place of each store. Every shard has routes. A shard is always
// right about a store that it has itself. About another store it may be outdated; then its epoch is the lower one.
type Routes struct {
	Fleet      tga.ID // of the fleet; zero if the database is no shard of a fleet
	Name       string // name of the shard that was asked
	Rest       int32  // the store of each namespace that has none of its own
	Shards     []Shard
	Namespaces map[string]int32 // namespaces with a store of their own
	Placements map[int32]Placement
}

// Shard is one database of a fleet. Its URL has no user and no password: each program adds its own.
type Shard struct {
	Name  string
	URL   string
	Epoch int64 // of the URL: the higher epoch wins
}

// Placement is where a store is.
type Placement struct {
	Store  int32
	Epoch  int64 // grows by one with each move
	Owner  string
	State  string // of the store on the shard that was asked
	Target string // the shard to which it moves; "" if it does not move
	Pinned bool   // it moves only if the mover asks for that explicitly
}

// Of returns the number of a namespace's store.
func (r *Routes) Of(namespace string) int32 {
	if store, ok := r.Namespaces[namespace]; ok {
		return store
	}
	return r.Rest
}

func (r *Routes) shard(name string) (Shard, bool) {
	i := slices.IndexFunc(r.Shards, func(s Shard) bool { return s.Name == name })
	if i < 0 {
		return Shard{}, false
	}
	return r.Shards[i], true
}

// querier is a connection, or a transaction on it.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// readRoutes reads the routes of the shard of a connection.
func readRoutes(ctx context.Context, q querier) (*Routes, error) {
	r := &Routes{Namespaces: map[string]int32{}, Placements: map[int32]Placement{}}
	var id [16]byte
	err := q.QueryRow(ctx, "SELECT id, name, rest FROM tgad.fleet").Scan(&id, &r.Name, &r.Rest)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r.Fleet = tga.ID(id)
	rows, err := q.Query(ctx, "SELECT name, url, epoch FROM tgad.shards ORDER BY name")
	if err != nil {
		return nil, err
	}
	if r.Shards, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Shard]); err != nil {
		return nil, err
	}
	if rows, err = q.Query(ctx, "SELECT namespace, store FROM tgad.namespaces"); err != nil {
		return nil, err
	}
	var namespace string
	var store int32
	if _, err = pgx.ForEachRow(rows, []any{&namespace, &store}, func() error {
		r.Namespaces[namespace] = store
		return nil
	}); err != nil {
		return nil, err
	}
	if rows, err = q.Query(ctx, "SELECT store, epoch, owner, state, coalesce(target, ''), pinned FROM tgad.placements"); err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Placement])
	for _, p := range all {
		r.Placements[p.Store] = p
	}
	return r, err
}

// hear takes over the newer routes of another shard. It returns false if that shard belongs to another fleet.
func (r *Routes) hear(other *Routes) bool {
	if other.Fleet != r.Fleet {
		return false
	}
	for _, s := range other.Shards {
		if i := slices.IndexFunc(r.Shards, func(own Shard) bool { return own.Name == s.Name }); i < 0 {
			r.Shards = append(r.Shards, s)
		} else if s.Epoch > r.Shards[i].Epoch {
			r.Shards[i] = s
		}
	}
	for namespace, store := range other.Namespaces {
		r.Namespaces[namespace] = store
	}
	for store, p := range other.Placements {
		own, ok := r.Placements[store]
		// If the epochs are equal, the owner's entry wins: it has the current state.
		if !ok || p.Epoch > own.Epoch || p.Epoch == own.Epoch && p.Owner == other.Name {
			r.Placements[store] = p
		}
	}
	return true
}

// shardURL returns the URL of a shard as the routes have it: without user and password, which each program adds.
func shardURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", tga.Errorf(tga.ValidationError, "the URL of a shard begins with postgres://")
	}
	u.User = nil
	q := u.Query()
	for _, own := range []string{"user", "password", "passfile"} {
		q.Del(own)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// configFor returns the configuration for a shard, with the user and the password of own.
func configFor(shard string, own *pgx.ConnConfig) (*pgx.ConnConfig, error) {
	u, err := url.Parse(shard)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "the URL of a shard: %w", err)
	}
	u.User = url.User(own.User)
	c, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "the URL of a shard: %w", err)
	}
	if c.Password == "" {
		c.Password = own.Password
	}
	return c, nil
}

// ReadRoutes returns what the shard at a DSN knows of its fleet.
func ReadRoutes(ctx context.Context, dsn string, o Options) (r *Routes, err error) {
	err = onShard(ctx, dsn, o, func(c *copier) error {
		r, err = readRoutes(ctx, c.conn)
		return err
	})
	return r, err
}

// onShard calls do with a separate connection to the shard at dsn.
func onShard(ctx context.Context, dsn string, o Options, do func(c *copier) error) (err error) {
	c := &copier{o: o.withDefaults(), dsn: dsn}
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.conn.Close(context.WithoutCancel(ctx))) }()
	return c.failed("shard", do(c))
}
