package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/schemas/tga"
)

// movedPage is how many appends are copied in one transaction.
const movedPage = 1000

// piece is a set of rows that is copied to the same table of the new shard, in the database's own format.
type piece struct {
	table, rows string // name, and a query of them
	before      string // a statement on the new shard, in the same transaction
	merge       string // an ON CONFLICT clause, if some rows may exist already
}

// write copies pieces in one transaction. The new shard refuses the transaction if it does not expect a copy under this epoch. So a
// mover that hung writes nothing once the store is served from there or has moved on.
func (x *mover) write(ctx context.Context, pieces ...piece) error {
	return again(ctx, func() error {
		return pgx.BeginFunc(ctx, x.to.conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT tgad.arriving($1, $2)", x.Store, x.epoch); err != nil {
				return err
			}
			for _, p := range pieces {
				if err := x.pour(ctx, tx, p); err != nil {
					return fmt.Errorf("%s: %w", p.table, err)
				}
			}
			return nil
		})
	})
}

func (x *mover) pour(ctx context.Context, tx pgx.Tx, p piece) error {
	if p.before != "" {
		if _, err := tx.Exec(ctx, p.before); err != nil {
			return err
		}
	}
	into := "tgad." + p.table
	if p.merge != "" {
		into = "moved_" + p.table
		if _, err := tx.Exec(ctx, "CREATE TEMP TABLE "+into+" (LIKE tgad."+p.table+") ON COMMIT DROP"); err != nil {
			return err
		}
	}
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		_, err := x.from.conn.PgConn().CopyTo(ctx, w, "COPY ("+p.rows+") TO STDOUT (FORMAT binary)")
		read <- errors.Join(err, w.CloseWithError(err))
	}()
	_, err := tx.Conn().PgConn().CopyFrom(ctx, r, "COPY "+into+" FROM STDIN (FORMAT binary)")
	if err = errors.Join(err, r.CloseWithError(err), <-read); err != nil || p.merge == "" {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO tgad."+p.table+" SELECT * FROM "+into+" "+p.merge)
	return err
}

// follow copies the log in its order: each append with its entries and notes. If the store was on the new shard before, the rows
// that are still there are the beginning of the log.
func (x *mover) follow(ctx context.Context) error {
	var last, newest int64
	const lastSQL = "SELECT coalesce((SELECT max(index) FROM tgad.leaves WHERE shard = $1), 0)"
	if err := errors.Join(x.to.conn.QueryRow(ctx, lastSQL, x.Store).Scan(&last), x.from.conn.QueryRow(ctx, lastSQL, x.Store).Scan(&newest)); err != nil {
		return err
	}
	if last > newest {
		return tga.Errorf(tga.StateChecksumMismatch, "move: shard %q has %d appends of store %d, and shard %q, which has the store, %d", x.name, last, x.Store, x.done.From, newest)
	}
	for ; last < newest; last += movedPage {
		page := fmt.Sprintf("l.shard = %d AND l.index > %d AND l.index <= %d", x.Store, last, min(last+movedPage, newest))
		if err := x.write(ctx,
			piece{table: "entries", rows: "SELECT e.* FROM tgad.leaves l JOIN tgad.entries e ON e.shard = l.shard AND e.trace = l.trace AND e.seq BETWEEN l.first_seq AND l.first_seq + l.entries - 1 WHERE l.entries > 0 AND " + page},
			piece{table: "notes", rows: "SELECT n.* FROM tgad.leaves l JOIN tgad.notes n ON n.shard = l.shard AND n.trace = l.trace AND n.number BETWEEN l.first_note AND l.first_note + l.notes - 1 WHERE l.notes > 0 AND " + page},
			piece{table: "leaves", rows: "SELECT l.* FROM tgad.leaves l WHERE " + page},
		); err != nil {
			return err
		}
	}
	return nil
}

// copyRest copies, after the fence, the last appends and the tables that have no order.
func (x *mover) copyRest(ctx context.Context) error {
	for more := true; more; { // the last appends may have no number yet; other processes assign numbers too
		if _, err := x.from.conn.Exec(ctx, "SELECT tgad.sequence($1, $2)", x.Store, orderPage); err != nil {
			return err
		}
		if err := x.from.conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tgad.pending WHERE shard = $1)", x.Store).Scan(&more); err != nil {
			return err
		}
	}
	if err := x.follow(ctx); err != nil {
		return err
	}
	anew := func(table string) piece {
		return piece{table: table, rows: fmt.Sprintf("SELECT * FROM tgad.%s WHERE shard = %d", table, x.Store), before: fmt.Sprintf("DELETE FROM tgad.%s WHERE shard = %d", table, x.Store)}
	}
	ledger := anew("ledger") // of which no row is ever deleted
	ledger.before, ledger.merge = "", "ON CONFLICT (shard, hash) DO UPDATE SET record = excluded.record WHERE tgad.ledger.record <> excluded.record"
	if err := x.write(ctx, ledger, anew("heads"), anew("checkpoints"), anew("attachments"), anew("sessions"), anew("meta"), anew("order_state"), anew("data_keys"), anew("owner_keys"), anew("erasing"),
		piece{table: "namespaces", rows: "SELECT * FROM tgad.namespaces", merge: "ON CONFLICT DO NOTHING"}); err != nil {
		return err
	}
	tiles, notes := anew("tiles"), anew("signed_notes") // each was written once: an old copy has the beginning
	for _, p := range []*piece{&tiles, &notes} {
		p.before, p.merge = "", "ON CONFLICT DO NOTHING"
	}
	if err := x.write(ctx, tiles, notes, anew("duties")); err != nil {
		return err
	}
	return x.erase(ctx)
}

// erase removes contents from an old copy that were erased or retired after the copy was made.
func (x *mover) erase(ctx context.Context) error {
	return x.write(ctx, piece{
		table: "entries", rows: fmt.Sprintf("SELECT shard, trace, seq, header, NULL::bytea, NULL::bytea FROM tgad.entries WHERE shard = %d AND parts IS NULL", x.Store),
		merge: "ON CONFLICT (shard, trace, seq) DO UPDATE SET parts = NULL, spill = NULL WHERE tgad.entries.parts IS NOT NULL",
	})
}

// comparedTables are all tables with rows of a store, except its lists.
var comparedTables = []string{"meta", "sessions", "heads", "entries", "notes", "checkpoints", "ledger", "attachments", "order_state", "pending", "leaves", "tiles", "signed_notes", "duties", "data_keys", "owner_keys", "erasing"}

// compareSQL returns the number of a store's rows in a table, and digests of them in up to 256 parts.
const compareSQL = `SELECT coalesce(sum(n), 0)::int8, coalesce(string_agg(d, ' ' ORDER BY b), '') FROM (
	SELECT get_byte(h, 0) AS b, count(*) AS n, encode(sha256(string_agg(h, ''::bytea ORDER BY h)), 'hex') AS d
	FROM (SELECT sha256(convert_to(t::text, 'UTF8')) AS h FROM tgad.%s t WHERE shard = $1) AS r GROUP BY 1) AS p`

// compare compares every row of the store on both shards, except its lists. The new shard makes the lists from the log, or continues
// the lists that it had when the store was there before. The old shard is fenced, and only this move changes the new one.
func (x *mover) compare(ctx context.Context) error {
	x.done.Rows = 0
	for _, table := range comparedTables {
		var n [2]int64
		var digests [2]string
		both := make(chan error, 2)
		for i, c := range []*copier{x.from, x.to} {
			go func() {
				both <- c.conn.QueryRow(ctx, fmt.Sprintf(compareSQL, table), x.Store).Scan(&n[i], &digests[i])
			}()
		}
		if err := errors.Join(<-both, <-both); err != nil {
			return err
		}
		if n[0] != n[1] || digests[0] != digests[1] {
			return tga.Errorf(tga.StateChecksumMismatch, "move: %s of store %d: %d rows on shard %q, %d on shard %q, and they are not the same%s", table, x.Store, n[0], x.done.From, n[1], x.name, hint(table))
		}
		x.done.Rows += n[0]
	}
	return nil
}

func hint(table string) string {
	if strings.Contains("entries notes leaves tiles signed_notes", table) {
		return ": something else has written there"
	}
	return ": run the move again"
}
