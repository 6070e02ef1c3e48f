package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tgad/tgad/schemas/tga"
)

// States of a store on a shard (migrations/004_placements.sql).
const (
	Here     = "here"      // this shard serves the store
	Leaving  = "leaving"   // the same, but no new trace begins: the store is about to move
	Gone     = "gone"      // the store was fenced here; another shard is the owner
	Arriving = "arriving"  // a copy of the store is being written here
	Away     = "elsewhere" // another shard has the store, as this shard was told
)

// Elsewhere says why a shard refuses a store: the store is not there, or not yet, or begins no new trace any more. It has the
// knowledge of this shard, which may be outdated; the owner's is correct.
type Elsewhere struct {
	Store int32  `json:"store"`
	Epoch int64  `json:"epoch"` // 0 if the shard does not know the store
	Owner string `json:"owner"` // name of the shard
	State string `json:"state"`
}

// Error says where the store is.
func (e *Elsewhere) Error() string {
	switch {
	case e.State == Leaving:
		return fmt.Sprintf("store %d is about to move to another shard, and no new call begins in it until it is there", e.Store)
	case e.Owner == "":
		return fmt.Sprintf("store %d has no place on this shard", e.Store)
	}
	return fmt.Sprintf("store %d is on shard %q (epoch %d), and %s on this one", e.Store, e.Owner, e.Epoch, e.State)
}

// elsewhere finds an [Elsewhere] in an error of the database or of this package, nil if there is none.
func elsewhere(err error) *Elsewhere {
	var e *Elsewhere
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &e):
	case errors.As(err, &pg) && pg.Code == sqlElsewhere:
		e = &Elsewhere{}
		if json.Unmarshal([]byte(pg.Detail), e) != nil {
			e = &Elsewhere{State: Away}
		}
	}
	return e
}

// errNotOfStore: the trace of a namespace begins in another store.
var errNotOfStore = errors.New("the namespace belongs to another store of the fleet")

func notOfStore(namespace string, store int32) error {
	return tga.Errorf(tga.NotFound, "append: namespace %q, store %d: %w", namespace, store, errNotOfStore)
}

// place knows at which shard a process finds its store.
type place struct {
	asks   bool // ask each new connection whether the store is there; false for a copy or a move
	own    *pgx.ConnConfig
	target atomic.Pointer[pgx.ConnConfig] // the shard that has the store, if it is not own
	// locate finds the shard that has the store; nil if the process uses only the shard that it was given.
	locate func(ctx context.Context) (*pgx.ConnConfig, error)

	mu   sync.Mutex
	last time.Time // time of the last look
}

// here returns the name of the shard of a connection, "" if the database is no shard of a fleet. It refuses a shard that has only
// an old or incomplete copy of the store. A shard from which the store has moved may be read until the store is on another
// shard; its functions refuse everything else.
func (p *place) here(ctx context.Context, c *pgx.Conn, store int32) (shard string, err error) {
	if !p.asks {
		return "", nil
	}
	e := &Elsewhere{Store: store}
	err = c.QueryRow(ctx, "SELECT f.name, coalesce(p.epoch, 0), coalesce(p.owner, ''), coalesce(p.state, '') FROM tgad.fleet f LEFT JOIN tgad.placements p ON p.store = $1", store).
		Scan(&shard, &e.Epoch, &e.Owner, &e.State)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err == nil && (e.State == Arriving || e.State == Away):
		err = e
	}
	return shard, err
}

// passing reports whether a refusal may be over at the next try, because the store may then have arrived at its new shard.
func (p *place) passing(ctx context.Context, d *database, err error) bool {
	e := elsewhere(err)
	if e == nil {
		return false
	}
	p.look(ctx, d, err)
	return p.locate != nil || e.State == Leaving
}

// lookPause is between two looks for the shard that has a store.
const lookPause = 200 * time.Millisecond

// look finds out, after an error, whether the store is on another shard. If it is, later connections go to that shard. Until a
// shard says of itself that it has the store, nothing changes.
func (p *place) look(ctx context.Context, d *database, cause error) {
	if p.locate == nil || ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < lookPause {
		return
	}
	defer func() { p.last = time.Now() }()
	found, err := p.locate(ctx)
	if err != nil {
		d.log.Warn("the shard of the store was not found", "store", d.o.Shard, "because", cause, "error", err)
		return
	}
	now := p.target.Load()
	if now == nil {
		now = p.own
	}
	if found == nil || sameServer(found, now) {
		return
	}
	d.line.mu.Lock()
	d.line.moved = d.line.cluster != ""
	d.line.mu.Unlock()
	p.target.Store(found)
	d.spare.Reset()
	d.pool.Reset() // no connection to the other shard is used again
}

func sameServer(a, b *pgx.ConnConfig) bool {
	return a.Host == b.Host && a.Port == b.Port && a.Database == b.Database
}
