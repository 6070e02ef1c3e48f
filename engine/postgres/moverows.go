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

// piece is rows that are copied from one table to the same on the other side, as the database writes them.
type piece struct {
	table, rows string // name, and a query of them
	before      string // a statement at the other side, in the same transaction
	merge       string // where rows may be there already: what becomes of them
}

// write copies pieces in one transaction, which a shard refuses that waits for no copy under this epoch: a mover that stood
// still writes nothing once the store is served from there, or has gone on.
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

// follow copies the log in its order: entries and notes with the appends that made them. Where the store was on the other
// shard before, what is there still is the beginning of it.
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

// copyRest copies, after the fence, what has no order or came last.
func (x *mover) copyRest(ctx context.Context) error {
	for more := true; more; { // what was appended last may have no number yet; other processes give numbers too
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

// erase erases from an old copy what was erased, or retired, since.
func (x *mover) erase(ctx context.Context) error {
	return x.write(ctx, piece{
		table: "entries", rows: fmt.Sprintf("SELECT shard, trace, seq, header, NULL::bytea, NULL::bytea FROM tgad.entries WHERE shard = %d AND parts IS NULL", x.Store),
		merge: "ON CONFLICT (shard, trace, seq) DO UPDATE SET parts = NULL, spill = NULL WHERE tgad.entries.parts IS NOT NULL",
	})
}

// comparedTables are all that have rows of a store.
var comparedTables = []string{"meta", "sessions", "heads", "entries", "notes", "checkpoints", "ledger", "attachments", "order_state", "pending", "leaves", "tiles", "signed_notes", "duties", "data_keys", "owner_keys", "erasing"}

// compareSQL says, for each of 256 parts of a table, how many rows there are and what they are.
const compareSQL = `SELECT coalesce(sum(n), 0)::int8, coalesce(string_agg(d, ' ' ORDER BY b), '') FROM (
	SELECT get_byte(h, 0) AS b, count(*) AS n, encode(sha256(string_agg(h, ''::bytea ORDER BY h)), 'hex') AS d
	FROM (SELECT sha256(convert_to(t::text, 'UTF8')) AS h FROM tgad.%s t WHERE shard = $1) AS r GROUP BY 1) AS p`

// compare compares every row of the store, but for its lists: on the shard to which it comes they are made of the log, or go on from
// where they were when it was there before. Nothing changes the side that is fenced, and nothing but this move the other.
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
