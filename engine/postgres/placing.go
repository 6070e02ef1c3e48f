package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/schemas/tga"
)

// AddingShard describes a database that is to become a shard of a fleet.
type AddingShard struct {
	DSN  string // of the database, with the rights of [Migrate]
	Name string // the name of the shard in the fleet
	URL  string // where programs of the fleet reach it; user and password are removed
	// Of is the DSN of an existing shard of the fleet. "" makes a new fleet with this database as its first shard: the store of
	// the database stays there, and serves each namespace without a store of its own.
	Of string
}

// AddShard makes a database a shard of a fleet, and tells all other shards. Called again, it changes the URL of the shard, or
// completes a call that was interrupted. VALIDATION_ERROR: the database belongs to another fleet, has another name, or has
// stores that the fleet does not know.
func AddShard(ctx context.Context, o Options, a AddingShard) (*Routes, error) {
	at, err := shardURL(a.URL)
	if err != nil {
		return nil, err
	}
	if a.Name == "" || len(a.Name) > 64 {
		return nil, tga.Errorf(tga.ValidationError, "the name of a shard has 1 to 64 bytes")
	}
	of := &Routes{}
	if a.Of != "" {
		if of, err = ReadRoutes(ctx, a.Of, o); err != nil {
			return nil, err
		}
		if of.Fleet == (tga.ID{}) {
			return nil, tga.Errorf(tga.ValidationError, "the database that is to know the fleet is no shard of one")
		}
	}
	if s, ok := of.shard(a.Name); ok && s.URL != at {
		of.hear(&Routes{Fleet: of.Fleet, Shards: []Shard{{a.Name, at, s.Epoch + 1}}})
	} else if !ok {
		of.Shards = append(of.Shards, Shard{a.Name, at, 1})
	}
	var r *Routes
	if err := onShard(ctx, a.DSN, o, func(c *copier) error {
		if err := pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error { return join(ctx, tx, a.Name, of) }); err != nil {
			return err
		}
		r, err = readRoutes(ctx, c.conn)
		return err
	}); err != nil {
		return nil, err
	}
	return r, spread(ctx, a.DSN, o, r)
}

// join makes the database a shard, and gives it the routes that the other shards know.
func join(ctx context.Context, tx pgx.Tx, name string, of *Routes) error {
	own, err := readRoutes(ctx, tx)
	if err != nil {
		return err
	}
	first := of.Fleet == tga.ID{}
	switch {
	case own.Fleet != tga.ID{} && !first && own.Fleet != of.Fleet:
		return tga.Errorf(tga.ValidationError, "the database is a shard of fleet %s, not of %s", own.Fleet, of.Fleet)
	case own.Fleet != tga.ID{} && own.Name != name:
		return tga.Errorf(tga.ValidationError, "the database is shard %q of its fleet already", own.Name)
	case own.Fleet != tga.ID{}:
		return tell(ctx, tx, of)
	}
	var stores []int32
	// The lock keeps other processes from making a new store here meanwhile.
	if _, err := tx.Exec(ctx, "LOCK TABLE tgad.order_state IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, "SELECT ARRAY(SELECT shard FROM tgad.order_state ORDER BY shard)").Scan(&stores); err != nil {
		return err
	}
	if first && len(stores) > 1 || !first && len(stores) > 0 {
		return tga.Errorf(tga.ValidationError, "the database has stores %v: the first shard of a fleet may have one, the others none", stores)
	}
	if first {
		var random [16]byte
		if _, err := rand.Read(random[:]); err != nil {
			return err
		}
		of.Fleet = tga.MakeID(random)
		if len(stores) == 1 {
			of.Rest = stores[0]
		}
	}
	if _, err := tx.Exec(ctx, "INSERT INTO tgad.fleet (id, name, rest) VALUES ($1, $2, $3)", [16]byte(of.Fleet), name, of.Rest); err != nil {
		return err
	}
	if first {
		if _, err := tx.Exec(ctx, "INSERT INTO tgad.placements (store, epoch, owner, state) VALUES ($1, 1, $2, 'here')", of.Rest, name); err != nil {
			return err
		}
	}
	return tell(ctx, tx, of)
}

// tell gives routes to a shard, which keeps its own routes where they are newer. Every process writes them in the same order, so
// that two processes do not deadlock.
func tell(ctx context.Context, tx pgx.Tx, r *Routes) error {
	b := &pgx.Batch{}
	for _, s := range slices.SortedFunc(slices.Values(r.Shards), func(a, b Shard) int { return strings.Compare(a.Name, b.Name) }) {
		b.Queue(`INSERT INTO tgad.shards AS s VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET url = excluded.url, epoch = excluded.epoch
			WHERE excluded.epoch > s.epoch`, s.Name, s.URL, s.Epoch)
	}
	for _, namespace := range slices.Sorted(maps.Keys(r.Namespaces)) {
		b.Queue("INSERT INTO tgad.namespaces VALUES ($1, $2) ON CONFLICT DO NOTHING", namespace, r.Namespaces[namespace])
	}
	for _, store := range slices.Sorted(maps.Keys(r.Placements)) {
		p := r.Placements[store]
		b.Queue("SELECT tgad.learn($1, $2, $3, $4)", p.Store, p.Epoch, p.Owner, p.Pinned)
	}
	return tx.SendBatch(ctx, b).Close()
}

// spread gives the routes of one shard to all other shards. The error names the shards that do not answer; they are told the next
// time.
func spread(ctx context.Context, dsn string, o Options, r *Routes) error {
	own, err := pgx.ParseConfig(dsn)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "%w", err)
	}
	var errs []error
	for _, s := range r.Shards {
		if s.Name == r.Name {
			continue
		}
		if err := func() error {
			ctx, cancel := context.WithTimeout(ctx, 2*askPatience)
			defer cancel()
			return spreadTo(ctx, s, own, o, r)
		}(); err != nil {
			errs = append(errs, tga.Errorf(tga.StoreUnavailable, "shard %q was not told: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

func spreadTo(ctx context.Context, s Shard, own *pgx.ConnConfig, o Options, r *Routes) (err error) {
	config, err := configFor(s.URL, own)
	if err != nil {
		return err
	}
	c := &copier{o: o.withDefaults(), config: config}
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.conn.Close(context.WithoutCancel(ctx))) }()
	return again(ctx, func() error {
		return pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
			there, err := readRoutes(ctx, tx)
			switch {
			case err != nil:
				return err
			case there.Fleet != r.Fleet || there.Name != s.Name:
				return tga.Errorf(tga.ValidationError, "its URL leads to shard %q of fleet %s", there.Name, there.Fleet)
			}
			return tell(ctx, tx, r)
		})
	})
}

// Placing says on which shard a namespace gets its store.
type Placing struct {
	Namespace string
	Shard     string // name
	Pinned    bool   // the store moves only if the mover asks for that explicitly
}

// Place gives a namespace a store of its own on a shard, before its first call. dsn leads to the shard that has the store of the
// namespaces without a store of their own (the store of the rest), with the rights of [Migrate]. Called again, it completes a call
// that was interrupted.
//
// VALIDATION_ERROR: the namespace has a store on another shard, or an interrupted call may have made it there, or the namespace has
// calls in the store of the rest already. Such calls stay where they are, and so does the namespace.
func Place(ctx context.Context, dsn string, o Options, p Placing) (r *Routes, err error) {
	err = onShard(ctx, dsn, o, func(c *copier) error {
		if r, err = readRoutes(ctx, c.conn); err != nil {
			return err
		}
		s, ok := r.shard(p.Shard)
		switch {
		case r.Fleet == tga.ID{}:
			return tga.Errorf(tga.ValidationError, "the database is no shard of a fleet")
		case !ok:
			return tga.Errorf(tga.NotFound, "the fleet has no shard %q", p.Shard)
		case p.Namespace == "":
			return tga.Errorf(tga.ValidationError, "a namespace has a name")
		}
		store, secret, err := c.claim(ctx, r, p)
		if err != nil {
			return err
		}
		if was, ok := r.Placements[store]; ok && was.Owner != p.Shard {
			return tga.Errorf(tga.ValidationError, "namespace %q has store %d on shard %q: move it", p.Namespace, store, was.Owner)
		}
		at, err := configFor(s.URL, c.conn.Config())
		if err != nil {
			return err
		}
		r.Namespaces[p.Namespace] = store
		if err := settle(ctx, at, o, r, p, secret); err != nil {
			return err
		}
		r.Placements[store] = Placement{Store: store, Epoch: 1, Owner: p.Shard, Pinned: p.Pinned}
		if err := pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error { return tell(ctx, tx, r) }); err != nil {
			return err
		}
		r, err = readRoutes(ctx, c.conn)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, spread(ctx, dsn, o, r)
}

// claim gives a namespace the number of a store, and the number a shard. It makes sure that no trace of the namespace has begun in the store of the rest;
// from then on none can.
func (c *copier) claim(ctx context.Context, r *Routes, p Placing) (store int32, secret []byte, err error) {
	namespace := p.Namespace
	if secret, err = c.secret(ctx, r.Rest); err != nil {
		return 0, nil, err
	}
	store, ok := r.Namespaces[namespace]
	if ok {
		return store, secret, c.keep(ctx, r, store, p)
	}
	if has, err := c.hasCalls(ctx, r, namespace); has || err != nil { // before the transaction, because it may take long
		if err == nil {
			err = stays(r, namespace)
		}
		return 0, nil, err
	}
	if err := pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
		var state string
		if err := tx.QueryRow(ctx, "SELECT state FROM tgad.placements WHERE store = $1 FOR SHARE", r.Rest).Scan(&state); err != nil {
			return err
		}
		if state != Here {
			return tga.Errorf(tga.ValidationError, "store %d of the namespaces without one of their own is not on this shard: ask the shard that has it", r.Rest)
		}
		if _, err := tx.Exec(ctx, "SELECT 1 FROM tgad.fleet FOR UPDATE"); err != nil { // a transaction that begins a trace holds this lock
			return err
		}
		return tx.QueryRow(ctx, `INSERT INTO tgad.namespaces SELECT $1, 1 + greatest((SELECT max(store) FROM tgad.namespaces), (SELECT max(store) FROM tgad.placements)) RETURNING store`,
			namespace).Scan(&store)
	}); err != nil {
		return 0, nil, err
	}
	return store, secret, c.keep(ctx, r, store, p)
}

func (c *copier) hasCalls(ctx context.Context, r *Routes, namespace string) (has bool, err error) {
	err = c.conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tgad.heads WHERE shard = $1 AND namespace = $2)", r.Rest, namespace).Scan(&has)
	return has, err
}

func stays(r *Routes, namespace string) error {
	return tga.Errorf(tga.ValidationError, "namespace %q has calls in store %d: it stays there", namespace, r.Rest)
}

// keep checks whether a namespace can keep the number that it was given, by this run or by an interrupted one. A call that began
// before the number was given has ended its transaction by now, and is visible. If there is such a call, the namespace gives the
// number back; otherwise no store would take its new calls. If not, keep makes the number durable before a store is made under it:
// a standby that was promoted without the number would let calls of the namespace begin in the store of the rest.
func (c *copier) keep(ctx context.Context, r *Routes, store int32, p Placing) error {
	has, err := c.hasCalls(ctx, r, p.Namespace)
	switch {
	case err != nil:
		return err
	case has:
		_, err = c.conn.Exec(ctx, "DELETE FROM tgad.namespaces WHERE namespace = $1", p.Namespace)
		return errors.Join(stays(r, p.Namespace), err)
	}
	if err := c.aim(ctx, r, store, p); err != nil {
		return err
	}
	return c.durable(ctx, c.conn)
}

// aim stores on which shard a store is to be made, before it is made there. A call for another shard is refused from then on: the
// interrupted one may have made the store, and this shard does not know. The row stays, and means nothing once the shard knows.
func (c *copier) aim(ctx context.Context, r *Routes, store int32, p Placing) error {
	if _, known := r.Placements[store]; known {
		return nil
	}
	row := fmt.Sprintf("placing %d", store) // of the store of the rest, so that it moves with that
	if _, err := c.conn.Exec(ctx, "INSERT INTO tgad.meta VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", r.Rest, row, []byte(p.Shard)); err != nil {
		return err
	}
	var shard []byte
	err := c.conn.QueryRow(ctx, "SELECT value FROM tgad.meta WHERE shard = $1 AND name = $2", r.Rest, row).Scan(&shard)
	if err == nil && string(shard) != p.Shard {
		err = tga.Errorf(tga.ValidationError, "namespace %q may have store %d on shard %q already: place it there, and then move it", p.Namespace, store, shard)
	}
	return err
}

// secret returns the secret of a store, and makes it if there is none. All stores of a fleet have the same secret.
func (c *copier) secret(ctx context.Context, store int32) (secret []byte, err error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	if _, err := c.conn.Exec(ctx, "INSERT INTO tgad.meta VALUES ($1, 'secret', $2) ON CONFLICT DO NOTHING", store, random); err != nil {
		return nil, err
	}
	err = c.conn.QueryRow(ctx, "SELECT value FROM tgad.meta WHERE shard = $1 AND name = 'secret'", store).Scan(&secret)
	return secret, err
}

// settle makes the empty store of a namespace on its shard.
func settle(ctx context.Context, at *pgx.ConnConfig, o Options, r *Routes, p Placing, secret []byte) (err error) {
	c := &copier{o: o.withDefaults(), config: at}
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.conn.Close(context.WithoutCancel(ctx))) }()
	return pgx.BeginFunc(ctx, c.conn, func(tx pgx.Tx) error {
		there, err := readRoutes(ctx, tx)
		switch {
		case err != nil:
			return err
		case there.Fleet != r.Fleet || there.Name != p.Shard:
			return tga.Errorf(tga.ValidationError, "the URL of shard %q leads to shard %q of fleet %s", p.Shard, there.Name, there.Fleet)
		}
		if err := tell(ctx, tx, &Routes{Namespaces: r.Namespaces, Shards: r.Shards}); err != nil {
			return err
		}
		store := r.Namespaces[p.Namespace]
		if _, err := tx.Exec(ctx, "INSERT INTO tgad.meta VALUES ($1, 'secret', $2) ON CONFLICT DO NOTHING", store, secret); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO tgad.placements (store, epoch, owner, state, pinned) VALUES ($1, 1, $2, 'here', $3) ON CONFLICT DO NOTHING", store, p.Shard, p.Pinned)
		return err
	})
}
