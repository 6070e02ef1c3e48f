package postgres

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// listPage is how many ids of traces are read at once.
const listPage = 256

// Traces yields every trace after an id, in the order of ids, including finished traces. It may or
// may not yield a trace that begins meanwhile. A trace that cannot be read is yielded with its error.
// Any other error ends the list.
func (f Fleet) Traces(ctx context.Context, after tga.ID) iter.Seq2[chain.Listed, error] {
	return func(yield func(chain.Listed, error) bool) {
		after := after // each range begins there
		for {
			ids, err := f.traceIDs(ctx, after)
			if err != nil {
				yield(chain.Listed{}, err)
				return
			}
			for _, id := range ids {
				l := chain.Listed{Listing: chain.Listing{OpenTrace: chain.OpenTrace{TraceID: id}}}
				t, err := f.s.Load(ctx, id)
				switch {
				case err == nil:
					l.Listing = t.Listing()
				case tga.CodeOf(err) == tga.StoreUnavailable || ctx.Err() != nil:
					yield(chain.Listed{}, err)
					return
				default:
					l.Err = err
				}
				if !yield(l, nil) {
					return
				}
			}
			if len(ids) < listPage {
				return
			}
			after = ids[len(ids)-1]
		}
	}
}

// traceIDs reads the ids of a page of traces that have an entry.
func (f Fleet) traceIDs(ctx context.Context, after tga.ID) (ids []tga.ID, err error) {
	s := f.s
	if err := s.health.enter(); err != nil {
		return nil, err
	}
	defer s.health.leave()
	err = s.ask(ctx, "list traces", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT trace FROM tgad.heads WHERE shard = $1 AND trace > $2 AND (seq > 0 OR note > 0) ORDER BY trace LIMIT $3", s.o.Shard, [16]byte(after), listPage)
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (tga.ID, error) {
			var id [16]byte
			err := row.Scan(&id)
			return tga.ID(id), err
		})
		return err
	})
	return ids, err
}

// LatestCheckpoint returns the newest checkpoint of a trace that verifies; ok is false if there is
// none. A checkpoint that fails its own digest, or disagrees with the entry that it names, is logged
// and skipped. Nothing is lost: the state also follows from an older checkpoint or from genesis.
func (f Fleet) LatestCheckpoint(ctx context.Context, id tga.ID) (cp tga.Checkpoint, ok bool, err error) {
	s := f.s
	t, err := s.Load(ctx, id)
	if err != nil {
		if tga.CodeOf(err) == tga.NotFound {
			err = nil
		}
		return cp, false, err
	}
	if err := s.health.enter(); err != nil {
		return cp, false, err
	}
	defer s.health.leave()
	var bodies [][]byte
	err = s.ask(ctx, "checkpoints of trace "+id.String(), func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT body FROM tgad.checkpoints WHERE shard = $1 AND trace = $2 ORDER BY seq DESC", s.o.Shard, [16]byte(id))
		if err != nil {
			return err
		}
		bodies, err = pgx.CollectRows(rows, pgx.RowTo[[]byte])
		return err
	})
	if err != nil {
		return cp, false, err
	}
	for _, body := range bodies {
		cp, err := t.VerifyCheckpoint(body)
		if err == nil {
			return *cp, true, nil
		}
		s.log.Error("checkpoint skipped", "trace", id, "error", err)
	}
	return cp, false, nil
}
