package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// moment are statements that read, in one round trip, and all of them what was there at one moment.
type moment struct{ pgx.Batch }

func atOneMoment() *moment {
	m := &moment{}
	m.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	return m
}

// read reads. What of it fails leaves no transaction on the connection.
func (m *moment) read(ctx context.Context, c *pgxpool.Conn) error {
	m.Queue("COMMIT")
	err := c.SendBatch(ctx, &m.Batch).Close()
	if err != nil && !c.Conn().IsClosed() {
		_, rerr := c.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		err = errors.Join(err, rerr)
	}
	return err
}
