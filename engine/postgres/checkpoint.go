package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// WriteCheckpoint implements [runtime.Store]. The newest two of a trace are kept.
func (s *Store) WriteCheckpoint(ctx context.Context, lease chain.Lease) (tga.Checkpoint, error) {
	if err := s.health.enterToWrite(); err != nil {
		return tga.Checkpoint{}, err
	}
	defer s.health.leave()
	id := lease.TraceID
	if err := s.traces.enter(ctx, s.health.stop, id); err != nil {
		return tga.Checkpoint{}, waitFailed("wait for trace "+id.String(), id, err)
	}
	defer s.traces.leave(id)
	st, err := s.stand(ctx, id, false)
	if err != nil {
		return tga.Checkpoint{}, err
	}
	p := &part{lease: lease}
	if err := s.mayAppend(p, &st, true); err != nil {
		return tga.Checkpoint{}, err
	}
	if st.trace.Head.Seq == 0 {
		return tga.Checkpoint{}, tga.Errorf(tga.NotFound, "checkpoint of trace %s: it has no entry", id).In(id)
	}
	if st.trace.PlanID.IsZero() {
		return tga.Checkpoint{}, tga.Errorf(tga.StateInvalidTransition, "checkpoint of trace %s: it was erased, and its plan is not known", id).In(id)
	}
	cp := st.trace.Checkpoint(s.times.now())
	err = s.ask(ctx, "checkpoint of trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
		// The checkpoint is written only if it is still at the head of the trace. So writing it twice
		// does no harm.
		var n int
		err := c.QueryRow(ctx, `WITH head AS (
				SELECT shard, trace, seq FROM tgad.heads WHERE shard = $1 AND trace = $2 AND epoch = $3 AND session = $4 AND seq = $5 FOR UPDATE
			), old AS (
				DELETE FROM tgad.checkpoints c USING head h WHERE c.shard = h.shard AND c.trace = h.trace AND c.seq <
					(SELECT max(seq) FROM tgad.checkpoints WHERE shard = $1 AND trace = $2 AND seq < $5)
			)
			INSERT INTO tgad.checkpoints SELECT shard, trace, seq, $6 FROM head
				ON CONFLICT (shard, trace, seq) DO UPDATE SET body = excluded.body RETURNING 1`,
			s.o.Shard, [16]byte(id), int64(lease.Epoch), p.session, int64(cp.Seq), cp.AppendCanonical(nil)).Scan(&n)
		if errors.Is(err, pgx.ErrNoRows) {
			return tga.Errorf(tga.StateConcurrentExecution, "checkpoint of trace %s under epoch %#x: it was overtaken", id, uint64(lease.Epoch)).In(id)
		}
		return err
	})
	if err != nil {
		return tga.Checkpoint{}, err
	}
	return cp, nil
}
