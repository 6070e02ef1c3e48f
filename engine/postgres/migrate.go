package postgres

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"

	"github.com/tgad/tgad/schemas/tga"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaTable has the version of the tables: the number of the newest migration.
const schemaTable = "tgad.schema"

// newestSchema is the number of the last file in migrations.
const newestSchema = 9

// monthsAhead is how many months get a partition before they begin.
const monthsAhead = 2

// Migrate brings the tables of a database to the version of this program, and makes the
// partitions of this month and the next months. It needs the right to make schemas and roles;
// [Open] does not. If a newer program has migrated the database, Migrate changes nothing and
// returns FORMAT_TOO_NEW.
func Migrate(ctx context.Context, dsn string) error {
	_, err := MigrateUntil(ctx, dsn, monthsAhead)
	return err
}

// Migrated says what a migration did.
type Migrated struct {
	From, To int    // version of the tables before, 0 if there were none, and after
	Until    string // the last month that has a partition of its own, as 2026-11
}

// MigrateUntil is [Migrate] with partitions for that number of months after this one.
func MigrateUntil(ctx context.Context, dsn string, months int) (done Migrated, err error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return done, tga.Errorf(tga.ValidationError, "migrate: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, bounded(config))
	if err == nil {
		done, err = migrateOver(ctx, conn, months)
		err = errors.Join(err, conn.Close(ctx))
	}
	if err != nil && tga.CodeOf(err) == "" {
		err = tga.Errorf(tga.StoreUnavailable, "migrate: %w", err)
	}
	return done, err
}

func migrateOver(ctx context.Context, conn *pgx.Conn, months int) (done Migrated, err error) {
	if _, err := conn.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS tgad"); err != nil {
		return done, err
	}
	m, err := migrate.NewMigrator(ctx, conn, schemaTable)
	if err != nil {
		return done, err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err == nil {
		err = m.LoadMigrations(files)
	}
	if err != nil {
		return done, err
	}
	has, err := m.GetCurrentVersion(ctx)
	if err != nil {
		return done, err
	}
	if has > newestSchema {
		return done, schemaTooNew(has)
	}
	if err := m.Migrate(ctx); err != nil {
		return done, err
	}
	done.From, done.To = int(has), newestSchema
	const month = "(date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => $1))::date"
	for ahead := range months + 1 {
		made, err := makePartition(ctx, conn, month, ahead)
		if made {
			err = conn.QueryRow(ctx, "SELECT to_char("+month+", 'YYYY-MM')", ahead).Scan(&done.Until)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// rowsInRest is the code of the database for a partition whose rows are in the default partition.
const rowsInRest = "23514"

// noLock is the code of the database for a lock that was not granted in time.
const noLock = "55P03"

// partitionTries is how often the partition of a month is tried, with a pause between two tries.
const partitionTries, partitionPause = 5, time.Second

// makePartition makes the partition of a month, an SQL expression with an argument. It returns false if the rest has rows of the
// month: those stay where they are, and the month gets no partition.
//
// A partition needs the table for itself, and appends wait behind that request. So somebody who reads for long would stop the fleet:
// the request is given up after [swapWait].
func makePartition(ctx context.Context, conn *pgx.Conn, month string, arg any) (made bool, err error) {
	for try := 1; ; try++ {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+swapWait+"'"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "SELECT tgad.make_partition("+month+")", arg)
			return err
		})
		if !raised(err, noLock) || try == partitionTries || ctx.Err() != nil {
			break
		}
		rest(ctx, partitionPause)
	}
	switch {
	case raised(err, rowsInRest):
		return false, nil
	case raised(err, noLock):
		return false, tga.Errorf(tga.StateLockAcquireFailed, "make the partition of a month: others have the table: %w", err)
	}
	return err == nil, err
}

func schemaTooNew(has int32) error {
	return tga.Errorf(tga.FormatTooNew, "the tables of the database are of version %d, this program knows %d", has, newestSchema)
}
