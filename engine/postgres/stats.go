package postgres

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
)

// Stats is what this process knows of the store without asking.
type Stats struct {
	StoreID  tga.ID
	Session  uint32 // of this process: the incarnation in its epochs
	Cursor   uint64 // newest number of the order that is known
	NewestTS tga.Millis

	Appends, Replayed, Entries, Notes uint64 // of this process
	Leases                            int    // likewise

	Frozen string // why nothing may be appended, "" where it may
}

type counts struct{ appends, replayed, entries, notes atomic.Uint64 }

// Fleet is the store as one of several daemons asks for it: beyond what the runtime asks of it, what the store
// as a whole is like, and what the other processes that have it left.
type Fleet struct{ s *Store }

// Fleet returns it.
func (s *Store) Fleet() Fleet { return Fleet{s} }

// Stats returns the state of the store as this process knows it.
func (f Fleet) Stats() Stats {
	s := f.s
	x := Stats{
		StoreID: s.id, Session: uint32(s.session.number()), Cursor: s.Cursor(), NewestTS: tga.Millis(s.times.newest.Load()),
		Appends: s.counts.appends.Load(), Replayed: s.counts.replayed.Load(), Entries: s.counts.entries.Load(), Notes: s.counts.notes.Load(),
	}
	s.leases.mu.Lock()
	x.Leases = len(s.leases.held)
	s.leases.mu.Unlock()
	if why := s.health.frozen.Load(); why != nil {
		x.Frozen = why.Error()
	}
	return x
}

// Alone reports whether no other process had the store when this one opened it.
func (f Fleet) Alone() bool { return f.s.alone }

// Ready asks the database whether this process could append now. STORE_UNAVAILABLE: no server
// answers, or it promises less than it must, or the store is frozen.
func (f Fleet) Ready(ctx context.Context) error {
	s := f.s
	if err := s.health.enterToWrite(); err != nil {
		return err
	}
	defer s.health.leave()
	return s.once(ctx, "ready", func(ctx context.Context, c *pgxpool.Conn) error {
		var standby, here bool
		var commit, standbys string
		if err := c.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
			EXISTS (SELECT 1 FROM tgad.sessions WHERE shard = $1 AND session = $2 AND NOT ended)`, s.o.Shard, s.session.number()).
			Scan(&standby, &commit, &standbys, &here); err != nil {
			return err
		}
		switch {
		case standby:
			return errStandby
		case !here:
			return tga.Errorf(tga.StoreUnavailable, "another process has ended the session of this one, and a new one is still to begin")
		}
		return s.promises(commit, standbys)
	})
}
