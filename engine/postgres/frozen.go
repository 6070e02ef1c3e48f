package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// endFrozenSQL ends connections of this program that hold locks and whose client has said nothing for too long. A
// transaction of a store comes as one message, so it waits for its client only where that stands still in the
// middle of sending it, or is gone without a word. The server has no timeout for that: to
// it the messages of a transaction that are there are done, and it waits for the next one.
const endFrozenSQL = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
	WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid() AND wait_event = 'ClientRead'
	AND backend_xid IS NOT NULL AND xact_start < clock_timestamp() - make_interval(secs => $1) AND (query LIKE 'SELECT %tgad.%' OR query = 'COMMIT')`

// keepMoving ends connections of frozen processes, until the store closes. What they had begun is rolled back, as
// if their process had died, and whoever waits for their locks goes on.
func (d *database) keepMoving() {
	tick := time.NewTicker(d.o.Lease / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.health.stop:
			return
		}
		ctx, cancel := context.WithTimeout(d.health.life, d.o.Lease)
		ended := 0
		err := d.once(ctx, "look for frozen processes", func(ctx context.Context, c *pgxpool.Conn) error {
			return c.QueryRow(ctx, endFrozenSQL, d.o.Lease.Seconds()).Scan(&ended)
		})
		cancel()
		switch {
		case ended > 0:
			d.log.Warn("transactions of a process that stands still were ended", "transactions", ended)
		case err != nil && d.health.life.Err() == nil:
			d.log.Warn("transactions of a process that stands still would not be ended", "error", err)
		}
	}
}
