package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tgad/tgad/schemas/tga"
	"github.com/tgad/tgad/wal/chain"
)

// Retiring names the month to retire. The month must be over.
type Retiring struct {
	Year  int
	Month time.Month
	// Archive exports traces of a store. It returns once the export is durable elsewhere and was read back, and
	// returns the exported traces.
	Archive func(ctx context.Context, s *Store, traces []tga.ID) (archived []tga.ID, err error)
}

// Retired says what a retirement did.
type Retired struct {
	Traces  int // traces whose artifacts and documents were dropped; 0 if none had any
	Entries int // entries of the month; all of them stay, with their digests
}

// Retire drops the partition with the entries of a month, once an archive has their artifacts and documents. It replaces
// the partition by one that has only the headers of the entries, from which the chain is made. So every trace still
// verifies, as if its artifacts had been erased, and the disk space is freed at once. The ledger, the notes and the
// order stay.
//
// The traces of a sealed store are read with the key ring of the options, and archived in the clear. A store that is not sealed
// stays so.
//
// It needs the rights of [Migrate]. NOT_FOUND: the month has no partition of its own.
// VALIDATION_ERROR: the month is not over. STATE_INVALID_TRANSITION: a trace of the month is open, a timer of it waits, or
// one has no archive; nothing is dropped. STORE_UNAVAILABLE: a store is sealed under another ring. STATE_LOCK_ACQUIRE_FAILED: others had the table, or added to the month
// meanwhile: again later.
func Retire(ctx context.Context, dsn string, o Options, r Retiring) (done Retired, err error) {
	c := &copier{o: o.withDefaults(), dsn: dsn}
	if err := c.connect(ctx); err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, c.conn.Close(context.WithoutCancel(ctx))) }()
	x := &retirer{copier: c, Retiring: r, part: fmt.Sprintf("entries_%04d_%02d", r.Year, r.Month)}
	for _, step := range []func(context.Context) error{x.bounds, x.refuseOpen, x.archive, x.strip, x.swap} {
		if err := step(ctx); err != nil {
			return done, x.failed("retire "+x.part, err)
		}
	}
	return x.done, nil
}

type retirer struct {
	*copier
	Retiring
	part        string  // name of the partition
	carrying    bool    // an entry of the partition has contents
	away        []int32 // stores with entries in it that are not here, so that their contents stay
	first, last string  // bounds of the trace ids: from first up to but not including last
	done        Retired
}

// bare returns the name of the table that replaces the partition.
func (x *retirer) bare() string { return x.part + "_bare" }

func (x *retirer) bounds(ctx context.Context) error {
	from := time.Date(x.Year, x.Month, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(0, 1, 0)
	var there, over bool
	if err := x.conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL, $2::timestamptz < now(), tgad.first_trace($3)::text, tgad.first_trace($2)::text",
		"tgad."+x.part, to, from).Scan(&there, &over, &x.first, &x.last); err != nil {
		return err
	}
	switch {
	case !there:
		return tga.Errorf(tga.NotFound, "the month has no partition of its own")
	case !over:
		return tga.Errorf(tga.ValidationError, "the month is not over")
	}
	return nil
}

// notHere selects the stores of which this database has only an old or incomplete copy. Their contents stay: if such a store moves
// back, its rows must be the same as before.
const notHere = "(SELECT store FROM tgad.placements WHERE state NOT IN ('here', 'leaving'))"

// openSQL finds a trace of the month, in any store, that has not ended or that has a timer.
const openSQL = `SELECT trace::text, 'open' FROM tgad.heads WHERE trace >= $1 AND trace < $2 AND state BETWEEN 1 AND 3 AND shard NOT IN ` + notHere + `
	UNION ALL SELECT encode(substr(key, 9), 'hex'), 'waited for by a timer' FROM tgad.attachments WHERE kind = $3 AND shard NOT IN ` + notHere + `
		AND substr(key, 9) >= decode(replace($1::uuid::text, '-', ''), 'hex') AND substr(key, 9) < decode(replace($2::uuid::text, '-', ''), 'hex')
	LIMIT 1`

func (x *retirer) refuseOpen(ctx context.Context) error { return x.refuseOpenIn(ctx, x.conn) }

func (x *retirer) refuseOpenIn(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var trace, why string
	err := q.QueryRow(ctx, openSQL, x.first, x.last, int16(chain.AttachTimer)).Scan(&trace, &why)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return tga.Errorf(tga.StateInvalidTransition, "trace %s is %s", trace, why)
}

// archive archives the contents of the entries of each store.
func (x *retirer) archive(ctx context.Context) error {
	if _, err := x.conn.Exec(ctx, "CREATE TEMP TABLE archived (shard int4, trace uuid, PRIMARY KEY (shard, trace))"); err != nil {
		return err
	}
	rows, err := x.conn.Query(ctx, "SELECT DISTINCT shard, trace FROM tgad."+x.part+" WHERE parts IS NOT NULL AND shard NOT IN "+notHere+" ORDER BY 1, 2")
	if err != nil {
		return err
	}
	byShard := map[int32][]tga.ID{}
	for rows.Next() {
		var shard int32
		var id [16]byte
		if err := rows.Scan(&shard, &id); err != nil {
			rows.Close()
			return err
		}
		byShard[shard], x.carrying = append(byShard[shard], tga.ID(id)), true
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for shard, ids := range byShard {
		if err := x.archiveShard(ctx, shard, ids); err != nil {
			return err
		}
	}
	return nil
}

func (x *retirer) archiveShard(ctx context.Context, shard int32, ids []tga.ID) (err error) {
	o := x.o
	o.Shard = shard
	var sealed bool
	if err := x.conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM tgad.meta WHERE shard = $1 AND name = $2)", shard, ringName).Scan(&sealed); err != nil {
		return err
	}
	if !sealed {
		o.Keyring = nil
	}
	s, err := Open(ctx, x.dsn, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	archived, err := x.Archive(ctx, s, ids)
	if err != nil {
		return err
	}
	x.done.Traces += len(archived)
	_, err = x.conn.CopyFrom(ctx, pgx.Identifier{"archived"}, []string{"shard", "trace"}, pgx.CopyFromSlice(len(archived), func(i int) ([]any, error) {
		return []any{shard, [16]byte(archived[i])}, nil
	}))
	return err
}

// strip makes a table with the entries of the partition, without artifacts and documents.
func (x *retirer) strip(ctx context.Context) error {
	if !x.carrying {
		return nil
	}
	return pgx.BeginTxFunc(ctx, x.conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		var unarchived string
		err := tx.QueryRow(ctx, "SELECT trace::text FROM tgad."+x.part+" e WHERE parts IS NOT NULL AND shard NOT IN "+notHere+" AND NOT EXISTS (SELECT 1 FROM archived a WHERE a.shard = e.shard AND a.trace = e.trace) LIMIT 1").Scan(&unarchived)
		switch {
		case err == nil:
			return tga.Errorf(tga.StateInvalidTransition, "trace %s is in no archive", unarchived)
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		if x.away, err = x.notHere(ctx, tx); err != nil {
			return err
		}
		// With the constraint the swap need not check each row.
		for _, statement := range []string{
			"DROP TABLE IF EXISTS tgad." + x.bare(),
			"CREATE TABLE tgad." + x.bare() + " (LIKE tgad.entries INCLUDING ALL)",
			fmt.Sprintf("ALTER TABLE tgad.%s ADD CONSTRAINT %s_month CHECK (trace IS NOT NULL AND trace >= '%s' AND trace < '%s')", x.bare(), x.part, x.first, x.last),
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, "INSERT INTO tgad."+x.bare()+" SELECT shard, trace, seq, header, CASE WHEN shard IN "+notHere+" THEN parts END, CASE WHEN shard IN "+notHere+" THEN spill END FROM tgad."+x.part)
		x.done.Entries = int(tag.RowsAffected())
		return err
	})
}

// notHere returns the stores with entries in the partition of which this database has only a copy.
func (x *retirer) notHere(ctx context.Context, tx pgx.Tx) (stores []int32, err error) {
	err = tx.QueryRow(ctx, "SELECT ARRAY(SELECT store FROM "+notHere+" AS n WHERE EXISTS (SELECT 1 FROM tgad."+x.part+" e WHERE e.shard = n.store) ORDER BY store)").Scan(&stores)
	return stores, err
}

// swapWait is how long the swap waits for the lock of the table. Later appends wait behind it.
const swapWait = "500ms"

// swap replaces the partition by the stripped table, and drops the partition. Entries are only added, so
// an unchanged number of entries means unchanged entries.
func (x *retirer) swap(ctx context.Context) error {
	if !x.carrying {
		return nil
	}
	err := pgx.BeginFunc(ctx, x.conn, func(tx pgx.Tx) error {
		for _, statement := range []string{"SET LOCAL lock_timeout = '" + swapWait + "'", "LOCK TABLE tgad.entries IN ACCESS EXCLUSIVE MODE"} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		if err := x.refuseOpenIn(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT 1 FROM tgad.placements FOR SHARE"); err != nil { // a move waits until the swap is over
			return err
		}
		if away, err := x.notHere(ctx, tx); err != nil || !slices.Equal(away, x.away) {
			return errors.Join(err, tga.Errorf(tga.StateLockAcquireFailed, "a store has moved meanwhile"))
		}
		var entries int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM tgad."+x.part).Scan(&entries); err != nil {
			return err
		}
		if entries != x.done.Entries {
			return tga.Errorf(tga.StateLockAcquireFailed, "%d entries came meanwhile", entries-x.done.Entries)
		}
		// Remove the contents of the month from the lists of the stores.
		if _, err := tx.Exec(ctx, "SELECT tgad.look_again(shard, $1, $2) FROM (SELECT DISTINCT shard FROM archived) AS s", x.first, x.last); err != nil {
			return err
		}
		for _, statement := range []string{
			"ALTER TABLE tgad.entries DETACH PARTITION tgad." + x.part,
			"DROP TABLE tgad." + x.part,
			fmt.Sprintf("ALTER TABLE tgad.%s RENAME TO %s", x.bare(), x.part),
			fmt.Sprintf("ALTER TABLE tgad.entries ATTACH PARTITION tgad.%s FOR VALUES FROM ('%s') TO ('%s')", x.part, x.first, x.last),
			fmt.Sprintf("ALTER TABLE tgad.%s DROP CONSTRAINT %s_month", x.part, x.part),
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if raised(err, noLock) {
		return tga.Errorf(tga.StateLockAcquireFailed, "others have the table: %w", err)
	}
	return err
}
