package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tgad/tgad/schemas/tga"
)

// mostLeft is how many traces Left returns at once.
const mostLeft = 1000

// leftSQL lists the open traces whose lease belongs to a session that is over. The process of that
// session did not release them, so its last action on them is unknown. A late session is ended first,
// as in tgad.acquire. $3 is one trace, null for all.
const leftSQL = `WITH holders AS MATERIALIZED (
		SELECT DISTINCT session FROM tgad.heads WHERE shard = $1 AND state BETWEEN 1 AND 3 AND session NOT IN (0, $2) AND lent <> 2 AND ($3::uuid IS NULL OR trace = $3)
	), over AS MATERIALIZED (SELECT session FROM holders WHERE tgad.gone($1, $2, session))
	SELECT trace FROM tgad.heads WHERE shard = $1 AND state BETWEEN 1 AND 3 AND lent <> 2 AND ($3::uuid IS NULL OR trace = $3)
		AND session IN (SELECT session FROM over) ORDER BY trace LIMIT $4`

// Left lists open traces whose process has ended without releasing them, the oldest first. Recovering
// such a trace finds out how far its call came. A trace that was released is not listed, even if its
// call is in doubt.
func (f Fleet) Left(ctx context.Context) ([]tga.ID, error) { return f.left(ctx, nil) }

// IsLeft reports whether a trace is still one that [Fleet.Left] would list.
func (f Fleet) IsLeft(ctx context.Context, trace tga.ID) (bool, error) {
	all, err := f.left(ctx, &trace)
	return len(all) == 1, err
}

func (f Fleet) left(ctx context.Context, one *tga.ID) (list []tga.ID, err error) {
	s := f.s
	if err := s.health.enterToWrite(); err != nil {
		return nil, err
	}
	defer s.health.leave()
	var only *[16]byte
	if one != nil {
		only = (*[16]byte)(one)
	}
	err = s.ask(ctx, "look for what is left", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, leftSQL, s.o.Shard, s.session.number(), only, mostLeft)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (tga.ID, error) {
			var id [16]byte
			err := row.Scan(&id)
			return tga.ID(id), err
		})
		return err
	})
	return list, err
}
