package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// session is what this process is to the database. It has another one after it was ended by a
// process that needed a trace of it.
type session struct {
	mu      sync.Mutex
	id      int64
	counter uint32    // of the newest epoch
	alone   bool      // at its begin every session before it was over
	until   time.Time // up to which nobody can have ended it, by the monotonic clock

	renewing sync.Mutex   // one renewal at a time
	over     atomic.Int64 // session that was found to be ended
}

func (x *session) number() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.id
}

// next is an epoch that no lease of this session has had.
func (x *session) next() (session int64, epoch chain.Epoch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counter++
	return x.id, chain.Epoch(x.id)<<32 | chain.Epoch(x.counter)
}

// newest is the newest epoch of this session.
func (x *session) newest() chain.Epoch {
	x.mu.Lock()
	defer x.mu.Unlock()
	return chain.Epoch(x.id)<<32 | chain.Epoch(x.counter)
}

func (x *session) begun(id int64, alone bool, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.id, x.counter, x.alone, x.until = id, 0, alone, until
}

// renewed moves the end of a session that goes on.
func (x *session) renewed(id int64, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.id == id && until.After(x.until) {
		x.until = until
	}
}

// left is for how long nobody can have ended the session.
func (x *session) left() (id int64, left time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.id, time.Until(x.until)
}

func (s *Store) newSession(ctx context.Context, c *pgxpool.Conn) error {
	asked := time.Now()
	var id int64
	var alone bool
	if err := c.QueryRow(ctx, "SELECT o_session, o_alone FROM tgad.open_session($1, $2, make_interval(secs => $3))", s.o.Shard, s.o.Name, s.o.Lease.Seconds()).Scan(&id, &alone); err != nil {
		return err
	}
	if id>>31 != 0 {
		return tga.Errorf(tga.StoreUnavailable, "session %d: no epoch is left in this store", id)
	}
	if err := s.ringed.sameRing(ctx, c); err != nil {
		return err
	}
	if err := s.doubts.read(ctx, c); err != nil { // before anybody acquires a lease in it
		return err
	}
	s.session.begun(id, alone, s.o.until(asked))
	return nil
}

// renew renews the session. Where it was ended, all its leases are lost, and another begins.
func (s *Store) renew(ctx context.Context) error {
	s.session.renewing.Lock()
	defer s.session.renewing.Unlock()
	id := s.session.number()
	return s.ask(ctx, "renew the session", func(ctx context.Context, c *pgxpool.Conn) error {
		// A connection on which nothing comes back must not take all the time that the session has.
		ctx, cancel := context.WithTimeout(ctx, s.o.Lease/3)
		defer cancel()
		asked, goesOn, since := time.Now(), false, s.doubts.count()
		var doubted, quarantine []byte
		if err := c.QueryRow(ctx, "SELECT tgad.renew($1, $2), "+doubtColumns, s.o.Shard, id).Scan(&goesOn, &doubted, &quarantine); err != nil {
			return err
		}
		if err := s.doubts.hear(since, doubted, quarantine); err != nil {
			return err
		}
		if goesOn {
			s.session.renewed(id, s.o.until(asked))
			return nil
		}
		if s.session.over.Swap(id) != id { // a store that moves gives no new one for a while
			s.log.Error("another process has ended the session of this one: its leases are lost", "session", id)
		}
		s.leases.clear()
		return s.newSession(ctx, c)
	})
}

// keepSession renews the session until the store closes.
func (s *Store) keepSession() {
	tick := time.NewTicker(s.o.Lease / 5)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.health.stop:
			return
		}
		// Nothing else is done here: a connection on which nothing comes back would take the time of the
		// next renewal.
		ctx, cancel := context.WithTimeout(s.health.life, s.o.Lease)
		err := s.renew(ctx)
		cancel()
		switch {
		case err == nil:
			s.leases.look() // at what the database has not been told, or has forgotten
		case s.health.life.Err() == nil:
			s.log.Warn("the session was not renewed", "error", err)
		}
	}
}
