package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
)

// Shards are the stores of a fleet. They let a process use each store wherever it is. Each namespace has one store. A store that
// moves keeps its id, its secret and its order. A process that has it open waits until the store has arrived, and continues on the
// new shard, as after a failover.
//
// The routes of a process may be outdated. That does no harm, because a shard refuses a store that it does not have.
type Shards struct {
	o   Options
	own *pgxpool.Config

	mu      sync.Mutex
	routes  *Routes
	open    map[int32]*Store
	opening gates[int32]
	stop    chan struct{}

	asking sync.Mutex // held while one goroutine asks for routes; the others use its answer
	asked  time.Time
}

// OpenShards reads the routes of the fleet to which the database at a DSN belongs. It opens no store.
// VALIDATION_ERROR: the database is no shard of a fleet.
func OpenShards(ctx context.Context, dsn string, o Options) (*Shards, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "open: %w", err)
	}
	x := &Shards{o: o.withDefaults(), own: config, routes: &Routes{}, open: map[int32]*Store{}, stop: make(chan struct{})}
	x.opening.init()
	if x.o.Password != nil {
		if config.ConnConfig.Password, err = x.o.Password(); err != nil {
			return nil, err
		}
	}
	r, err := x.ask(ctx, config.ConnConfig)
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == noTable:
		return nil, tga.Errorf(tga.ValidationError, "open: the database is no shard of a fleet: %w", err)
	case err != nil:
		return nil, tga.Errorf(tga.StoreUnavailable, "open: %w", err)
	case r.Fleet == tga.ID{}:
		return nil, tga.Errorf(tga.ValidationError, "open: the database is no shard of a fleet")
	}
	x.routes = r
	x.Refresh(ctx)
	return x, nil
}

// Routes returns the routes that this process knows.
func (x *Shards) Routes() Routes {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := *x.routes
	r.Shards, r.Namespaces, r.Placements = slices.Clone(r.Shards), maps.Clone(r.Namespaces), maps.Clone(r.Placements)
	return r
}

// askPatience is how long each host of a shard may take to return the routes.
const askPatience = 3 * time.Second

// ask asks one shard.
func (x *Shards) ask(ctx context.Context, c *pgx.ConnConfig) (*Routes, error) {
	hosts := map[string]bool{c.Host: true}
	for _, f := range c.Fallbacks {
		hosts[f.Host] = true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(hosts))*askPatience)
	defer cancel()
	c = c.Copy()
	if c.ConnectTimeout == 0 || c.ConnectTimeout > askPatience {
		c.ConnectTimeout = askPatience
	}
	neverCancel(c)
	var err error
	if x.o.Password != nil { // it may have changed since the stores were opened
		if c.Password, err = x.o.Password(); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	r, err := readRoutes(ctx, conn)
	return r, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

// Refresh asks all shards for their routes. If a shard does not answer or belongs to another fleet, the earlier routes stay.
func (x *Shards) Refresh(ctx context.Context) {
	var asked sync.WaitGroup
	for _, s := range x.Routes().Shards {
		asked.Go(func() {
			c, err := configFor(s.URL, x.own.ConnConfig)
			var heard *Routes
			if err == nil {
				heard, err = x.ask(ctx, c)
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if err != nil {
				x.o.Logger.Warn("a shard does not say where the stores are", "shard", s.Name, "error", err)
			} else if heard.Name != s.Name || !x.routes.hear(heard) {
				x.o.Logger.Error("another database answers for a shard", "shard", s.Name, "answers", heard.Name)
			}
		})
	}
	asked.Wait()
}

// refreshSoon is Refresh, unless another caller has just done it: if a shard is away, all its stores call this at the same time.
func (x *Shards) refreshSoon(ctx context.Context) {
	x.asking.Lock()
	defer x.asking.Unlock()
	if time.Since(x.asked) < lookPause {
		return
	}
	x.Refresh(ctx)
	x.asked = time.Now()
}

// locate finds the shard that says of itself that it has a store. It returns nil if no shard says that now.
func (x *Shards) locate(ctx context.Context, store int32) (*pgx.ConnConfig, error) {
	x.refreshSoon(ctx)
	r := x.Routes()
	p, ok := r.Placements[store]
	if !ok {
		return nil, tga.Errorf(tga.NotFound, "no shard knows store %d", store)
	}
	s, ok := r.shard(p.Owner)
	if !ok || p.State != Here && p.State != Leaving {
		return nil, nil // between two shards
	}
	return configFor(s.URL, x.own.ConnConfig)
}

// Store returns the store of a namespace, and opens it if it is not open yet. If the store is between two shards, it waits at
// most [Options.Patience]. [Shards.Close] closes the store.
func (x *Shards) Store(ctx context.Context, namespace string) (*Store, error) {
	x.mu.Lock()
	store := x.routes.Of(namespace)
	x.mu.Unlock()
	return x.Numbered(ctx, store)
}

// Numbered returns the store with a number.
func (x *Shards) Numbered(ctx context.Context, store int32) (*Store, error) {
	if s := x.opened(store); s != nil {
		return s, nil
	}
	if err := x.opening.enter(ctx, x.stop, store); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "open store %d: %w", store, err)
	}
	defer x.opening.leave(store)
	if s := x.opened(store); s != nil {
		return s, nil
	}
	for until := time.Now().Add(x.o.Patience); ; {
		s, err := x.openOnce(ctx, store)
		if err == nil {
			return x.keep(store, s)
		}
		if elsewhere(err) == nil || time.Now().After(until) {
			return nil, err
		}
		select {
		case <-time.After(lookPause):
		case <-ctx.Done():
			return nil, tga.Errorf(tga.StoreUnavailable, "open store %d: %w", store, errors.Join(ctx.Err(), err))
		case <-x.stop:
			return nil, tga.Errorf(tga.StoreUnavailable, "open store %d: the stores are closed", store)
		}
	}
}

func (x *Shards) keep(store int32, s *Store) (*Store, error) {
	if x.add(store, s) {
		return s, nil
	}
	return nil, errors.Join(tga.Errorf(tga.StoreUnavailable, "open store %d: the stores are closed", store), s.Close())
}

// add adds a store to the open ones, unless they are closed.
func (x *Shards) add(store int32, s *Store) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.stop:
		return false
	default:
		x.open[store] = s
		return true
	}
}

func (x *Shards) openOnce(ctx context.Context, store int32) (*Store, error) {
	at, err := x.locate(ctx, store)
	if err != nil {
		return nil, err
	}
	if at == nil {
		p := x.Routes().Placements[store]
		return nil, tga.Errorf(tga.StoreUnavailable, "open: %w", &Elsewhere{Store: store, Epoch: p.Epoch, Owner: p.Owner, State: p.State})
	}
	config := x.own.Copy()
	config.ConnConfig = at
	o := x.o
	o.Shard = store
	return openAt(ctx, config, o, func(ctx context.Context) (*pgx.ConnConfig, error) { return x.locate(ctx, store) })
}

func (x *Shards) opened(store int32) *Store {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.open[store]
}

// Close closes all stores that were opened.
func (x *Shards) Close() error {
	if !x.close() {
		return nil
	}
	// The mutex is not held: a store that closes waits for its calls, and a call whose shard is away takes the mutex
	// to learn where the store is. All close at once: each store of a shard that is away waits for it.
	errs := make(chan error, len(x.open)) // add changes it no more
	for _, s := range x.open {
		go func() { errs <- s.Close() }()
	}
	var all []error
	for range x.open {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// close returns false if the stores were closed before.
func (x *Shards) close() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.stop:
		return false
	default:
		close(x.stop)
		return true
	}
}
