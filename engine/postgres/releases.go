package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// lateMost is the time after which an unanswered request can no longer reach the database: networks retry for about a
// quarter of an hour.
const lateMost = 20 * time.Minute

func (l *leases) noAnswer(id tga.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[id] = time.Now()
}

// unanswered returns the traces for which a request for the lease may still reach the database.
func (l *leases) unanswered() (ids [][16]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range l.asked {
		if time.Since(at) > lateMost {
			delete(l.asked, id)
			continue
		}
		ids = append(ids, [16]byte(id))
	}
	return ids
}

// keepReleases sends releases to the database until the store closes. Closing ends all leases.
func (s *Store) keepReleases() {
	for {
		select {
		case <-s.leases.ended:
		case <-s.health.stop:
			return
		}
		ctx, cancel := context.WithTimeout(s.health.life, s.o.Lease)
		// If this fails, the traces look held until the next renewal tries again.
		if err := errors.Join(s.giveBack(ctx), s.sweep(ctx)); err != nil && s.health.life.Err() == nil {
			s.log.Warn("releases have not reached the database", "error", err)
		}
		cancel()
	}
}

// giveBack releases, in the database, the leases that have ended here.
func (s *Store) giveBack(ctx context.Context) error {
	s.leases.giving.Lock()
	defer s.leases.giving.Unlock()
	bySession := map[int64][]chain.Lease{}
	s.leases.mu.Lock()
	for lease, session := range s.leases.late {
		bySession[session] = append(bySession[session], lease)
	}
	s.leases.mu.Unlock()
	for session, ended := range bySession {
		if err := s.releaseAt(ctx, session, ended); err != nil {
			return err
		}
		s.leases.mu.Lock()
		for _, lease := range ended {
			delete(s.leases.late, lease)
		}
		s.leases.mu.Unlock()
	}
	return nil
}

func (s *Store) releaseAt(ctx context.Context, session int64, ended []chain.Lease) error {
	traces, epochs := make([][16]byte, len(ended)), make([]int64, len(ended))
	for i, lease := range ended {
		traces[i], epochs[i] = [16]byte(lease.TraceID), int64(lease.Epoch)
	}
	return s.once(ctx, "release traces", func(ctx context.Context, c *pgxpool.Conn) error {
		_, err := c.Exec(ctx, "SELECT tgad.release($1, $2, $3, $4)", s.o.Shard, session, traces, epochs)
		return err
	})
}

// sweep releases the leases that the database has for this session but that nobody in this process holds.
func (s *Store) sweep(ctx context.Context) error {
	all, some := s.leases.unsure.Swap(false), s.leases.unanswered()
	if !all && len(some) == 0 {
		return nil
	}
	var session int64
	var lost []chain.Lease
	err := s.ask(ctx, "look for forgotten releases", func(ctx context.Context, c *pgxpool.Conn) error {
		lost, session = nil, s.session.number()
		rows, err := c.Query(ctx, "SELECT trace, epoch FROM tgad.heads WHERE shard = $1 AND session = $2 AND ($3 OR trace = ANY ($4))", s.o.Shard, session, all, some)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id [16]byte
			var epoch int64
			if err := rows.Scan(&id, &epoch); err != nil {
				return err
			}
			lost = append(lost, chain.Lease{TraceID: tga.ID(id), Epoch: chain.Epoch(epoch)})
		}
		return rows.Err()
	})
	for _, lease := range lost {
		if err != nil {
			break
		}
		// A grant may not have reached its holder yet: wait for a request that is under way.
		if err = s.asking.enter(ctx, s.health.stop, lease.TraceID); err != nil {
			break
		}
		if _, held := s.leases.of(lease); !held {
			err = s.releaseAt(ctx, session, []chain.Lease{lease})
		}
		s.asking.leave(lease.TraceID)
	}
	if err != nil && all {
		s.leases.unsure.Store(true)
	}
	return err
}
