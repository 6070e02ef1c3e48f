package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// endFrozenSQL ends connections of this program that hold locks and whose client has sent nothing for too long. A
// store sends a transaction as one message. So a transaction waits for its client only if the client hangs in the
// middle of sending it, or has disappeared. The server has no time-out for that: it has executed the statements that
// have arrived, and waits for the next one. An append to a sealed store begins with an advisory lock, and has no transaction id
// then. A connection that only reads is left alone.
const endFrozenSQL = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity a
	WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid() AND wait_event = 'ClientRead'
	AND (backend_xid IS NOT NULL OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.granted))
	AND xact_start < clock_timestamp() - make_interval(secs => $1) AND (query LIKE 'SELECT %tgad.%' OR query = ANY ($2))`

// lastSent are the statements behind which this program sends more of a transaction, apart from those that begin with SELECT.
var lastSent = []string{"COMMIT", eraseEntries, eraseCheckpoints, eraseSpan, eraseOwners}

// keepMoving ends connections of hung processes, until the store closes. Their transactions are rolled back, as if
// their process had died, and transactions that wait for their locks continue.
func (d *database) keepMoving() {
	tick := time.NewTicker(d.o.Lease / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.health.stop:
			return
		}
		ctx, cancel := context.WithTimeout(urgent(d.health.life), d.o.Lease)
		ended := 0
		err := d.once(ctx, "look for frozen processes", func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, endFrozenSQL, d.o.Lease.Seconds(), lastSent).Scan(&ended)
		})
		cancel()
		switch {
		case ended > 0:
			d.log.Warn("transactions of a process that stands still were ended", "transactions", ended)
		case err != nil && d.health.life.Err() == nil:
			d.log.Warn("could not end the transactions of hung processes", "error", err)
		}
	}
}
