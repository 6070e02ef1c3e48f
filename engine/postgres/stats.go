package postgres

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
)

// Stats is what this process knows about the store without asking the database.
type Stats struct {
	StoreID  tga.ID
	Session  uint32 // of this process: the incarnation in its epochs
	Cursor   uint64 // newest known number of the order
	NewestTS tga.Millis

	Appends, Replayed, Entries, Notes uint64 // of this process
	Leases                            int    // of this process

	Frozen string // why appends are refused, "" if they are not
}

type counts struct{ appends, replayed, entries, notes atomic.Uint64 }

// Fleet has the functions of a store that several daemons share, beyond those of [runtime.Store]: the state of
// the whole store, and the work that other processes have left.
type Fleet struct{ s *Store }

// Fleet returns the store as a Fleet.
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

// Alone reports whether no other process had the store open when this process opened it.
func (f Fleet) Alone() bool { return f.s.alone }

// Ready asks the database whether this process could append now. STORE_UNAVAILABLE: no server
// answers, or it promises less than it must, or the store is frozen, or the clocks are too far apart.
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
		return cmp.Or(s.promises(commit, standbys), s.skew.err())
	})
}
