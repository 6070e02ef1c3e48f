package postgres

import (
	"context"
	"embed"
	"errors"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"

	"github.com/tgad/tgad/schemas/tga"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaTable is where the database says which of the migrations it has.
const schemaTable = "tgad.schema"

// newestSchema is the number of the last file in migrations.
const newestSchema = 2

// monthsAhead is how many months get a partition before they begin.
const monthsAhead = 2

// Migrate brings the tables of a database to what this program works with, and makes the
// partitions of this month and the next ones. It needs the right to make schemas and roles;
// [Open] needs neither. A database that a newer program has migrated is refused with
// FORMAT_TOO_NEW and left as it is.
func Migrate(ctx context.Context, dsn string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return tga.Errorf(tga.ValidationError, "migrate: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		err = errors.Join(migrateOver(ctx, conn), conn.Close(ctx))
	}
	if err != nil && tga.CodeOf(err) == "" {
		err = tga.Errorf(tga.StoreUnavailable, "migrate: %w", err)
	}
	return err
}

func migrateOver(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS tgad"); err != nil {
		return err
	}
	m, err := migrate.NewMigrator(ctx, conn, schemaTable)
	if err != nil {
		return err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err == nil {
		err = m.LoadMigrations(files)
	}
	if err != nil {
		return err
	}
	has, err := m.GetCurrentVersion(ctx)
	if err != nil {
		return err
	}
	if has > newestSchema {
		return schemaTooNew(has)
	}
	if err := m.Migrate(ctx); err != nil {
		return err
	}
	for ahead := range monthsAhead + 1 {
		if _, err := conn.Exec(ctx, "SELECT tgad.make_partition((date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => $1))::date)", ahead); err != nil {
			return err
		}
	}
	return nil
}

func schemaTooNew(has int32) error {
	return tga.Errorf(tga.FormatTooNew, "the tables of the database are of version %d, this program knows %d", has, newestSchema)
}
