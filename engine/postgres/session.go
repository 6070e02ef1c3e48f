package postgres

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// session is the identity of this process at the database. If another process ends the session,
// because it needs one of its traces, this process begins a new one.
type session struct {
	mu      sync.Mutex
	id      int64
	counter uint32    // of the newest epoch
	alone   bool      // when it began, every earlier session was over
	until   time.Time // by the monotonic clock; until then no process can have ended the session

	renewing sync.Mutex   // one renewal at a time
	over     atomic.Int64 // number of the session whose end was logged
}

func (x *session) number() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.id
}

// next returns an epoch that no lease of this session has had.
func (x *session) next() (session int64, epoch chain.Epoch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counter++
	return x.id, chain.Epoch(x.id)<<32 | chain.Epoch(x.counter)
}

// newest returns the newest epoch of this session.
func (x *session) newest() chain.Epoch {
	x.mu.Lock()
	defer x.mu.Unlock()
	return chain.Epoch(x.id)<<32 | chain.Epoch(x.counter)
}

// lastEpochs is the counter from which the next grant begins a new session. More grants than are left will not be under way at once.
const lastEpochs = math.MaxUint32 - 1<<20

// spent reports whether the session has granted so many leases that its epochs come to an end.
func (x *session) spent() (id int64, spent bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.id, x.counter >= lastEpochs
}

func (x *session) begun(id int64, alone bool, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.id, x.counter, x.alone, x.until = id, 0, alone, until
}

// forget ends the session in this process. The next renewal begins another one.
func (x *session) forget() { x.begun(0, false, time.Time{}) }

// renewed moves the end of a session that was renewed.
func (x *session) renewed(id int64, until time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.id == id && until.After(x.until) {
		x.until = until
	}
}

// left returns for how long no process can end the session.
func (x *session) left() (id int64, left time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.id, time.Until(x.until)
}

func (s *Store) newSession(ctx context.Context, c *pgxpool.Conn) error {
	asked, before := time.Now(), s.o.Clock()
	var id int64
	var alone bool
	var theirs time.Time
	if err := c.QueryRow(ctx, "SELECT o_session, o_alone, clock_timestamp() FROM tgad.open_session($1, $2, make_interval(secs => $3))", s.o.Shard, s.o.Name, s.o.Lease.Seconds()).
		Scan(&id, &alone, &theirs); err != nil {
		return err
	}
	s.skew.compared(before, theirs)
	if id>>31 != 0 {
		return tga.Errorf(tga.StoreUnavailable, "session %d: no epoch is left in this store", id)
	}
	if err := s.ringed.sameRing(ctx, c); err != nil {
		return err
	}
	if err := s.doubts.read(ctx, c); err != nil { // before a lease is acquired in this session
		return err
	}
	s.session.begun(id, alone, s.o.until(asked))
	return nil
}

// unspent ends a session whose epochs are spent, and begins the next one. The leases of the session are lost, as if another process
// had ended it: after four billion calls that is simpler than to keep two sessions.
func (x *session) unspent(ctx context.Context, s *Store) error {
	id, spent := x.spent()
	if !spent {
		return nil
	}
	s.log.Info("the epochs of the session are spent: the next one begins", "session", id)
	x.over.Store(id)
	err := s.ask(urgent(ctx), "end the session", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "UPDATE tgad.sessions SET ended = true WHERE shard = $1 AND session = $2", s.o.Shard, id)
		return err
	})
	return cmp.Or(err, s.renew(ctx))
}

// renew renews the session. If the session was ended, all its leases are lost, and renew begins a
// new one.
func (s *Store) renew(ctx context.Context) error {
	s.session.renewing.Lock()
	defer s.session.renewing.Unlock()
	id := s.session.number()
	return s.ask(urgent(ctx), "renew the session", func(ctx context.Context, c *pgxpool.Conn) error {
		// A connection that gets no answer must not use up all the time that the session has left.
		ctx, cancel := context.WithTimeout(ctx, s.o.Lease/3)
		defer cancel()
		asked, before, goesOn, since := time.Now(), s.o.Clock(), false, s.doubts.count()
		var theirs time.Time
		var doubted, quarantine []byte
		if err := c.QueryRow(ctx, "SELECT tgad.renew($1, $2), clock_timestamp(), "+doubtColumns, s.o.Shard, id).Scan(&goesOn, &theirs, &doubted, &quarantine); err != nil {
			return err
		}
		s.skew.compared(before, theirs)
		if err := s.doubts.hear(since, doubted, quarantine); err != nil {
			return err
		}
		if goesOn {
			s.session.renewed(id, s.o.until(asked))
			return nil
		}
		if s.session.over.Swap(id) != id { // log it once: a store that moves refuses a new session for a while
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
	apart := false
	for {
		select {
		case <-tick.C:
		case <-s.health.stop:
			return
		}
		// Do nothing else in this goroutine: a connection that gets no answer would delay the next
		// renewal.
		ctx, cancel := context.WithTimeout(s.health.life, s.o.Lease)
		err := s.renew(ctx)
		cancel()
		switch {
		case err == nil:
			why := s.skew.err()
			switch {
			case why != nil && !apart:
				s.log.Error("the clocks of this process and of the database server are too far apart", "error", why)
			case why == nil && apart:
				s.log.Info("the clocks of this process and of the database server agree again")
			}
			apart = why != nil
			s.leases.look() // send releases that the database has not got, or has lost
		case s.health.life.Err() == nil:
			s.log.Warn("the session was not renewed", "error", err)
		}
	}
}
