package postgres

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/runtime"
	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Store is an open store in PostgreSQL.
type Store struct {
	*database

	session session
	leases  leases
	skew    skew
	times   times
	views   *lru[tga.ID, view]        // cached traces, each at some version
	records *lru[[32]byte, []byte]    // cached ledger records, by key
	acked   *lru[tga.ID, chain.Trace] // heads of the newest acknowledged appends
	asking  gates[tga.ID]             // admits one request for the lease of a trace at a time
	traces  gates[tga.ID]             // admits one append to a trace at a time
	changed signals                   // signals, per trace, that this process changed a record or a lease
	commits committer
	order   order
	doubts  doubts
	counts  counts
	ringed  ringed
	erasure erasure

	secret [32]byte
	id     tga.ID
	first  uint32 // first session of this process
	alone  bool   // no other session was active when it began
}

var _ runtime.Store = (*Store)(nil)

// Open opens the store of a shard, and makes it if there is none. The tables must exist: see
// [Migrate].
//
// It refuses with STORE_UNAVAILABLE a server whose commits are not durable (fsync,
// full_page_writes, synchronous_commit), or not on a standby although [Options.RequireSync]
// requires one. It refuses tables of a newer program with FORMAT_TOO_NEW. Each new connection is
// checked.
//
// In a fleet of several shards it opens only a store that lies on the shard of the DSN. Otherwise an [Elsewhere] in
// the error says where the store is; [OpenShards] opens a store on any shard.
func Open(ctx context.Context, dsn string, o Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, tga.Errorf(tga.ValidationError, "open: %w", err)
	}
	return openAt(ctx, config, o, nil)
}

// openAt opens a store at a database. locate finds the shard that has the store after a move.
func openAt(ctx context.Context, config *pgxpool.Config, o Options, locate func(context.Context) (*pgx.ConnConfig, error)) (_ *Store, err error) {
	o = o.withDefaults()
	s := &Store{
		database: &database{o: o, log: o.Logger},
		views:    newViews(), records: newLRU[[32]byte, []byte](8192), acked: newLRU[tga.ID, chain.Trace](1024),
	}
	s.health.init()
	s.ringed.s, s.ringed.owners = s, newLRU[string, chain.KeyID](4096)
	s.erasure.turn, s.erasure.begun = make(chan struct{}, 1), make(chan struct{}, 1)
	s.order.database, s.doubts.s = s.database, s
	s.promoted, s.restarted = s.remembers, func() { s.leases.unsure.Store(true) }
	s.skew.clock, s.skew.most = o.Clock, o.MaxSkew
	s.leases.init()
	s.asks.init()
	s.asking.init()
	s.traces.init()
	s.changed.init()
	s.place.asks, s.place.own, s.place.locate = true, config.ConnConfig.Copy(), locate
	if err := s.connect(ctx, config); err != nil {
		return nil, tga.Errorf(tga.StoreUnavailable, "open: %w", err)
	}
	if err := s.begin(ctx); err != nil {
		s.disconnect()
		return nil, err
	}
	s.commits.start(s)
	s.work.Go(s.keepSession)
	s.work.Go(s.keepReleases)
	s.work.Go(s.keepMoving)
	s.work.Go(s.order.keep)
	if s.ringed.ring != nil || s.ringed.under.Ring.IsZero() {
		s.work.Go(eraser{s}.keepErasing)
	}
	return s, nil
}

// begin reads the ring, the secret and the id of the store, makes those that are missing, and begins a session.
func (s *Store) begin(ctx context.Context) error {
	var secret, id []byte
	random := make([]byte, 48)
	if _, err := rand.Read(random); err != nil {
		return tga.Errorf(tga.StoreUnavailable, "open: %w", err)
	}
	random, made := random[:32], tga.MakeID([16]byte(random[32:]))
	return s.once(ctx, "open", func(ctx context.Context, c *pgxpool.Conn) error {
		// Do this first: a shard that does not have the store refuses it, and then nothing is made there.
		if err := s.ringed.readRing(ctx, c); err != nil {
			return err
		}
		if err := s.newSession(ctx, c); err != nil {
			return err
		}
		if err := s.ringed.sameKeys(ctx, c); err != nil {
			return err
		}
		if s.health.noRing = s.ringed.under.Missing(s.ringed.ring); s.health.noRing != nil {
			s.log.Warn("the store is sealed, and opened without its key ring: nothing can be appended", "ring", s.ringed.under.Ring)
		}
		if _, err := c.Exec(ctx, "INSERT INTO tgad.meta VALUES ($1, 'secret', $2), ($1, 'store', $3) ON CONFLICT DO NOTHING", s.o.Shard, random, made[:]); err != nil {
			return err
		}
		if err := c.QueryRow(ctx, "SELECT (SELECT value FROM tgad.meta WHERE shard = $1 AND name = 'secret'), (SELECT value FROM tgad.meta WHERE shard = $1 AND name = 'store')", s.o.Shard).Scan(&secret, &id); err != nil {
			return err
		}
		if len(secret) != len(s.secret) || len(id) != len(s.id) {
			return tga.Errorf(tga.StateChecksumMismatch, "open: the store's secret has %d bytes, its id %d", len(secret), len(id))
		}
		copy(s.secret[:], secret)
		copy(s.id[:], id)
		s.first, s.alone = uint32(s.session.id), s.session.alone
		var newest, last int64
		var copying bool
		if err := c.QueryRow(ctx, `SELECT tgad.newest($1), (SELECT last FROM tgad.order_state WHERE shard = $1),
			EXISTS (SELECT 1 FROM tgad.meta WHERE shard = $1 AND name = $2 AND value <> '')`, s.o.Shard, copyMark).Scan(&newest, &last, &copying); err != nil {
			return err
		}
		if copying {
			s.health.frozen.Store(copyUnderWay())
		}
		s.times.clock = s.o.Clock
		s.times.raise(tga.Millis(newest))
		s.order.init(uint64(last))
		return nil
	})
}

// Close closes the store. It finishes the appends under way and ends all leases of this process.
func (s *Store) Close() error {
	if !s.health.close() {
		return nil
	}
	s.commits.stop()
	s.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Lease)
	defer cancel()
	// If this fails, the session expires by itself.
	_, err := s.pool.Exec(ctx, "UPDATE tgad.sessions SET ended = true WHERE shard = $1 AND session = $2", s.o.Shard, s.session.number())
	s.disconnect()
	if err != nil {
		return tga.Errorf(tga.StoreUnavailable, "close: the leases of this process end in %s: %w", s.o.Lease, err)
	}
	return nil
}

// Secret implements [runtime.Store].
func (s *Store) Secret() [32]byte { return s.secret }

// Shared implements [runtime.Store]. The processes of a fleet share the database.
func (s *Store) Shared() bool { return true }

// ID returns the id of the store. Copies of the store have the same id.
func (s *Store) ID() tga.ID { return s.id }

// NewestTS implements [runtime.Store]. It asks the database, because other processes store times
// too. If the database does not answer, or the clocks are too far apart, it returns [tga.LastMillis]: then no clock counts as ahead of
// the stored times, and no second send is licensed.
func (s *Store) NewestTS() tga.Millis {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Lease)
	defer cancel()
	newest, err := newestTS(ctx, s)
	if err != nil || s.skew.err() != nil {
		return tga.LastMillis
	}
	return newest
}

// newestTS is [Store.NewestTS] for a caller that stores what comes of the answer.
func newestTS(ctx context.Context, s *Store) (tga.Millis, error) {
	var newest int64
	err := s.ask(ctx, "newest time", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, "SELECT tgad.newest($1)", s.o.Shard).Scan(&newest)
	})
	if err != nil {
		return 0, err
	}
	return s.times.raise(tga.Millis(newest)), nil
}

// times is the clock of the store. It never returns a time before one that this process has read
// from the store.
type times struct {
	clock  func() time.Time
	newest atomic.Int64
}

func (t *times) now() tga.Millis { return t.raise(tga.MillisOf(t.clock())) }

// raise makes the newest time at least at, and returns it.
func (t *times) raise(at tga.Millis) tga.Millis {
	for {
		old := t.newest.Load()
		if int64(at) <= old {
			return tga.Millis(old)
		}
		if t.newest.CompareAndSwap(old, int64(at)) {
			return at
		}
	}
}
