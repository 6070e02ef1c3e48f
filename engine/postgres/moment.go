package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// moment is a batch of reads that takes one round trip and sees one snapshot of the database.
type moment struct{ pgx.Batch }

func atOneMoment() *moment {
	m := &moment{}
	m.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	return m
}

// read runs the reads. A failure leaves no transaction open on the connection.
func (m *moment) read(ctx context.Context, c *pgxpool.Conn) error {
	m.Queue("COMMIT")
	err := c.SendBatch(ctx, &m.Batch).Close()
	if err != nil && !c.Conn().IsClosed() {
		_, rerr := c.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		err = errors.Join(err, rerr)
	}
	return err
}
